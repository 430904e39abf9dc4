"""The parts of the accelerator study: their sequence, their orders, and their records."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ml_collections import ConfigDict

from transformer.errors import RunError
from transformer.storage.files import write_json

Item = TypeVar("Item")

# What must be equal for a result to hold for a later start.
CONDITIONS = ("device", "jax", "files", "toy")


class Part(NamedTuple):
    """A part: its name, its title, and the seconds that it is expected to take on an H100."""

    name: str
    title: str
    seconds: int


# The most valuable ones first: what does not fit into the time is left for a later start.
PARTS = (
    Part("peak", "Matrix products", 40),
    Part("step", "Training step", 150),
    Part("multi30k", "Multi30k", 200),
    Part("tests", "Tests", 75),
    Part("together", "Many runs as one program", 60),
    Part("decoding", "Beam search", 45),
    Part("twice", "The same training twice", 40),
    Part("chunks", "Chunks of the loss", 45),
)
NAMES = tuple(part.name for part in PARTS)


def record_path(folder: Path, name: str) -> Path:
    """Returns the file of a part's record."""
    return folder / f"{name}.json"


def write_record(folder: Path, name: str, conditions: Mapping[str, Any], outcome: Any) -> None:
    """Writes a part's record.

    Args:
      conditions: see `CONDITIONS`.
      outcome: `seconds`, and `result` or the line `error`.
    """
    chosen = {key: conditions[key] for key in CONDITIONS}
    write_json(record_path(folder, name), {"part": name, **chosen, **outcome})


def read_record(folder: Path, name: str, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a part's record; empty if there is none, or if it was made in other conditions."""
    try:
        record = json.loads(record_path(folder, name).read_text(encoding="utf-8"))
        same = all(record[key] == conditions[key] for key in CONDITIONS)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return record if same else {}


class Order(NamedTuple):
    """An order to a part.

    Attributes:
      folder: of the study.
      toy: whether the models are tiny, so that a CPU is enough.
      seconds: after which no further setting is measured.
      platform: of the device, such as "gpu".
      data: the folder of Multi30k; None if there is none.
    """

    folder: Path
    toy: bool
    seconds: float
    platform: str
    data: Path | None = None


def within(seconds: float, items: Sequence[Item]) -> Iterator[Item]:
    """Yields items, the first one in any case, until the time is over.

    Raises:
      RunError: it is over, and there are more.
    """
    start = time.monotonic()
    for number, item in enumerate(items):
        if number and time.monotonic() - start > seconds:
            raise RunError(f"{number} of {len(items)} settings were measured in {seconds:.0f} s")
        yield item


def shrink(config: ConfigDict) -> ConfigDict:
    """Makes the model, the batches and the text of a config tiny; returns it."""
    config.model.update({"d_model": 16, "d_ff": 32, "num_heads": 2})
    config.model.update({"num_encoder_layers": 1, "num_decoder_layers": 1})
    config.data.update({"train_size": 600, "validation_size": 20, "test_size": 20})
    config.data.update({"batch_tokens": 256, "batch_multiple": 1})
    config.tokenizer.vocab_size = 300
    return config
