"""The task interface that the training loop uses, and code that all tasks share."""

import abc
import copy
import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Array
from ml_collections import ConfigDict

from transformer.analysis.snapshots import HeadSnapshots, Snapshot
from transformer.data.buckets import Plan
from transformer.errors import RunError, UserError
from transformer.inference.base import Params, Predictor, TokenPredictor, Variables, labels_of
from transformer.metrics.tokens import loss_intervals
from transformer.model.build import REGISTRY, check_names
from transformer.model.classifier import BAG
from transformer.model.config import ModelConfig
from transformer.model.layers import DropoutRates
from transformer.model.losses import TERMS, TokenSums, cross_entropy, guided_alignment, repeat_rows

PAIRS, DOCUMENTS, LABELLED, PICTURES = "pairs", "documents", "labelled texts", "pictures"


class Task(abc.ABC):
    """A task defines the data, the model and the metrics of an experiment.

    A subclass reads its data into `text`, builds batches and a predictor from it, and evaluates the
    predictor.

    Args:
      config: the experiment's config.
      like: another task, whose `text` is reused if both configs specify the same data.
      folder: the run's folder, whose tokenizers are reused if trained on the same corpus.

    Attributes:
      text: the training data and the held-out data; after `from_folder`, only held-out data.
      plan: all training batches, indexed by batch number.
    """

    # Properties of a task, so that other code does not depend on the task's name.
    reads: ClassVar[str]  # PAIRS, DOCUMENTS, LABELLED or PICTURES
    label_type: ClassVar[str] = ""  # type of image labels
    sources: ClassVar[Collection[str]]  # allowed values of `data.source`
    unit: ClassVar[str]  # losses are averaged over these units; throughput counts them
    noun: ClassVar[str]  # noun for an example of the test set
    metrics: ClassVar[str]  # key in `metrics.registry.REGISTRY`
    operations: ClassVar[tuple[str, ...]]  # methods of `LoadedRun`; the main one comes first
    is_translated: ClassVar[bool] = False  # whether beam search generates a target for each source
    model_noun: ClassVar[str]
    invitation: ClassVar[str]  # heading of a web page with an input field

    text: Any
    predictor: Predictor
    plan: Plan

    def __init__(self, config: ConfigDict, like: "Task | None" = None, folder: Path | None = None):
        self.config = config
        if like is not None and text_of(like.config) == text_of(config):
            self.text = like.text
        else:
            self.text = self.read_text(folder)
        self.predictor = self.make_predictor()
        self.plan = self.make_plan()

    @classmethod
    def from_folder(cls, folder: Path, config: ConfigDict, given: Any = None) -> "Task":
        """Restores the task of a run from its folder, for evaluation but not for training.

        Only the tokenizers and the held-out data are read from the folder. No data source is
        opened, and `plan`, `describe` and `data_summary` are not available.

        Args:
          given: data to evaluate instead of the held-out data. It becomes the only split, "test";
            see `make_given_text`.
        """
        task = cls.without_text(config)
        task.predictor = task.load(folder)
        is_kept = given is None
        task.text = task.read_kept_text(folder) if is_kept else task.make_given_text(folder, given)
        return task

    @classmethod
    def without_text(cls, config: ConfigDict) -> "Task":
        """Returns a task without data and predictor, for `load` and `check_model`."""
        task = cls.__new__(cls)
        task.config = config
        return task

    def with_config(self, config: ConfigDict) -> "Task":
        """Returns the task with different hyperparameters; both tasks share compiled programs."""
        task = copy.copy(self)
        task.config = config
        task.plan = task.make_plan()
        return task

    # -- data and model

    def check_model(self) -> None:
        """Checks that the model config is valid, as far as possible without the data."""
        size, fields = self.config.tokenizer.vocab_size, model_fields(self.config.model)
        if self.reads == DOCUMENTS:  # language models are decoder-only
            fields["num_encoder_layers"] = 0
        check_names(ModelConfig(size, size, **fields))

    def text_settings(self, folder: Path | None) -> tuple[Any, ...]:
        """Returns the settings, run folder and initial folder for `data.encode.make_tokenizer`."""
        return self.config.data, self.config.tokenizer, folder, initial_folder(self.config)

    @abc.abstractmethod
    def read_text(self, folder: Path | None) -> Any:
        """Returns the dataset for `text` (see `Task`), read from the data sources in the config."""

    @abc.abstractmethod
    def read_kept_text(self, folder: Path) -> Any:
        """Returns a dataset for `text` with the held-out data that is stored in a run's folder."""

    @abc.abstractmethod
    def make_given_text(self, folder: Path, given: Any) -> Any:
        """Returns a dataset for `text` whose only split, "test", holds the given data."""

    @abc.abstractmethod
    def make_predictor(self) -> Predictor:
        """Returns the model for `text`, without parameters."""

    @abc.abstractmethod
    def make_plan(self) -> Plan:
        """Returns all training batches."""

    @abc.abstractmethod
    def load(self, folder: Path) -> Predictor:
        """Loads a run's model without the parameters, which are stored separately."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the final evaluation; "validation" comes first."""
        return tuple(self.text.held_out)

    @abc.abstractmethod
    def save_assets(self, workdir: Path) -> None:
        """Writes all files except checkpoints that a trained model needs, such as tokenizers."""

    def fingerprint(self) -> str:
        """Returns the digest of the tokenizers and class names, which a checkpoint must match."""
        return self.predictor.fingerprint()

    def text_digest(self) -> str:
        """Returns a digest of the encoded training data, or '' if there is none."""
        return self.text.train.arrays_digest

    @property
    def train_tokens(self) -> dict[str, int]:
        """The number of training tokens on each side, without begin and end tokens."""
        return {"text": len(self.text.train.store.tokens)}

    def notes(self) -> list[str]:
        """Returns log lines about the data, such as warnings, that are not in `data_summary`."""
        return []

    def describe(self, summary: Mapping[str, Any]) -> list[str]:
        """Returns the lines that describe the data and are printed before training.

        Args:
          summary: the result of `data_summary`.
        """
        lines = self.notes()
        for split, counts in summary["splits"].items():
            sizes = (f"{count:,} {unit}" for unit, count in counts.items() if count)
            lines.append(f"{split}: {', '.join(sizes)}")
        for name, size in summary["vocabulary"].items():
            lines.append(f"vocabulary, {name}: {size:,} pieces")
        shapes = ", ".join(f"{rows}x{length}" for rows, length in summary["shapes"])
        lines += [
            f"{summary['oov_rate']:.3%} unknown tokens",
            f"{summary['batches_per_epoch']:,} batches per epoch, shapes {shapes}, "
            f"{summary.get('padding_fraction', 0.0):.1%} padding",
        ]
        for example in summary.get("preview", ()):
            lines += [f"  {name}: {tokens}" for name, tokens in example.items()]
        return lines

    @abc.abstractmethod
    def data_summary(self) -> dict[str, Any]:
        """Returns statistics of the data and its batches as JSON data.

        The keys are `splits` {name: {unit: number}}; `oov_rate` of the training tokens;
        `vocabulary` {side or "all": size}; `batches_per_epoch`; `shapes`, the batch shapes
        [[rows, tokens], ...]; and for some tasks `cleaning` {"read", "kept", "dropped": {reason:
        number}}, `corpora` {name: `cleaning` of this corpus, and "drawn", pairs sampled per epoch},
        `padding_fraction`, and `preview`, some training examples as [{side: tokens}, ...].
        """

    # -- training

    @property
    def d_model(self) -> int:
        """The embedding dimension, which the Noam learning rate schedule uses."""
        return self.config.model.d_model

    def draw_params(self, key: Array) -> Params:
        """Returns newly initialised float32 parameters; cannot be used under `jax.jit`."""
        return self.predictor.draw_params(key)

    def hparams(self) -> dict[str, float]:
        """Returns the hyperparameters that are arguments of the compiled training step.

        Zeros are omitted, except for label smoothing, so that no operations are compiled for them.
        """
        model, train = self.config.model, self.config.train
        rates = {f"dropout_{name}": model[f"dropout_{name}"] for name in DropoutRates._fields}
        optional = rates | {name: train[name] for name in (*TERMS, "guided_alignment")}
        used = {name: value for name, value in optional.items() if value}
        return {"label_smoothing": train.label_smoothing, **used}

    @abc.abstractmethod
    def loss(self, params: Params, batch: Any, hparams: dict, key: Array) -> TokenSums:
        """Returns the training loss of a batch, with dropout, as sums over the tokens."""

    # -- scores

    @abc.abstractmethod
    def evaluate(self, params: Params, split: str, final: bool) -> dict[str, Any]:
        """Returns the scores of a split; computing `final` scores may take longer.

        Final scores also include `texts` {file in the run's folder: lines}, `counts` {metric:
        statistics of each text, the sums of which determine the score}, and, if subsets of the
        split are scored, `parts` {name: final scores}.
        """

    @abc.abstractmethod
    def evaluate_runs(self, params: Params, split: str) -> list[dict[str, Any]]:
        """Returns the non-final scores of several runs, given their stacked parameters."""

    @abc.abstractmethod
    def held_out_batches(self, split: str) -> Iterator[Any]:
        """Yields all batches of a split, which have a small number of static shapes.

        The first axis of each leaf is the batch axis; the examples are independent of each other.
        """

    @abc.abstractmethod
    def held_out_sums(self, variables: Variables, batch: Any) -> TokenSums:
        """Returns the loss of a batch without dropout, label smoothing or class weights."""

    def snapshot(self, params: Params) -> Snapshot:
        """Returns an attention snapshot for `evaluate.snapshot_statistics` validation texts."""
        return self.head_snapshot({"params": params})

    @functools.cached_property
    @abc.abstractmethod
    def head_snapshot(self) -> HeadSnapshots:
        """A function that computes attention snapshots of texts spread over the validation set."""


