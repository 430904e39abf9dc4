"""Validates the values of a config before training."""

import importlib
from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from transformer.config import flatten
from transformer.config.keys import KEYS
from transformer.data import cleaning
from transformer.data.corpora import corpora_of, naming
from transformer.data.parallel.modifiers import check_augmentation
from transformer.data.pictures.sources import ANSWERS, CLASSES
from transformer.data.tokenizer import check_symbols
from transformer.data.tokenizer.draws import strength_of
from transformer.errors import UserError, shorten
from transformer.mesh import mesh_sizes
from transformer.metrics.registry import metrics_of
from transformer.model import build
from transformer.model.classifier import BAG
from transformer.model.config import check_choice, check_value
from transformer.model.vision.augment import CHANGES, OF_ANSWERS
from transformer.optim.parameters import EVERYTHING, check_pattern, rules_of
from transformer.tasks import REGISTRY, pair_scores
from transformer.tasks.base import DOCUMENTS, PAIRS, PICTURES, Task
from transformer.tasks.translation import check_vocabularies


def check(config: ConfigDict, *uses: str) -> None:
    """Checks the config values that can be validated without the data and the model.

    Args:
      uses: what the config is used for, as keys of `USES`.
    """
    for key, value in flatten(config).items():
        _check_value(key, value)
    check_choice("config.model.architecture", config.model.architecture, (*build.REGISTRY, BAG))
    task = REGISTRY[config.task]
    corpora = corpora_of(config.data)
    if corpora and task.reads != PAIRS:
        raise UserError(
            f"config.data.corpora is for config.task=translation, not {config.task}: leave it out"
        )
    for corpus in corpora:
        for key, value in flatten(ConfigDict({"data": corpus.data})).items():
            if key in KEYS:
                _check_value(key, value, f" of the corpus {corpus.name}")
    sees = task.reads == PICTURES
    if sees != bool(config.model.patch_size):
        fix = "set it to the pixels of a patch's side" if sees else "leave it out"
        raise UserError(
            f"config.model.patch_size={config.model.patch_size} is of pictures, and "
            f"config.task={config.task}: {fix}"
        )
    _check_pictures(config)
    measured = [name for name, metric in metrics_of(task.metrics).items() if not metric.final]
    check_choice("config.train.best_metric", config.train.best_metric, measured)
    check_pattern("train.init_pattern", config.train.init_pattern)
    rules_of(config.train)
    _check_mesh(config.train.mesh, config.model)
    check_symbols(config.tokenizer)
    if config.tokenizer.joint and config.tokenizer.target_model:
        raise UserError(
            f"tokenizer.target_model={config.tokenizer.target_model!r} is for two vocabularies: "
            "set config.tokenizer.joint=False, or config.tokenizer.model alone"
        )
    if not config.tokenizer.model:
        strength_of(config.tokenizer, config.tokenizer.kind)
    check_augmentation(config.data, config.tokenizer, "" if task.reads == PAIRS else config.task)
    if config.train.guided_alignment:
        _check_guided_alignment(config.train, config.model, task.reads)
    writes = task.reads == DOCUMENTS and config.decode.search == "beam"
    if (task.is_translated or writes) and config.decode.num_best > config.decode.beam_size:
        raise UserError(
            f"config.decode.num_best={config.decode.num_best} is more than the "
            f"config.decode.beam_size={config.decode.beam_size} translations that are searched: "
            "raise config.decode.beam_size"
        )
    for use in uses:
        USES[use](config)


def _check_value(key: str, value: Any, of: str = "") -> None:
    """Raises UserError if a value is out of range, or is not an allowed choice for its key."""
    about = KEYS[key]
    choices = value != about.default and about.choices
    if isinstance(choices, str):
        module, _, name = choices.rpartition(".")
        choices = getattr(importlib.import_module(module), name)
    check_value(f"config.{key}{of}", value, about._replace(choices=choices and tuple(choices)))


def _check_mesh(mesh: str, model: ConfigDict) -> None:
    """Raises UserError if a model dimension is not divisible by the size of its mesh axis."""
    divided = {"fsdp": ("d_model",), "tensor": ("num_heads", "num_kv_heads", "d_ff")}
    for axis, size in mesh_sizes(mesh).items():
        for key in divided.get(axis, ()):
            if (number := model[key]) % size:
                fits = max(n for n in range(1, size) if number % n == 0)
                raise UserError(
                    f"config.train.mesh={mesh} does not divide config.model.{key}="
                    f"{number}: use {axis}={fits}"
                )


