"""The mode `positions`: pictures of every positional encoding, and a page with phasors."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from ml_collections import ConfigDict

from experiments.positions import phasors, plots, rotation
from experiments.positions.values import Encoding, encodings
from transformer.model.build import check_names, has_heads
from transformer.model.config import ModelConfig
from transformer.workdir import check_same_run, load_trained

MAX_POSITIONS = 128


def positions(config: ConfigDict, folder: Path) -> Iterator[Path]:
    """Draws every encoding in a model of this size; yields the files.

    Encodings that the run's model has are drawn with its parameters; all others, and those of a
    folder without a checkpoint, with parameters as they are initialised. The folder is made if
    missing.

    Raises:
      UserError: the folder holds another run, or a checkpoint that cannot be used.
    """
    check_same_run(folder, config)
    trained = None
    if (folder / "checkpoints").is_dir():
        trained = load_trained(folder, config)
    model = model_config(config)
    count = min(MAX_POSITIONS, model.max_length)
    place = folder / "figures" / "positions"
    found = list(encodings(model, config.seed, trained))
    yield from plots.draw(found, count, place)
    if model.d_model % 2 == 0:  # dimensions turn in pairs
        yield _draw_rotation(found, count, place / "rotation_by_offset.png")
    drawn = phasors.phasors_of(model)
    for phasor in drawn:
        yield phasors.draw_gif(phasor, place / f"phasors_{phasor.name}.gif")
    yield phasors.write_phasors(drawn, place / "positions.html")


def _draw_rotation(found: Sequence[Encoding], count: int, picture: Path) -> Path:
    """Draws the errors of the map by an offset, and prints them; returns `picture`."""
    offset = min(rotation.OFFSET, count - 1)
    tables = {
        " ".join((encoding.name, encoding.place)).strip(): encoding.table(count)
        for encoding in found
        if "add" in encoding.hooks
    }
    errors = rotation.errors_of(tables, offset)
    for line in rotation.describe(errors, offset):
        print(line)
    return rotation.draw(errors, offset, picture)


def model_config(config: ConfigDict) -> ModelConfig:
    """Returns the sizes of a config as those of a Transformer, whatever kind its model is.

    Raises:
      UserError: they are none of a Transformer.
    """
    fields = dataclasses.fields(ModelConfig)
    values = {
        field.name: config.model[field.name] for field in fields if field.name in config.model
    }
    if not has_heads(config.model):  # its number of heads counts for nothing, and may not fit
        heads = math.gcd(values["d_model"], values["num_heads"])
        values |= {"num_heads": heads, "num_kv_heads": 0, "head_size": 0}
    # Pictures are made of any encoding, whatever the model has and however many layers there are.
    values |= {"architecture": "transformer", "num_encoder_layers": 1, "num_decoder_layers": 1}
    values |= {"positions": "none", "encoder_positions": "", "decoder_positions": ""}
    values |= {"cross_positions": "none", "source_vocab_size": 1, "target_vocab_size": 1}
    checked = ModelConfig(**values)
    check_names(checked)
    return checked