class TokenTask(Task):
    """A task with a `TokenPredictor`; the loss is averaged over tokens."""

    predictor: TokenPredictor

    def loss(self, params: Params, batch: Any, hparams: dict, key: Array) -> TokenSums:
        smoothing, terms = hparams["label_smoothing"], terms_of(hparams)
        batch = repeat_rows(batch, terms)
        inputs = self.predictor.inputs(batch, rates_of(hparams))
        guided, train = hparams.get("guided_alignment"), self.config.train
        options: Any = {"method": "factors", "rngs": {"dropout": key}}
        options["mutable"] = [] if guided is None else ["intermediates"]
        output: Any = self.predictor.model.apply({"params": params}, *inputs, **options)
        (features, table), sown = output
        sums = cross_entropy(features, table, *labels_of(batch), smoothing, terms)
        if guided is None:
            return sums
        layers = self.predictor.model.sown_attention(sown["intermediates"], "weights")["cross"]
        heads = layers[train.guided_layer - 1]  # of the last layer if the number is 0
        weights = heads[:, train.guided_head - 1] if train.guided_head else heads.mean(axis=1)
        added = guided * guided_alignment(weights, batch.links, terms)
        return sums._replace(loss=sums.loss + added)

    def held_out_sums(self, variables: Variables, batch: Any) -> TokenSums:
        return self.predictor.token_sums(variables, batch)

    def split_sums(self, variables: Variables, split: str, stacked: bool) -> list[list[TokenSums]]:
        """Returns each run's loss on each batch of a split, without label smoothing."""
        run = self.predictor.stacked_sums if stacked else self.predictor.sums
        sums = jax.device_get([run(variables, batch) for batch in self.held_out_batches(split)])
        if not stacked:
            return [sums]
        return list(map(list, zip(*(map(TokenSums, *batch) for batch in sums), strict=True)))

    def with_intervals(
        self, scores: dict[str, Any], variables: Variables, split: str
    ) -> dict[str, Any]:
        """Returns the scores of a split, with confidence intervals from `loss_intervals`."""
        batches = self.held_out_batches(split)
        nll, tokens = map(
            np.concatenate, zip(*self.predictor.row_sums(variables, batches), strict=True)
        )
        filled, resamples = tokens > 0, self.config.evaluate.bootstrap
        texts = self.texts_of_rows(split)
        scores = scores | loss_intervals(nll[filled], tokens[filled], resamples, texts)
        if "nll_ci" in scores:  # bits per byte are proportional to nll
            scores["bits_per_byte_ci"] = scores["bits_per_byte"] * scores["nll_ci"] / scores["nll"]
        return scores

    def texts_of_rows(self, split: str) -> list[int] | None:
        """Returns the text number of each held-out row, or None to resample rows separately."""
        return None