def _check_pictures(config: ConfigDict) -> None:
    """Raises UserError if an image augmentation is unknown or does not apply to the task."""
    changes = config.data.augment
    for name in filter(None, changes.split("+")):
        check_choice("config.data.augment", name, CHANGES)
    if "colour" in changes.split("+") and config.model.picture_channels != 3:
        raise UserError(
            f"config.data.augment={changes} changes colours, and config.model.picture_channels="
            f"{config.model.picture_channels}: leave colour out, or set 3"
        )
    fitting = {
        "data.augment": (changes, (CLASSES, ANSWERS)),
        "train.mixup": (config.train.mixup, (CLASSES,)),
    }
    for key, (value, types) in fitting.items():
        if value and REGISTRY[config.task].label_type not in types:
            tasks = [name for name, task in REGISTRY.items() if task.label_type in types]
            raise UserError(
                f"config.{key}={value} is for config.task={' or '.join(tasks)}, not "
                f"{config.task}: leave it out"
            )


def _check_guided_alignment(train: ConfigDict, model: ConfigDict, reads: str) -> None:
    """Raises UserError unless the model computes the weights that are to be trained."""
    fits = reads == PAIRS and build.has_heads(model) and model.attention_implementation == "plain"
    layer, head = train.guided_layer, train.guided_head
    if not fits or layer > model.num_decoder_layers or head > model.num_heads:
        raise UserError(
            f"train.guided_alignment={train.guided_alignment} trains layer {layer or 'last'}, "
            f"head {head or 'mean'} of a translator's cross-attention with model.attention_"
            "implementation=plain, which the model does not have: set it to 0, or change the model"
        )


def _check_text(config: ConfigDict) -> None:
    """Checks the config keys of the training data before the data is read.

    Whether files and data sets exist is checked when they are read.
    """
    corpora, task = corpora_of(config.data), REGISTRY[config.task]
    for corpus in corpora:
        with naming(corpus):
            _check_source(corpus.data, task)
    if not corpora:
        _check_source(config.data, task)
    if task.is_translated:
        pair_scores.check_scores(config.evaluate)
    if task.reads == PAIRS:
        check_vocabularies(config.model, config.tokenizer.joint)


def _check_source(data: ConfigDict, task: type[Task]) -> None:
    """Raises UserError if a data source is unknown, or if a cleaning rule is invalid.

    The task determines which sources are valid; cleaning rules apply only to sentence pairs.
    """
    check_choice("config.data.source", data.source, task.sources)
    if task.reads == PAIRS:
        cleaning.rules_of(data)


def _check_start(config: ConfigDict) -> None:
    """Checks the config keys that are used only during training.

    A trained model no longer needs the run from which it was initialised.
    """
    asks = REGISTRY[config.task].label_type == ANSWERS
    if wrong := [name for name in OF_ANSWERS if asks and name in config.data.augment.split("+")]:
        raise UserError(
            f"config.data.augment={config.data.augment} makes answers wrong, such as "
            f"{OF_ANSWERS[wrong[0]]}: leave {' and '.join(wrong)} out"
        )
    if config.train.init_from:
        for key in ("source_vectors", "target_vectors"):
            if config.train[key]:
                raise UserError(
                    f"config.train.{key}={config.train[key]} and config.train.init_from are both "
                    "for the first embeddings: leave one out"
                )
        return
    fix = "set config.train.init_from to the folder of a run, or leave it out"
    if config.train.init_pattern != EVERYTHING:
        raise UserError(
            f"config.train.init_pattern={shorten(config.train.init_pattern)!r} chooses weights of "
            f"another run: {fix}"
        )
    if config.tokenizer.initial == "grow":
        raise UserError(f"config.tokenizer.initial=grow extends a tokenizer of another run: {fix}")


# Additional checks for each use of a config; those of a model need no data.
USES: dict[str, Callable[[ConfigDict], None]] = {
    "model": lambda config: REGISTRY[config.task].without_text(config).check_model(),
    "training": _check_start,
    "later": _check_text,  # for training that starts later
}
