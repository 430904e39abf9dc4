"""Checks that make it safe to open a run's folder from somebody else.

A config says where text and caches lie, and a cache holds machine code. So nothing of it that
names a place is used but by training and its plan, which say what they read; the cache is the
user's own.
"""

from collections.abc import Iterable
from pathlib import Path

from ml_collections import ConfigDict

from configs import base
from transformer.data.corpora import corpora_of
from transformer.data.files.locate import corpus_folder
from transformer.errors import UserError
from transformer.keys import assign, flatten
from transformer.trials import COMMAND
from transformer.workdir import PLACES, newest_step, without_places

CACHE = "data.cache_dir"
# Of `evaluate.sacrebleu_tokenizer`: those that sacreBLEU fetches from the network.
FETCHED = ("spm", "flores101", "flores200")


def forget_places(config: ConfigDict, training: bool) -> None:
    """Sets the keys that name a place in the config of a run's folder to their defaults.

    The names that tell the language of the source stay: that of the training file without its
    folder, and whether both sides are in it, see `segments.source_language`.

    Args:
      training: whether to keep the paths of the text, for a run that resumes or its plan.
    """
    defaults = flatten(base.get_config())
    if not training:
        config.data.corpora = without_places(config.data.corpora)
        defaults["data.train_source"] = Path(config.data.train_source).name
        if not config.data.train_target:
            defaults["data.train_target"] = ""
    for key in flatten(config):
        if key == CACHE or (PLACES.fullmatch(key) and not training):
            assign(config, key, defaults[key])


def describe_text(config: ConfigDict, folder: Path) -> str | None:
    """Returns a line with the text that a resumed run reads by its own config; None if there is
    none."""
    corpora = [corpus.data for corpus in corpora_of(config.data)]
    texts = [text for data in corpora or [config.data] for text in _texts(data)]
    models = [config.tokenizer.model, config.tokenizer.target_model]
    if not newest_step(folder):
        models.append(config.train.init_from)
    texts += [str(Path(name).expanduser().absolute()) for name in models if name]
    if not texts:
        return None
    name = "config.json" if (folder / "config.json").exists() else COMMAND
    return f"reads {', '.join(texts)}, as {folder / name} says"


def _texts(data: ConfigDict) -> list[str]:
    """The text that one corpus reads."""
    if data.source == "files":
        names = [value for key, value in data.items() if key.endswith(("_source", "_target"))]
        place = corpus_folder(data)
        return [str(place / Path(name).expanduser()) for name in names if name]
    if data.source == "tfds":
        return [f"{data.tfds_name!a} in {data.tfds_dir or 'the folder of TensorFlow Datasets'}"]
    return []


def check_fetched(config: ConfigDict, given: Iterable[str]) -> None:
    """Raises UserError if a run's config would have something fetched from the network.

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
