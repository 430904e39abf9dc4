"""Classification: labelled texts, an encoder, and how often it names their class."""

import copy
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from transformer.analysis.head_probe import HeadProbe, Probe, divide
from transformer.data import held_out
from transformer.data.labelled.batches import (
    NO_LABEL,
    EncodedTexts,
    LabelledBatch,
    LabelledPlan,
    encode_labelled,
    make_labelled_batch,
    prepare_labelled,
)
from transformer.data.labelled.sources import open_labelled
from transformer.data.labels import Labelled
from transformer.data.tokenizer import PAD, Tokenizer, load_tokenizer, save_tokenizer
from transformer.errors import RunError, UserError
from transformer.inference.classifier import TextClassifier
from transformer.losses import TokenSums, class_cross_entropy
from transformer.metrics.classification import class_scores
from transformer.model.build import check_names
from transformer.model.classifier import BAG, BagOfEmbeddings, Classifier
from transformer.model.config import ModelConfig
from transformer.storage.files import write_json
from transformer.storage.reading import Each, read_json
from transformer.tasks.numbers import hparams_of, model_fields, rates_of, text_of

TOKENIZER, LABELS = "tokenizer.model", "labels.json"
CLASS_WEIGHTS_FILE = "class_weights.json"
CLASS_WEIGHTS = ("none", "balanced")
SMALLEST = np.finfo(np.float32).tiny  # stands for what float32 rounds to zero, as in class_scores


