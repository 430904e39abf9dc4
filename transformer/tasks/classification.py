"""Text classification with an encoder or a bag of embeddings."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8

from transformer.analysis.snapshots import HeadSnapshots, divide
from transformer.data import held_out
from transformer.data.encode import TOKENIZER
from transformer.data.labelled import (
    REGISTRY,
    LabelledBatch,
    LabelledPlan,
    encode_labelled,
    open_labelled,
    prepare_labelled,
)
from transformer.data.pairs import Labelled
from transformer.data.tokenizer import load_tokenizer, save_tokenizer
from transformer.errors import UserError
from transformer.files import Each, read_json, write_json
from transformer.inference.base import Params, Variables
from transformer.inference.classifier import ClassPredictor, TextClassifier
from transformer.metrics.classification import MIN_PROBABILITY, class_scores
from transformer.model.build import check_names
from transformer.model.classifier import BAG, BagOfEmbeddings, Classifier
from transformer.model.config import ModelConfig
from transformer.model.losses import TokenSums, class_cross_entropy, repeat_rows
from transformer.tasks.base import (
    LABELLED,
    Task,
    check_positions,
    model_fields,
    plan_sizes,
    plan_summary,
    rates_of,
    refuse_empty,
    terms_of,
)

LABELS, WEIGHTS = "labels.json", "class_weights.json"
RESTORE = "restore the file that was written with the checkpoints"
NO_PIXELS: Mapping[str, Any] = MappingProxyType({})
SCORED_SPLITS = ("validation", "test")


class LabelledText(NamedTuple):
    """Held-out texts or images with their labels, the encoded splits, and the tokenizer.

    If a run's folder is loaded, `train` is None, and `class_weights` are set. If not, `sizes` has
    the number of items per label, for each split.
    """

    tokenizer: Any  # Tokenizer; None for images without questions
    labels: tuple[str, ...]
    held_out: Mapping[str, Sequence[Any]]  # Labelled or LabelledPicture
    pixels: Mapping[str, UInt8[np.ndarray, "pictures S S C"]]
    encoded: Mapping[str, Any]  # EncodedTexts or EncodedPictures
    train: Any = None  # same types as `encoded`
    sizes: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    class_weights: Float[np.ndarray, "C"] | None = None


class ClassificationTask(Task):
    """Trains and evaluates a classifier; see `tasks.base.Task` for inherited members."""

    unit, noun = "texts", "text"
    model_noun, invitation = "classifier", "Type to classify"
    sources = REGISTRY
    metrics = "classes"
    operations = ("classify",)
    reads = LABELLED

    text: LabelledText
    predictor: ClassPredictor
    plan: LabelledPlan

    def check_model(self) -> None:
        self._make_network(self.config.tokenizer.vocab_size, 2)

    def read_text(self, folder: Path | None) -> LabelledText:
        source, settings = open_labelled(self.config.data), self.text_settings(folder)
        held = {split: list(source.splits[split]) for split in SCORED_SPLITS}
        refuse_empty(held)
        train, tokenizer = prepare_labelled(source.splits["train"], source.labels, *settings)
        return self._make_text(tokenizer, source.labels, held, train=train, sizes=source.sizes)

    def read_kept_text(self, folder: Path) -> LabelledText:
        labels = self.predictor.labels
        held = {split: held_out.read_labelled(folder, split, labels) for split in SCORED_SPLITS}
        return self._make_kept_text(folder, held)

    def make_given_text(self, folder: Path, given: Any) -> LabelledText:
        """Returns a dataset whose only split, "test", holds the given labelled texts."""
        return self._make_kept_text(folder, {"test": given})

    def _make_kept_text(self, folder: Path, *held: Mapping[str, Any]) -> LabelledText:
        tokenizer, labels = self.predictor.tokenizer, self.predictor.labels
        path = folder / WEIGHTS
        weights = read_json(path, Each(float), RESTORE)
        if tuple(weights) != tuple(labels):
            raise UserError(f"{path} is not of the classes of {LABELS}: {RESTORE}")
        class_weights = np.array(list(weights.values()), np.float32)
        return self._make_text(tokenizer, labels, *held, class_weights=class_weights)

    def _make_text(self, tokenizer, labels, held, pixels: Mapping[str, Any] = NO_PIXELS, **named):
        encoded = {s: self._encode(held[s], pixels.get(s), labels, tokenizer) for s in held}
        return LabelledText(tokenizer, labels, held, pixels, encoded, **named)

    def _encode(self, items, pixels, labels, tokenizer: Any) -> Any:
        """Returns the encoded items of a split, including their images if there are any."""
        return encode_labelled(items, labels, tokenizer, self.config.data.max_tokens)

    def make_predictor(self) -> ClassPredictor:
        return self.make_classifier(self.text.tokenizer, self.text.labels)

    def load(self, folder: Path) -> ClassPredictor:
        return self.make_classifier(load_tokenizer(folder / TOKENIZER), load_labels(folder))

    def make_classifier(self, tokenizer: Any, labels: Sequence[str]) -> Any:
        """Returns the configured classifier for a tokenizer and class names."""
        network = self._make_network(tokenizer.vocab_size, len(labels))
        settings = self.config.data.max_tokens, self.config.decode.batch_size
        return TextClassifier(network, tokenizer, labels, *settings)

    def _make_network(self, vocab_size: int, num_classes: int) -> Classifier | BagOfEmbeddings:
        """Returns the configured network: an encoder with pooling, or a bag of embeddings."""
        model = self.config.model
        if model.architecture == BAG:
            return BagOfEmbeddings(
                vocab_size,
                num_classes,
                model.bag_of_embeddings_width,
                model.bag_of_embeddings_hidden,
                model.bigram_buckets,
            )
        fields = {**model_fields(model), "num_decoder_layers": 0}
        model_config = ModelConfig(vocab_size, vocab_size, **fields)
        check_names(model_config)
        network = Classifier(model_config, num_classes, model.pooling)
        tokens = self.config.data.max_tokens
        check_positions(f"data.max_tokens={tokens}", tokens, network.max_positions)
        return network

    def make_plan(self) -> LabelledPlan:
        return LabelledPlan(self.text.train, self.config.seed, *plan_sizes(self.config.data))

    @functools.cached_property
    def class_weights(self) -> Float[np.ndarray, "C"]:
        """The loss weight of each class; the mean weight of the training texts is one."""
        if self.text.class_weights is not None:
            return self.text.class_weights
        counts = np.bincount(self.text.train.labels, minlength=len(self.text.labels))
        if self.config.train.class_weights == "none":
            return np.ones(len(counts), np.float32)
        return (counts.sum() / (len(counts) * counts)).astype(np.float32)

    @property
    def d_model(self) -> int:
        model = self.config.model
        bag = model.architecture == BAG
        return model.bag_of_embeddings_width if bag else model.d_model

    def loss(
        self, params: Params, batch: LabelledBatch, hparams: dict, key: jax.Array
    ) -> TokenSums:
        return self.score_loss(self.logits(params, batch, hparams, key), batch.labels, hparams)

    def logits(self, params: Params, batch: LabelledBatch, hparams: dict, key: jax.Array) -> Any:
        """Returns the class logits of a batch for all forward passes that the loss requires."""
        source = repeat_rows(batch.source, terms_of(hparams))
        return self.predictor.classify({"params": params}, source, rates_of(hparams), key).logits

    def score_loss(self, logits: jax.Array, labels: Any, hparams: dict) -> TokenSums:
        """Returns the training loss for the class logits and the labels of a batch."""
        weights, terms = jnp.asarray(self.class_weights), terms_of(hparams)
        labels = repeat_rows(jnp.asarray(labels), terms) - 1
        return class_cross_entropy(logits, labels, weights, hparams["label_smoothing"], terms)

    def evaluate(self, params: Params, split: str, final: bool) -> dict[str, Any]:
        """Returns the scores of a split; see `metrics.classification.class_scores`.

        `loss` is the class-weighted nll. If the data set has several kinds of texts,
        `accuracy_<kind>` is the accuracy for each kind.
        """
        variables = {"params": params}
        probabilities = self.predictor.probabilities(variables, self.items(split))
        scores = self._scores(split, probabilities, final)
        if not final:
            return scores
        right = probabilities.argmax(axis=1) == self.text.encoded[split].labels
        counts = {"accuracy": np.column_stack([right, np.ones(len(right), np.int64)])}
        lines = []  # true and predicted label, predicted probability, text
        for item, row in zip(self.text.held_out[split], probabilities, strict=True):
            cells = item.label, self.text.labels[row.argmax()], f"{row.max():.6f}", item.text
            lines.append("\t".join(" ".join(re.split(r"[\t\r\n]+", cell)) for cell in cells))
        return {**scores, "counts": counts, "texts": {f"predictions/{split}.tsv": lines}}

    @functools.cached_property
    def head_snapshot(self) -> HeadSnapshots:
        settings, data, model = self.config.evaluate, self.config.data, self.config.model
        texts = self.items("validation")
        texts = texts[:: max(1, len(texts) // max(1, settings.snapshot_statistics))]
        texts = texts[: settings.snapshot_statistics]
        predictor, before = self.predictor, self.predictor.before
        lengths = [before + len(predictor.tokens_of(text)) for text in texts]
        maps, longest = model.num_heads * model.num_encoder_layers, before + predictor.max_tokens
        parts = divide(lengths, longest, settings.snapshot_sentences, maps, data.batch_tokens)
        batches = [
            predictor.stack([texts[i] for i in rows], parts.rows, parts.length - before)
            for rows in parts.texts
        ]
        first = [i for rows in parts.texts for i in rows][: settings.snapshot_sentences]
        tokens = [(predictor.names(texts[i]), []) for i in first]
        return HeadSnapshots(predictor.batch_attention, batches, tokens)

    def evaluate_runs(self, params: Params, split: str) -> list[dict[str, Any]]:
        variables = {"params": params}
        runs = self.predictor.probabilities(variables, self.items(split), stacked=True)
        return [self._scores(split, probabilities, False) for probabilities in runs]

    def held_out_batches(self, split: str) -> Iterator[LabelledBatch]:
        encoded = self.items(split), self.text.encoded[split].labels.tolist()
        return (batch for _, batch in self.predictor.batches(*encoded))

    def held_out_sums(self, variables: Variables, batch: LabelledBatch) -> TokenSums:
        scores = self.predictor.classify(variables, batch.source)
        weights, labels = jnp.ones(len(self.text.labels)), jnp.asarray(batch.labels) - 1
        return class_cross_entropy(scores.logits, labels, weights, 0.0)

    def items(self, split: str) -> list[Any]:
        """Returns the model inputs for all texts of a split."""
        return self.text.encoded[split].items()

    def _scores(
        self, split: str, probabilities: Float[np.ndarray, "N C"], final: bool
    ) -> dict[str, Any]:
        truth, labels = self.text.encoded[split].labels, self.text.labels
        interval = final and self.config.evaluate.bootstrap > 1
        scores = class_scores(truth, probabilities, labels, interval)
        likelihoods = np.maximum(probabilities[np.arange(len(truth)), truth], MIN_PROBABILITY)
        right = probabilities.argmax(axis=1) == truth
        kinds = np.array([item.kind.replace(" ", "_") for item in self.text.held_out[split]])
        of_kinds = {
            f"accuracy_{kind}": float(right[kinds == kind].mean())
            for kind in sorted(set(kinds.tolist()) - {""})
        }
        return {
            **scores,
            "loss": float(-(self.class_weights[truth] * np.log(likelihoods)).mean()),
            **of_kinds,
            "accuracy_signature": f"classes:{len(labels)}|{self.unit}:{len(truth)}|{self.reading}",
        }

    @property
    def reading(self) -> str:
        """The part of the score signature that describes how texts are read."""
        return f"max_tokens:{self.config.data.max_tokens}"

    def examples(self, split: str, count: int) -> list[Labelled]:
        """Returns a fixed random sample of `count` texts of a split, for display."""
        return [self.text.held_out[split][i] for i in self.spread(split, count)]

    def spread(self, split: str, count: int) -> list[int]:
        """Returns the indices of the texts in `examples`."""
        drawn = np.random.default_rng(0).permutation(len(self.text.held_out[split]))[:count]
        return sorted(drawn.tolist())

    def save_assets(self, workdir: Path) -> None:
        if self.text.tokenizer:
            save_tokenizer(workdir / TOKENIZER, self.text.tokenizer)
        labels, weights = self.text.labels, self.class_weights.tolist()
        write_json(workdir / LABELS, labels)  # in the order of class ids
        write_json(workdir / WEIGHTS, dict(zip(labels, weights, strict=True)))
        held_out.save(workdir, self.text.held_out, self.text.pixels)

    def data_summary(self) -> dict[str, Any]:
        tokenizer, encoded = self.text.tokenizer, {"train": self.text.train, **self.text.encoded}
        splits = {s: self.count(encoded[s], sizes) for s, sizes in self.text.sizes.items()}
        return {
            "splits": splits,
            "oov_rate": self.text.train.unknown_fraction,
            "vocabulary": {"all": tokenizer.vocab_size} if tokenizer else {},
            **plan_summary(self.plan),
            **self.preview(),
        }

    def count(self, encoded: Any, sizes: Mapping[str, int]) -> dict[str, int]:
        """Returns the counts of a split for `data_summary`, given its number of items per label."""
        return {
            "texts": sum(sizes.values()),
            **{f"of class {label}": sizes[label] for label in self.text.labels},
            f"cut to {self.config.data.max_tokens} tokens": encoded.notes["cut"],
        }

    def preview(self) -> dict[str, Any]:
        """Returns the class and the first tokens of each of the first training texts."""
        texts = self.text.train
        examples = [
            {
                "class": self.text.labels[texts.labels[i]],
                "tokens": " ".join(self.text.tokenizer.pieces(texts.store[i][1:25])),
            }
            for i in range(min(3, len(texts.store)))
        ]
        return {"preview": examples}


def load_labels(folder: Path) -> tuple[str, ...]:
    """Loads the class names that `save_assets` has written."""
    path = folder / LABELS
    labels = read_json(path, [str], RESTORE)
    if len(set(labels)) < max(2, len(labels)):
        raise UserError(f"{path} does not list two classes or more by name: restore the original")
    return tuple(labels)