# -- parts of a config


def rates_of(hparams: dict[str, Any]) -> DropoutRates:
    """Returns the dropout rates from the hyperparameters of a training step."""
    return DropoutRates(*(hparams.get(f"dropout_{name}", 0.0) for name in DropoutRates._fields))


def terms_of(hparams: dict[str, Any]) -> dict[str, Any]:
    """Returns the weights of the auxiliary losses from the hyperparameters of a training step."""
    return {name: hparams[name] for name in TERMS if name in hparams}


def text_of(config: ConfigDict) -> dict[str, Any]:
    """Returns the config settings that determine the data."""
    tokenizer = {**config.tokenizer.to_dict(), "initial_folder": initial_folder(config)}
    model, start = config.model, config.train.init_from  # it affects which pairs are held out
    look = model.patch_size, model.picture_size, model.picture_channels
    data = config.data.to_dict()
    text = {"data": data, "look": look, "tokenizer": tokenizer, "init_from": start}
    return text | {"links": needs_links(config.train, config.data)}


def needs_links(train: ConfigDict, data: ConfigDict) -> bool:
    """Returns whether the training needs the word links of the training pairs."""
    return train.guided_alignment > 0 or data.augment_glossary > 0


def refuse_empty(
    splits: Mapping[str, Iterable[Any]], fix: str = ", or name a file in config.data.{}_source"
) -> None:
    """Raises UserError if a split is empty; `fix` is appended to the message."""
    for split in (split for split, items in splits.items() if not items):
        raise UserError(
            f"the {split} set is empty: set config.data.{split}_size to 1 or more"
            + fix.format(split)
        )


