"""Checks the values of a config before training."""

import math
from collections.abc import Iterable

from ml_collections import ConfigDict

from transformer.data.cleaning import rules
from transformer.data.corpora import corpora_of, naming, texts_of
from transformer.data.documents import sources as documents
from transformer.data.files.catalogue import CATALOGUE
from transformer.data.held_out import STRATEGIES
from transformer.data.labelled import sources as labelled
from transformer.data.parallel import sources as parallel
from transformer.data.parallel.modifiers import AUGMENTED, check_augmentation
from transformer.data.pictures import sources as pictures
from transformer.data.tokenizer import TOKENIZER_KINDS, check_models, check_symbols
from transformer.data.tokenizer.draws import check_sampling
from transformer.data.tokenizer.train import INITIAL_TOKENIZERS, NORMALIZATIONS
from transformer.decoding.search import PENALTIES
from transformer.errors import UserError, shorten
from transformer.keys import flatten
from transformer.mesh import mesh_sizes
from transformer.metrics.registry import metrics_of
from transformer.model import build, flash
from transformer.model.classifier import BAG, POOLINGS, BagOfEmbeddings
from transformer.model.config import MAX_NUMBER, ModelConfig, check_choice, check_range
from transformer.model.config import RANGES as MODEL_RANGES
from transformer.model.vision.augment import CHANGES, OF_ANSWERS
from transformer.optim.parameters import EVERYTHING, check_pattern, rules_of
from transformer.optim.schedules import SCHEDULES
from transformer.tasks import REGISTRY, pair_scores
from transformer.tasks.base import model_fields
from transformer.tasks.classification import CLASS_WEIGHTS, make_network
from transformer.tasks.pictures import make_picture_network

NEARLY_ONE = 0.999_999
# Of sacremoses, which takes English for any other; importing it takes a quarter of a second.
MOSES_LANGUAGES = (
    "as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk "
    "sl sv ta tdt te yue zh"
)
# (smallest, largest, keys): every number of configs/base.py except those in lists and those of a
# ModelConfig, which stand there.
RANGES: tuple[tuple[float, float, str], ...] = (
    (
        1,
        MAX_NUMBER,
        "model.bag_of_embeddings_hidden "
        "data.max_characters data.batch_tokens data.num_buckets decode.max_new_tokens "
        "data.batch_multiple tokenizer.max_sentences "
        "optimizer.gradient_accumulation_steps train.steps train.log_every train.keep_last "
        "train.max_nonfinite_steps train.deadline evaluate.average_last_n evaluate.max_sentences "
        "sweep.trials sweep.max_vmapped_runs",
    ),
    (1, 65_536, "decode.batch_size"),
    (1, 10_000, "decode.beam_size decode.num_best evaluate.training_beam_size"),
    (
        0,
        MAX_NUMBER,
        "seed model.bigram_buckets data.length_generalization_size "
        "sweep.seed sweep.baseline "
        "data.seed data.prefetch data.train_size data.validation_size data.test_size "
        "data.train_subset data.batch_sentences data.max_token_ratio decode.seed decode.top_k "
        "optimizer.weight_decay optimizer.clip_norm optimizer.learning_rate "
        "optimizer.warmup_steps train.epochs train.minutes train.evaluate_every train.patience "
        "train.save_minutes train.r_drop train.mixup "
        "decode.max_ratio decode.max_extra evaluate.bootstrap evaluate.snapshot_statistics "
        "evaluate.snapshot_sentences evaluate.perturbed_sentences",
    ),
    (
        0,
        NEARLY_ONE,
        "model.dropout_embedding model.dropout_residual model.dropout_attention "
        "model.dropout_activation model.dropout_layer model.dropout_word "
        "optimizer.beta1 optimizer.beta2 "
        "optimizer.muon_momentum train.label_smoothing train.ema_decay data.validation_fraction "
        "data.test_fraction",
    ),
    (
        0,
        1,
        "data.max_oov_rate data.min_language_ratio data.min_script_fraction "
        "optimizer.decay_fraction tokenizer.bpe_dropout "
        + " ".join(f"data.augment_{name}" for name in AUGMENTED),
    ),
    # Adam divides a gradient that was always zero, of a token that no batch had, by epsilon alone.
    (1e-15, 1, "optimizer.epsilon"),
    (1e-6, 1, "decode.top_p"),
    (0, 100, "decode.temperature tokenizer.sampling_alpha"),
    (0.1, MAX_NUMBER, "data.temperature"),
    (0.98, 1, "tokenizer.character_coverage"),  # sentencepiece takes no other
    (1, math.inf, "data.max_length_ratio"),
    (2, MAX_NUMBER, "data.max_tokens data.context model.bag_of_embeddings_width"),
    (5, MAX_NUMBER, "tokenizer.vocab_size"),  # four are taken
    (-10, 10, "decode.alpha"),
    *(
        (smallest, largest, " ".join(f"model.{name}" for name in names.split()))
        for smallest, largest, names in MODEL_RANGES
    ),
)
# Names that are first used after the start of the training; others are checked where they are used.
CHOICES: dict[str, Iterable[str]] = {
    "task": REGISTRY,
    "model.architecture": (*build.REGISTRY, BAG),
    "model.pooling": POOLINGS,
    "data.holdout": STRATEGIES,
    "data.fetch": ("", *CATALOGUE),
    "optimizer.name": ("adam", "adamw", "lion", "muon", "adafactor"),
    "optimizer.schedule": SCHEDULES,
    "tokenizer.initial": INITIAL_TOKENIZERS,
    "train.class_weights": CLASS_WEIGHTS,
    "decode.length_penalty": PENALTIES,
    "decode.search": ("sample", "beam"),
    "decode.split_sentences": ("auto", "always", "never"),
    "evaluate.checkpoint": ("auto", "best", "last", "average"),
    "sweep.search": ("grid", "random", "tpe"),
    "sweep.parallel": ("auto", "sequential", "vmap"),
}
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
    flat = flatten(config)
    for smallest, largest, keys in RANGES:
        for key in keys.split():
            check_range(f"config.{key}", flat[key], smallest, largest)
    for key, choices in CHOICES.items():
        check_choice(f"config.{key}", flat[key], choices)
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
    _check_r_drop(config)
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
        for smallest, largest, keys in RANGES:
            for key in filter(values.__contains__, keys.split()):
                check_range(f"config.{key} of the corpus {name}", values[key], smallest, largest)
        for key in filter(values.__contains__, CHOICES):
            check_choice(f"config.{key} of the corpus {name}", values[key], CHOICES[key])


def _check_r_drop(config: ConfigDict) -> None:
    """Raises UserError if the two passes of R-Drop are to be equal."""
    model = config.model
    network = BagOfEmbeddings if model.architecture == BAG else build.REGISTRY[model.architecture]
    if config.train.r_drop and not any(model[f"dropout_{name}"] for name in network.row_dropouts):
        raise UserError(
            f"config.train.r_drop={config.train.r_drop} compares two passes with different "
            "dropout, and there is none: set config.model.dropout_embedding, or "
            "config.train.r_drop=0"
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
