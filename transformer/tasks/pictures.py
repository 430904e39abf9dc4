"""Image classification and visual question answering."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from transformer.analysis import pointing
from transformer.data import held_out
from transformer.data.characters import PUNCTUATION
from transformer.data.encode import TOKENIZER, make_tokenizer
from transformer.data.labelled import LabelledBatch
from transformer.data.pictures.patches import EncodedPictures, read_questions, store_pictures
from transformer.data.pictures.sources import (
    ANSWERS,
    CLASSES,
    REGISTRY,
    PictureSplit,
    look_of,
    open_pictures,
)
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import Tokenizer, load_tokenizer
from transformer.inference.base import Params
from transformer.inference.pictures import PictureClassifier
from transformer.model.architecture import Network
from transformer.model.build import check_names, has_heads
from transformer.model.classifier import BAG, BagOfPatches, Classifier, CnnLstm
from transformer.model.config import ModelConfig
from transformer.model.losses import TokenSums
from transformer.model.vision.augment import augment, mix
from transformer.tasks.base import (
    PICTURES,
    check_positions,
    initial_folder,
    model_fields,
    refuse_empty,
)
from transformer.tasks.classification import (
    SCORED_SPLITS,
    ClassificationTask,
    LabelledText,
    load_labels,
)

# How an input is described in error messages.
PICTURE = "a picture, with its class token and its question if it has one,"


class PictureTask(ClassificationTask):
    """Trains and evaluates an image classifier; see `tasks.base.Task` for inherited members."""

    unit, noun = "pictures", "picture"
    model_noun, invitation = "classifier of pictures", "Drop a picture"
    sources = REGISTRY
    reads, label_type = PICTURES, CLASSES

    predictor: PictureClassifier

    def check_model(self) -> None:
        asks, sizes = self.label_type == ANSWERS, (self.config.tokenizer.vocab_size, 2)
        make_picture_network(self.config.model, *sizes, self.config.data.max_tokens * asks)

    def read_text(self, folder: Path | None) -> LabelledText:
        look = look_of(self.config.model, self.config.data)
        source = open_pictures(self.config.data, look, self.label_type)
        held = {split: source.splits[split] for split in SCORED_SPLITS}
        refuse_empty(held, "")
        tokenizer = None
        if self.label_type == ANSWERS:
            questions = [item.question for item in source.splits["train"]]
            if self.config.tokenizer.kind == "word":  # splits off punctuation
                questions = [PUNCTUATION.sub(r" \1", question) for question in questions]
            tokenizer = train_tokenizer(questions, self.config, folder)
        train = self._encode(
            source.splits["train"], source.pixels["train"], source.labels, tokenizer
        )
        # Training needs only patches; keeping the pixels as well would double the memory.
        texts = held, {split: source.pixels[split] for split in held}
        return self._make_text(tokenizer, source.labels, *texts, train=train, sizes=source.sizes)

    def read_kept_text(self, folder: Path) -> LabelledText:
        return self._make_kept_text(folder, *read_held_out(folder, self.predictor.labels))

    def make_given_text(self, folder: Path, given: PictureSplit) -> LabelledText:
        """Returns a dataset whose only split, "test", holds the given items and images."""
        return self._make_kept_text(folder, {"test": given.items}, {"test": given.pixels})

    def _encode(self, items, pixels, labels, tokenizer: Tokenizer | None) -> EncodedPictures:
        data, number = self.config.data, {label: i for i, label in enumerate(labels)}
        pixels = np.zeros_like(pixels) if data.blind else pixels
        questions = [item.question for item in items]
        return EncodedPictures(
            store_pictures(items, pixels, self.config.model.patch_size),
            TokenStore.of(read_questions(questions, tokenizer, data.max_tokens)),
            np.array([number[item.label] for item in items], np.int32),
        )

    def load(self, folder: Path) -> PictureClassifier:
        asks = self.label_type == ANSWERS
        tokenizer = load_tokenizer(folder / TOKENIZER).typed() if asks else None
        return self.make_classifier(tokenizer, load_labels(folder))

    def make_classifier(
        self, tokenizer: Tokenizer | None, labels: Sequence[str]
    ) -> PictureClassifier:
        model, data = self.config.model, self.config.data
        sizes = tokenizer.vocab_size if tokenizer else 1, len(labels)
        words = 0 if tokenizer is None else data.max_tokens
        network, encoder = make_picture_network(model, *sizes, words)
        settings = data.max_tokens, self.config.decode.batch_size, data.blind
        look = look_of(model, data)
        return PictureClassifier(network, encoder, look, tokenizer, labels, *settings)

    def loss(
        self, params: Params, batch: LabelledBatch, hparams: dict, key: jax.Array
    ) -> TokenSums:
        """Returns the loss on images after augmentation (`data.augment`) and mixup."""
        names, alpha = self.config.data.augment, self.config.train.mixup
        source, patches = batch.source, batch.source.patches
        of_changes, of_mixture = jax.random.split(jax.random.fold_in(key, 1))
        if names:
            patches = augment(patches, self.config.model.patch_size, names.split("+"), of_changes)
        if not alpha:
            batch = batch._replace(source=source._replace(patches=patches))
            return super().loss(params, batch, hparams, key)
        patches, share = mix(patches, alpha, of_mixture)
        batch = batch._replace(source=source._replace(patches=patches))
        logits, labels = self.logits(params, batch, hparams, key), jnp.asarray(batch.labels)
        sums, others = (self.score_loss(logits, each, hparams) for each in (labels, labels[::-1]))
        return sums._replace(loss=share * sums.loss + (1 - share) * others.loss)

    @property
    def reading(self) -> str:
        model = self.config.model
        blind = "|blind" * self.config.data.blind
        return f"side:{model.picture_size}|channels:{model.picture_channels}{blind}"

    def evaluate(self, params: Any, split: str, final: bool) -> dict[str, Any]:
        """Adds pointing scores of attention heads to the scores if items have bounding boxes.

        `pointing` [layers, heads] is the fraction of items with boxes in which the attention of the
        class token points at a box (see `analysis.pointing`). `pointing_accuracy` is that of the
        head with the best validation `pointing`; `pointing_head` is [layer, head], from one.
        """
        scores = super().evaluate(params, split, final)
        variables = {"params": params}
        if final and self._known(split) and has_heads(self.config.model):
            points = self._look(variables, split)
            validated = points if split == "validation" else self._look(variables, "validation")
            layer, head = np.unravel_index(validated.argmax(), validated.shape)
            scores |= {
                "pointing": points.tolist(),
                "pointing_accuracy": float(points[layer, head]),
                "pointing_head": [int(layer) + 1, int(head) + 1],
            }
        return scores

    def _known(self, split: str) -> list[int]:
        """Returns the indices of the items that have bounding boxes."""
        return [i for i, item in enumerate(self.text.held_out.get(split, ())) if item.boxes]

    def _look(self, variables: Any, split: str) -> np.ndarray:
        """Returns `pointing`, averaged over the items that have boxes."""
        numbers, items = self._known(split), self.items(split)
        grid, size = self.predictor.grid, self.config.model.patch_size
        boxes = [self.text.held_out[split][number].boxes for number in numbers]
        weights = self.predictor.looks(variables, [items[i] for i in numbers])
        pairs = zip(weights, boxes, strict=True)
        return np.mean([pointing.points_at(*pair, grid, size) for pair in pairs], axis=0)

    @property
    def train_tokens(self) -> dict[str, int]:
        return {}

    def count(self, encoded: EncodedPictures, sizes: Mapping[str, int]) -> dict[str, int]:
        return {
            self.unit: sum(sizes.values()),
            "different pictures": len(encoded.picture_store.patches),
            **{f"of class {label}": sizes[label] for label in self.text.labels},
        }

    def preview(self) -> dict[str, Any]:
        return {}


class QuestionTask(PictureTask):
    """Trains and evaluates a visual question answering model, whose classes are the answers."""

    unit, noun = "questions", "question"
    model_noun, invitation = "model of pictures and questions", "Ask about a picture"
    label_type = ANSWERS


def make_picture_network(
    model: ConfigDict, vocab_size: int, num_classes: int, words: int = 0
) -> tuple[Network, ModelConfig]:
    """Returns the network for `config.model`, and the `ModelConfig` of the encoder or baseline.

    Each image is followed by a question of at most `words` tokens.
    """
    fields = {**model_fields(model), "num_decoder_layers": 0}
    encoder = ModelConfig(vocab_size, vocab_size, **fields)
    if model.architecture == BAG:
        return BagOfPatches(encoder, num_classes), encoder
    if model.architecture == "recurrent":
        return CnnLstm(encoder, num_classes), encoder
    check_names(encoder)
    network = Classifier(encoder, num_classes, model.pooling)
    grid = encoder.picture_size // encoder.patch_size
    check_positions(PICTURE, 1 + grid**2 + words, network.max_positions)
    return network, encoder


def read_held_out(folder: Path, labels: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """Yields a run's held-out items, then the pixels, keyed by split; captions need no `labels`."""
    splits = {s: held_out.read_pictures(folder, s, labels) for s in SCORED_SPLITS}
    return ({s: each[i] for s, each in splits.items()} for i in (0, 1))


def train_tokenizer(texts: Sequence[str], config: ConfigDict, folder: Path | None) -> Tokenizer:
    """Returns a tokenizer for the training questions or captions."""
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    settings, folders = (config.data, config.tokenizer), (folder, initial_folder(config))
    name = f"pictures {digest}"
    return make_tokenizer(texts, name, *settings, *folders, count=len(texts)).typed()
