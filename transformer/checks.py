"""Checks the values of a config before training."""

import importlib
from collections.abc import Iterable
from typing import Any

from ml_collections import ConfigDict

from transformer.config import flatten
from transformer.config.keys import KEYS
from transformer.data.cleaning import rules
from transformer.data.corpora import corpora_of, naming, texts_of
from transformer.data.documents import sources as documents
from transformer.data.labelled import sources as labelled
from transformer.data.parallel import sources as parallel
from transformer.data.parallel.modifiers import check_augmentation
from transformer.data.pictures import sources as pictures
from transformer.data.tokenizer import TOKENIZER_KINDS, check_models, check_symbols
from transformer.data.tokenizer.draws import check_sampling
from transformer.data.tokenizer.train import NORMALIZATIONS
from transformer.errors import UserError, shorten
from transformer.mesh import mesh_sizes
from transformer.metrics.registry import metrics_of
from transformer.model import build, flash, losses
from transformer.model.classifier import BAG, BagOfEmbeddings
from transformer.model.config import ModelConfig, check_choice, check_value
from transformer.model.vision.augment import CHANGES, OF_ANSWERS
from transformer.optim.parameters import EVERYTHING, check_pattern, rules_of
from transformer.tasks import pair_scores
from transformer.tasks.base import model_fields
from transformer.tasks.classification import make_network
from transformer.tasks.pictures import make_picture_network

# Of sacremoses, which takes English for any other; importing it takes a quarter of a second.
MOSES_LANGUAGES = (
    "as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk "
    "sl sv ta tdt te yue zh"
)
SEARCHED = ("translation", "captioning")  # tasks whose outputs a beam search finds
# By task, the names of `data.source`.
TASK_SOURCES: dict[str, Iterable[str]] = {
    "translation": parallel.REGISTRY,
    "language_model": {*documents.REGISTRY, *parallel.REGISTRY},
    "classification": labelled.REGISTRY,
    "captioning": pictures.REGISTRY,
    "image_classification": pictures.REGISTRY,
    "visual_question_answering": pictures.REGISTRY,
}


def check(config: ConfigDict) -> None:
    """Checks those values of a config that can be checked without text and model."""
    for key, value in flatten(config).items():
        _check_value(key, value)
    check_choice("config.model.architecture", config.model.architecture, (*build.REGISTRY, BAG))
    _check_corpora(config)
    _check_subset(config)
    sees = TASK_SOURCES[config.task] is pictures.REGISTRY
    if sees != bool(config.model.patch_size):
        fix = "set it to the pixels of a patch's side" if sees else "leave it out"
        raise UserError(
            f"config.model.patch_size={config.model.patch_size} is of pictures, and "
            f"config.task={config.task}: {fix}"
        )
    _check_pictures(config)
    measured = [name for name, metric in metrics_of(config.task).items() if not metric.final]
    check_choice("config.train.best_metric", config.train.best_metric, measured)
    check_pattern("train.init_pattern", config.train.init_pattern)
    rules_of(config.train)
    _check_mesh(config)
    _check_passes(config.model, config.train)
    check_symbols(config.tokenizer)
    check_models(config.tokenizer, config.train.init_from)
    check_sampling(config.tokenizer, config.task)
    check_augmentation(config)
    beam = config.decode.search == "beam"
    if config.task == "language_model" and beam and config.data.documents == "file":
        raise UserError(
            "config.decode.search=beam looks for texts that end, and config.data.documents=file is "
            "running text: use config.decode.search=sample"
        )
    searched = config.task in SEARCHED or (config.task == "language_model" and beam)
    if searched and config.decode.num_best > config.decode.beam_size:
        raise UserError(
            f"config.decode.num_best={config.decode.num_best} is more than the "
            f"config.decode.beam_size={config.decode.beam_size} translations that are searched: "
            "raise config.decode.beam_size"
        )
    if config.train.best_metric == "bleu_moses_lowercase" and not config.evaluate.moses:
        raise UserError(
            "config.train.best_metric=bleu_moses_lowercase is not measured: set "
            "config.evaluate.moses to the language of the translations"
        )


def _check_value(key: str, value: Any, of: str = "") -> None:
    """Raises UserError if a value is out of the range of its key, or none of its choices."""
    about = KEYS[key]
    choices = value != about.default and about.choices and tuple(choices_of(key))
    check_value(f"config.{key}{of}", value, about._replace(choices=choices))


def choices_of(key: str) -> Iterable[str]:
    """Returns the values that a key may have."""
    choices = KEYS[key].choices
    if isinstance(choices, str):
        module, _, name = choices.rpartition(".")
        choices = getattr(importlib.import_module(module), name)
    return choices


def _check_mesh(config: ConfigDict) -> None:
    """Raises UserError if the devices along an axis do not divide the model's arrays."""
    divided = {"fsdp": ("d_model",), "tensor": ("num_heads", "num_kv_heads", "d_ff")}
    for axis, size in mesh_sizes(config.train.mesh).items():
        for key in divided.get(axis, ()):
            if (number := config.model[key]) % size:
                fits = max(n for n in range(1, size) if number % n == 0)
                raise UserError(
                    f"config.train.mesh={config.train.mesh} does not divide config.model.{key}="
                    f"{number}: use {axis}={fits}"
                )


