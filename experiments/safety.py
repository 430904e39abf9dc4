"""What a run's folder may not choose: it may be a stranger's, and is to be safe to open.

A config says where text and caches lie, and a cache holds machine code. So nothing of it that
names a place is used but by training, which says what it reads; the cache is the user's own.
"""

from collections.abc import Iterable
from pathlib import Path

from ml_collections import ConfigDict

from configs import base
from transformer.config import assign, flatten
from transformer.errors import UserError
from transformer.workdir import PLACES

CACHE = "data.cache_dir"
# Of `evaluate.sacrebleu_tokenizer`: those that sacreBLEU fetches from the network.
FETCHED = ("spm", "flores101", "flores200")


def forget_places(config: ConfigDict, training: bool) -> None:
    """Sets what names a place in the config of a run's folder to its default.

    Args:
      training: whether the text's places stay, for a run that goes on.
    """
    defaults = flatten(base.get_config())
    for key in flatten(config):
        if key == CACHE or (PLACES.fullmatch(key) and not training):
            assign(config, key, defaults[key])


def describe_text(config: ConfigDict, folder: Path) -> str | None:
    """Returns a line on what a run that goes on reads, as its own config says; None of nothing."""
    data, texts = config.data, []
    if data.source == "files":
        names = [value for key, value in data.items() if key.endswith(("_source", "_target"))]
        place = Path(data.path or ".").expanduser().absolute()
        texts = [str(place / Path(name).expanduser()) for name in names if name]
    elif data.source == "tfds":
        texts = [f"{data.tfds_name!a} in {data.tfds_dir or 'the folder of TensorFlow Datasets'}"]
    models = (config.tokenizer.model, config.tokenizer.target_model)
    texts += [str(Path(name).expanduser().absolute()) for name in models if name]
    if not texts:
        return None
    return f"reads {', '.join(texts)}, as {folder / 'config.json'} says"


def check_fetched(config: ConfigDict, given: Iterable[str]) -> None:
    """Raises UserError where a run's config would have something fetched from the network.

    Args:
      given: the keys that the user gave.
    """
    key = "evaluate.sacrebleu_tokenizer"
    if config.evaluate.sacrebleu_tokenizer in FETCHED and key not in given:
        name = config.evaluate.sacrebleu_tokenizer
        raise UserError(
            f"{key}={name!r} of the run's config fetches a model from the network: give "
            f"--config.{key}={name} to let it, or =13a"
        )
