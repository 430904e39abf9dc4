"""From pictures and texts about them to patches and tokens, and their batches."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from transformer.data.batches import BatchPlan, stack_rows
from transformer.data.buckets import BucketPlan
from transformer.data.labelled import NO_LABEL, LabelledBatch, read_texts
from transformer.data.pairs import LabelledPicture
from transformer.data.token_store import TokenStore, digest_arrays
from transformer.data.tokenizer import Ids, Tokenizer
from transformer.model.vision.inputs import PictureText, to_patches

Patches = UInt8[np.ndarray, "P F"]


class SeenPicture(NamedTuple):
    """A picture and a question as model inputs; the question may have no tokens."""

    patches: Patches
    tokens: Ids


class PictureStore(NamedTuple):
    """The patches of pictures, and the picture number of each item, from zero."""

    patches: UInt8[np.ndarray, "pictures P F"]
    pictures: Int[np.ndarray, "items"]

    @property
    def lengths(self) -> Int[np.ndarray, "items"]:
        """Number of patches of each item."""
        return np.full(len(self.pictures), self.patches.shape[1])

    def gather(self, numbers: Int[np.ndarray, "*rows"]) -> UInt8[np.ndarray, "*rows P F"]:
        """Returns the patches of items; all are zero for the number -1."""
        patches = self.patches[self.pictures[numbers]]
        patches[numbers < 0] = 0
        return patches


class EncodedPictures(NamedTuple):
    """Pictures with questions and classes as model inputs.

    Attributes:
      picture_store: the pictures.
      store: the tokens of each question.
      labels: the class number of each item, from zero.
    """

    picture_store: PictureStore
    store: TokenStore
    labels: Int[np.ndarray, "items"]

    @property
    def arrays_digest(self) -> str:
        """Digest of all arrays."""
        return digest_arrays(*self.picture_store, *vars(self.store).values(), self.labels)

    def items(self) -> list[SeenPicture]:
        """Returns each item as model inputs."""
        patches, pictures = self.picture_store
        return [SeenPicture(patches[p], self.store[i]) for i, p in enumerate(pictures)]


def read_questions(
    questions: Sequence[str], tokenizer: Tokenizer | None, max_tokens: int | None
) -> list[Ids]:
    """Returns begin-of-sentence and the tokens of each question; none without a tokenizer."""
    if tokenizer is None:
        return [[] for _ in questions]
    return [ids[:max_tokens] for ids in read_texts(questions, tokenizer)]


def encode_pictures(
    items: Sequence[LabelledPicture],
    pixels: UInt8[np.ndarray, "pictures S S C"],
    labels: Sequence[str],
    tokenizer: Tokenizer | None,
    max_tokens: int,
    patch_size: int,
) -> EncodedPictures:
    """Returns items as patches, at most `max_tokens` question tokens, and class numbers."""
    tokens = read_questions([item.question for item in items], tokenizer, max_tokens)
    number = {label: i for i, label in enumerate(labels)}
    return EncodedPictures(
        store_pictures(items, pixels, patch_size),
        TokenStore.of(tokens),
        np.array([number[item.label] for item in items], np.int32),
    )


def store_pictures(
    items: Sequence[LabelledPicture], pixels: UInt8[np.ndarray, "pictures S S C"], patch_size: int
) -> PictureStore:
    """Returns the pictures of items as patches."""
    pictures = np.array([item.picture for item in items], np.int32)
    return PictureStore(to_patches(pixels, patch_size), pictures)


def stack_pictures(
    items: Sequence[SeenPicture], shape: tuple[int, int], rows: int, length: int
) -> PictureText:
    """Returns up to `rows` items as arrays, the questions padded to `length` tokens.

    Args:
      shape: number of patches of a picture, and of values in a patch.
    """
    patches = np.zeros((rows, *shape), np.uint8)
    for row, item in enumerate(items):
        patches[row] = item.patches
    return PictureText(patches, stack_rows([item.tokens for item in items], rows, length))


class PicturePlan(BucketPlan[LabelledBatch]):
    """All training batches of pictures, see `BucketPlan`; a length includes the patches."""

    def __init__(self, pictures: EncodedPictures, *numbers: Any, **named: Any):
        self.pictures, self._before = pictures, 1 + pictures.picture_store.patches.shape[1]
        super().__init__(self._before + pictures.store.lengths, *numbers, **named)

    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> LabelledBatch:
        """Returns pictures, questions and classes; all are zero in a row of padding."""
        pictures, there = self.pictures, numbers >= 0
        tokens, _ = pictures.store.gather(numbers, length - self._before)
        labels = np.where(there, pictures.labels[numbers] + 1, NO_LABEL).astype(np.int32)
        return LabelledBatch(PictureText(pictures.picture_store.gather(numbers), tokens), labels)


class CaptionPlan(BatchPlan):
    """All training batches of pictures and their captions, see `BatchPlan`."""

    def read_sources(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> PictureText:
        return without_questions(self.source.gather(numbers))


def patch_names(grid: int) -> list[str]:
    """Returns the names of the patches of a picture, row,column from one."""
    return [f"{row + 1},{column + 1}" for row, column in np.ndindex(grid, grid)]


def without_questions(patches: UInt8[Any, "*batch P F"]) -> PictureText:
    """Returns pictures as inputs of a model without questions."""
    return PictureText(patches, np.zeros((*patches.shape[:-2], 0), np.int32))