def _check_pictures(config: ConfigDict) -> None:
    """Raises UserError if training pictures are to be changed in an unknown way, or have none."""
    changes, task = config.data.augment, config.task
    for name in filter(None, changes.split("+")):
        check_choice("config.data.augment", name, CHANGES)
    if "colour" in changes.split("+") and config.model.picture_channels != 3:
        raise UserError(
            f"config.data.augment={changes} changes colours, and config.model.picture_channels="
            f"{config.model.picture_channels}: leave colour out, or set 3"
        )
    classes, answers = (pictures.TASKS[each] for each in (pictures.CLASSES, pictures.ANSWERS))
    fitting = {
        "data.augment": (changes, [classes, answers]),
        "train.mixup": (config.train.mixup, [classes]),
    }
    for key, (value, tasks) in fitting.items():
        if value and task not in tasks:
            raise UserError(
                f"config.{key}={value} is for config.task={' or '.join(tasks)}, not {task}: leave "
                "it out"
            )


def check_scores(config: ConfigDict) -> None:
    """Checks the keys that only scoring reads, for modes that score."""
    if config.evaluate.moses:
        check_choice("config.evaluate.moses", config.evaluate.moses, MOSES_LANGUAGES.split())


def check_text(config: ConfigDict) -> None:
    """Checks the keys of the training text before it is read, for trainings that start much later.

    Whether files and data sets are there is left to the reading.
    """
    tokenizer = config.tokenizer
    check_choice("config.tokenizer.kind", tokenizer.kind, TOKENIZER_KINDS)
    if tokenizer.normalization:  # '' is sentencepiece's default
        check_choice("config.tokenizer.normalization", tokenizer.normalization, NORMALIZATIONS)
    corpora = corpora_of(config.data)
    for corpus in corpora:
        with naming(corpus):
            _check_source(corpus.data, config.task)
    if not corpora:
        _check_source(config.data, config.task)
    if config.task in SEARCHED:
        pair_scores.check_scores(config.evaluate)


def _check_source(data: ConfigDict, task: str) -> None:
    """Raises UserError if the settings of one text have an unknown name, or a rule that cannot be.

    Each task reads other keys of them.
    """
    check_choice("config.data.source", data.source, TASK_SOURCES[task])
    if task == "language_model":
        check_choice("config.data.documents", data.documents, documents.DOCUMENTS)
    if task == "translation":
        rules.rules_of(data)


def _check_subset(config: ConfigDict) -> None:
    """Raises UserError if a subset is asked of a text that has none."""
    # Of several corpora, each has what it does not set from `config.data`, which is not a text.
    for data in texts_of(config.data):
        if data.train_subset and (config.task != "translation" or data.source != "files"):
            raise UserError(
                f"config.data.train_subset={data.train_subset} is for task=translation and "
                f"data.source=files, not for task={config.task} and data.source={data.source}: set "
                "config.data.train_subset=0"
            )


def _check_corpora(config: ConfigDict) -> None:
    """Raises UserError if a corpus of several has a number out of range, or another fault."""
    corpora = corpora_of(config.data)
    if corpora and config.task != "translation":
        raise UserError(
            f"config.data.corpora is for config.task=translation, not {config.task}: leave it out"
        )
    flat = [(corpus.name, flatten(ConfigDict({"data": corpus.data}))) for corpus in corpora]
    for name, values in flat:
        for key in filter(KEYS.__contains__, values):
            _check_value(key, values[key], f" of the corpus {name}")


def _check_passes(model: ConfigDict, train: ConfigDict) -> None:
    """Raises UserError if the passes that a term of the loss compares are to be equal."""
    network = BagOfEmbeddings if model.architecture == BAG else build.REGISTRY[model.architecture]
    differ = any(model[f"dropout_{name}"] for name in network.row_dropouts)
    for key, (_, passes) in losses.TERMS.items():
        if passes > 1 and train[key] and not differ:
            raise UserError(
                f"config.train.{key}={train[key]} compares two passes with different dropout, and "
                f"there is none: set config.model.dropout_embedding, or config.train.{key}=0"
            )


def check_start(config: ConfigDict) -> None:
    """Checks the keys that only a training reads, for modes that train.

    A run that has been trained is used without the name of the run that it started from.
    """
    asks = config.task == pictures.TASKS[pictures.ANSWERS]
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


def check_model(config: ConfigDict) -> None:
    """Checks that a config describes a valid model, as far as possible without text."""
    model, packed = config.model, config.task == "language_model"
    if model.architecture == "transformer" and model.attention_implementation == "flash":
        flash.check_training(packed, model.dropout_attention)
    if config.task == "classification":
        make_network(config, config.tokenizer.vocab_size, 2)
    elif model.patch_size:
        make_picture_network(config, config.tokenizer.vocab_size, 2)
    else:
        build.check_names(model_config(config))


def model_config(config: ConfigDict) -> ModelConfig:
    """Returns the model's config, with vocabularies of the configured size."""
    fields = model_fields(config)
    if config.task == "language_model":
        fields["num_encoder_layers"] = 0
    size = config.tokenizer.vocab_size
    return ModelConfig(source_vocab_size=size, target_vocab_size=size, **fields)