class ClassificationTask:
    """Trains and scores a classifier; see `tasks.base.Task` for the rest of it.

    What others count in tokens is here counted in texts.

    Args:
      config: the whole experiment.
      warn: called with a line for what the user should know.
      like: another task, whose text is used where the config says the same of it.
      folder: of the run, whose tokenizer is used if it is of the same text.
    """

    unit = "texts"
    columns = ("accuracy", "macro_f1", "nll", "ece")

    def __init__(
        self,
        config: Any,
        warn: Callable[[str], None] = print,
        like: "ClassificationTask | None" = None,
        folder: Path | None = None,
    ):
        self.config, self.d_model = config, config.model.d_model
        if like is not None and text_of(like.config) == text_of(config):
            self._source, self._held_out = like._source, like._held_out
            self._texts, self._encoded = like._texts, like._encoded
            self._tokenizer, self._labels = like._tokenizer, like._labels
        else:
            self._source = open_labelled(config.data)
            self._labels = labels = self._source.labels
            self._held_out = {s: list(self._source.splits[s]) for s in ("validation", "test")}
            self._check_splits()
            text, saved = self._source.splits["train"], folder and folder / TOKENIZER
            self._texts, self._tokenizer = prepare_labelled(
                text, labels, config.data, config.tokenizer, saved, warn
            )
            self._encoded = self._encode()
        self.splits = tuple(self._held_out)
        self.predictor = make_classifier(config, self._tokenizer, self._labels, warn)
        self.plan = self._make_plan()
        self._class_weights = self._weigh_classes()

    @classmethod
    def from_folder(
        cls, folder: Path, config: Any, warn: Callable[[str], None] = print
    ) -> "ClassificationTask":
        task = cls.__new__(cls)
        task.config, task.d_model = config, config.model.d_model
        task.predictor = cls.load(folder, config, warn)
        task._tokenizer, task._labels = task.predictor.tokenizer, task.predictor.labels
        task.splits = ("validation", "test")
        task._held_out = {
            split: held_out.read_labelled(folder, split, task._labels) for split in task.splits
        }
        task._encoded = task._encode()
        task._class_weights = load_class_weights(folder / CLASS_WEIGHTS_FILE, task._labels)
        return task

    @staticmethod
    def load(folder: Path, config: Any, warn: Callable[[str], None]) -> TextClassifier:
        tokenizer = load_tokenizer(folder / TOKENIZER)
        return make_classifier(config, tokenizer, load_labels(folder / LABELS), warn)

    def with_config(self, config: Any) -> "ClassificationTask":
        task = copy.copy(self)
        task.config = config
        task.plan = task._make_plan()
        return task

    def _make_plan(self) -> LabelledPlan:
        data = self.config.data
        return LabelledPlan(
            self._texts,
            self.config.seed,
            data.batch_tokens,
            data.num_buckets,
            data.batch_multiple,
            data.batch_sentences,
        )

    def _check_splits(self) -> None:
        for split, items in self._held_out.items():
            if not items:
                raise UserError(
                    f"the {split} set is empty: set --config.data.{split}_size to 1 or more, or "
                    f"name a file in --config.data.{split}_source"
                )

    def _encode(self) -> dict[str, EncodedTexts]:
        """The held-out texts as tokens."""
        limit = self.config.data.max_tokens
        return {
            split: encode_labelled(items, self._labels, self._tokenizer, limit)
            for split, items in self._held_out.items()
        }

    def _weigh_classes(self) -> Float[np.ndarray, "C"]:
        """The weight of each class in the loss; over the training texts their mean is one."""
        counts = np.bincount(self._texts.labels, minlength=len(self._labels))
        if self.config.train.class_weights == "none":
            return np.ones(len(counts), np.float32)
        return (counts.sum() / (len(counts) * counts)).astype(np.float32)

    def init_params(self, key: jax.Array) -> Any:
        return jax.jit(self.predictor.init_params)(key)

    def hparams(self) -> dict[str, float]:
        return hparams_of(self.config)

    def loss(self, params: Any, batch: LabelledBatch, hparams: dict, key: jax.Array) -> TokenSums:
        variables = {"params": params}
        scores = self.predictor.classify(variables, batch.tokens, rates_of(hparams), key)
        weights = jnp.asarray(self._class_weights)
        # Rows that fill up the devices hold zeros, and zero is a class.
        labels = jnp.where(batch.tokens[:, 0] == PAD, NO_LABEL, batch.labels)
        return class_cross_entropy(scores.logits, labels, weights, hparams["label_smoothing"])

    def evaluate(self, params: Any, split: str, final: bool) -> dict[str, Any]:
        """Returns the scores of all texts of a split, see `class_scores.class_scores`.

        `loss` is nll with the weights of the classes, and `accuracy_<kind>` the accuracy of the
        texts of a kind, where the data has such.
        """
        variables = {"params": params}
        probabilities = self.predictor.probabilities(variables, self._tokens(split))
        scores = self._scores(split, probabilities, final)
        if not final:
            return scores
        lines = self._prediction_lines(split, probabilities)
        return {**scores, "texts": {f"predictions/{split}.tsv": lines}}

    def probe(self, params: Any) -> Probe:
        return self._head_probe({"params": params})

    @functools.cached_property
    def _head_probe(self) -> HeadProbe:
        """Of texts spread over the validation set."""
        settings, data, model = self.config.evaluate, self.config.data, self.config.model
        texts = self._tokens("validation")
        texts = texts[:: max(1, len(texts) // max(1, settings.probe_statistics))]
        texts = texts[: settings.probe_statistics]
        lengths, maps = list(map(len, texts)), model.num_heads * model.num_encoder_layers
        parts = divide(lengths, data.max_tokens, settings.probe_sentences, maps, data.batch_tokens)
        batches = [
            make_labelled_batch(
                [texts[i] for i in rows], [NO_LABEL] * len(rows), parts.rows, parts.length
            ).tokens
            for rows in parts.texts
        ]
        kept = [i for rows in parts.texts for i in rows][: settings.probe_sentences]
        tokens = [(self._tokenizer.pieces(texts[i]), []) for i in kept]
        return HeadProbe(self.predictor.batch_attention, batches, tokens)

    def evaluate_runs(self, params: Any, split: str) -> list[dict[str, Any]]:
        variables = {"params": params}
        found = self.predictor.probabilities(variables, self._tokens(split), stacked=True)
        return [self._scores(split, probabilities, False) for probabilities in found]

    def held_out_batches(self, split: str) -> Iterator[LabelledBatch]:
        encoded = self._tokens(split), self._encoded[split].labels.tolist()
        return (batch for _, batch in self.predictor.batches(*encoded))

    def held_out_sums(self, variables: Any, batch: LabelledBatch) -> TokenSums:
        scores = self.predictor.classify(variables, batch.tokens)
        weights = jnp.ones(len(self._labels))
        return class_cross_entropy(scores.logits, jnp.asarray(batch.labels), weights, 0.0)

    def _tokens(self, split: str) -> list[Int[np.ndarray, "length"]]:
        store = self._encoded[split].store
        return [store[i] for i in range(len(store))]

    def _scores(
        self, split: str, probabilities: Float[np.ndarray, "N C"], final: bool
    ) -> dict[str, Any]:
        truth, labels = self._encoded[split].labels, self._labels
        bootstrap = self.config.evaluate.bootstrap if final else 0
        scores = class_scores(truth, probabilities, labels, bootstrap)
        del scores["texts"]  # their number stands in the signature
        likelihoods = np.maximum(probabilities[np.arange(len(truth)), truth], SMALLEST)
        right = probabilities.argmax(axis=1) == truth
        kinds = np.array([item.kind.replace(" ", "_") for item in self._held_out[split]])
        of_kinds = {
            f"accuracy_{kind}": float(right[kinds == kind].mean())
            for kind in sorted(set(kinds.tolist()) - {""})
        }
        cut = self.config.data.max_tokens
        return {
            **scores,
            "loss": float(-(self._class_weights[truth] * np.log(likelihoods)).mean()),
            **of_kinds,
            "accuracy_signature": f"classes:{len(labels)}|texts:{len(truth)}|max_tokens:{cut}",
        }

    def _prediction_lines(self, split: str, probabilities: Float[np.ndarray, "N C"]) -> list[str]:
        """The lines of true label, predicted label, its probability and text, between tabs."""
        labels = self._labels
        return [
            "\t".join(
                " ".join(re.split(r"[\t\r\n]+", cell))
                for cell in (item.label, labels[own.argmax()], f"{own.max():.6f}", item.text)
            )
            for item, own in zip(self._held_out[split], probabilities, strict=True)
        ]

    def examples(self, split: str, count: int) -> list[Labelled]:
        """Returns `count` texts of a split, always the same, for people to look at."""
        items = self._held_out[split]
        drawn = np.random.default_rng(0).permutation(len(items))[:count]
        return [items[i] for i in sorted(drawn)]

    def save_assets(self, workdir: Path) -> None:
        save_tokenizer(workdir / TOKENIZER, self._tokenizer)
        save_labels(workdir / LABELS, self._labels)
        weights = dict(zip(self._labels, self._class_weights.tolist(), strict=True))
        write_json(workdir / CLASS_WEIGHTS_FILE, weights)
        held_out.save(workdir, self._held_out)

    def fingerprint(self) -> str:
        return self.predictor.fingerprint()

    def describe(self) -> list[str]:
        plan, texts = self.plan, self._texts
        shapes = ", ".join(f"{b.rows}x{b.length}" for b in plan.buckets)
        cut = {"train": texts.cut, **{split: own.cut for split, own in self._encoded.items()}}
        limit = self.config.data.max_tokens
        lines = [
            *self._source.describe(),
            f"{texts.unknown_share:.3%} unknown tokens; vocabulary {self._tokenizer.vocab_size}",
            *texts.lost.describe(),
            f"{plan.epoch_length} batches an epoch, {plan.padding_share:.1%} padding, "
            f"shapes {shapes}",
        ]
        if any(cut.values()):
            counts = ", ".join(f"{count:,} of {split}" for split, count in cut.items())
            lines.append(f"cut to the first {limit} tokens: {counts} texts")
        return lines + [f"  {own['class']}: {own['tokens']}" for own in self._preview()]

    def data_summary(self) -> dict[str, Any]:
        plan, encoded = self.plan, {"train": self._texts, **self._encoded}
        splits = {
            split: {
                "texts": sum(sizes.values()),
                **{f"of class {label}": sizes[label] for label in self._labels},
                f"cut to {self.config.data.max_tokens} tokens": encoded[split].cut,
            }
            for split, sizes in self._source.sizes.items()
        }
        return {
            "splits": splits,
            "broken_lines": dict(self._source.broken),
            "unknown_share": self._texts.unknown_share,
            "vocabulary": {"all": self._tokenizer.vocab_size},
            "batches_per_epoch": plan.epoch_length,
            "padding_share": plan.padding_share,
            "shapes": [[bucket.rows, bucket.length] for bucket in plan.buckets],
            "preview": self._preview(),
        }

    def _preview(self) -> list[dict[str, str]]:
        """The first training texts as the model reads them, the start of each."""
        texts = self._texts
        return [
            {
                "class": self._labels[texts.labels[i]],
                "tokens": " ".join(self._tokenizer.pieces(texts.store[i][1:25])),
            }
            for i in range(min(3, len(texts.store)))
        ]


def make_network(config: Any, vocab_size: int, num_classes: int) -> nn.Module:
    """Returns the network of a config: an encoder alone and what pools it, or a bag.

    Raises:
      UserError: the config describes no model.
    """
    model = config.model
    if model.kind == BAG:
        return BagOfEmbeddings(
            vocab_size, num_classes, model.bag_width, model.bag_hidden, model.bag_bigrams
        )
    fields = model_fields(config)
    sizes = {"source_vocab_size": vocab_size, "target_vocab_size": vocab_size}
    model_config = ModelConfig(**{**fields, **sizes, "num_decoder_layers": 0})
    check_names(model_config)
    network = Classifier(model_config, num_classes, model.pooling)
    limit, tokens = network.max_positions, config.data.max_tokens
    if limit is not None and tokens > limit:
        raise RunError(
            f"data.max_tokens={tokens} is more than the model.max_length={limit} positions that "
            f"are learned: set --config.model.max_length={tokens}"
        )
    return network


def make_classifier(
    config: Any, tokenizer: Tokenizer, labels: Sequence[str], warn: Callable[[str], None]
) -> TextClassifier:
    """Returns the classifier of a config, its tokenizer and the names of its classes.

    Raises:
      UserError: the config describes no model, or it cannot read the longest texts.
    """
    network = make_network(config, tokenizer.vocab_size, len(labels))
    settings = config.data.max_tokens, config.decode.batch_size
    return TextClassifier(network, tokenizer, labels, *settings, warn)


def save_labels(path: Path, labels: Sequence[str]) -> None:
    """Writes the names of the classes, in the order of their numbers."""
    write_json(path, labels)


def load_labels(path: Path) -> tuple[str, ...]:
    """Returns the names of the classes that `save_labels` wrote.

    Raises:
      UserError: the file is missing or damaged.
    """
    labels = read_json(path, [str], "put back the file that was written with the checkpoints")
    if len(set(labels)) < max(2, len(labels)):
        raise UserError(f"{path} does not list two classes or more by name: put back the original")
    return tuple(labels)


def load_class_weights(path: Path, labels: Sequence[str]) -> Float[np.ndarray, "C"]:
    """Returns the weight of each class in the loss that a run was trained with.

    Raises:
      UserError: the file is missing or damaged, or of other classes.
    """
    remedy = "put back the file that was written with the checkpoints"
    weights = read_json(path, Each(float), remedy)
    if tuple(weights) != tuple(labels):
        raise UserError(f"{path} is not of the classes of {LABELS}: {remedy}")
    return np.array(list(weights.values()), np.float32)