def check_positions(what: str, count: int, limit: int | None) -> None:
    """Raises RunError if inputs, described by `what`, need more positions than the model has."""
    if limit is not None and count > limit:
        raise RunError(
            f"{what} needs {count} positions, more than model.max_length={limit}: set "
            f"config.model.max_length={count}"
        )


def plan_sizes(data: ConfigDict) -> tuple[int, int, int, int]:
    """Returns the arguments of `BucketPlan` that follow the random seed."""
    return data.batch_tokens, data.num_buckets, data.batch_multiple, data.batch_sentences


def plan_summary(plan: Any) -> dict[str, Any]:
    """Returns the batch statistics of a `BucketPlan` for `Task.data_summary`."""
    return {
        "batches_per_epoch": plan.epoch_length,
        "padding_fraction": plan.padding_fraction,
        "shapes": [[bucket.rows, bucket.length] for bucket in plan.buckets],
    }


def initial_folder(config: ConfigDict) -> Path | None:
    """Returns the folder of the run that provides the initial tokenizers, or None."""
    folder = config.train.init_from
    return Path(folder).expanduser() if folder and config.tokenizer.initial != "new" else None


def model_fields(settings: ConfigDict) -> dict[str, Any]:
    """Returns the fields of a `ModelConfig` that are set in `config.model`."""
    if settings.architecture == BAG and not settings.patch_size:
        raise UserError(
            f"config.model.architecture={BAG} is for config.task=classification: choose one of "
            f"{', '.join(REGISTRY)}"
        )
    names = {field.name for field in dataclasses.fields(ModelConfig)}
    return {name: value for name, value in settings.items() if name in names}
