"""From pictures and questions to patches and tokens, and their batches."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from transformer.data.buckets import BucketPlan
from transformer.data.labelled.encode import NO_LABEL, LabelledBatch, read_texts, stack_texts
from transformer.data.pairs import LabelledPicture
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import Ids, Tokenizer
from transformer.model.vision.inputs import PictureText, to_patches

Patches = UInt8[np.ndarray, "P F"]


class SeenPicture(NamedTuple):
    """A picture and a question as the model reads them; no tokens without a question."""

    patches: Patches
    tokens: Ids


class EncodedPictures(NamedTuple):
    """Pictures with questions and classes as the model reads them.

    Attributes:
      patches: of each picture.
      pictures: the picture of each item, from zero.
      store: the tokens of each question.
      labels: the number of each item's class, from zero.
    """

    patches: UInt8[np.ndarray, "pictures P F"]
    pictures: Int[np.ndarray, "items"]
    store: TokenStore
    labels: Int[np.ndarray, "items"]

    @property
    def arrays_digest(self) -> str:
        """A digest of all arrays."""
        digest = hashlib.sha256()
        for array in (self.patches, self.pictures, *vars(self.store).values(), self.labels):
            digest.update(f"{array.dtype} {array.shape} ".encode())
            digest.update(array.data)
        return digest.hexdigest()[:16]

    def items(self) -> list[SeenPicture]:
        """Returns each item as the model reads it."""
        return [SeenPicture(self.patches[p], self.store[i]) for i, p in enumerate(self.pictures)]


def read_questions(
    questions: Sequence[str], tokenizer: Tokenizer | None, max_tokens: int | None
) -> list[Ids]:
    """Returns the tokens of each question, begin-of-sentence first; none without a tokenizer."""
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
    """Returns items and their pictures as patches, at most `max_tokens` tokens and classes."""
    tokens = read_questions([item.question for item in items], tokenizer, max_tokens)
    number = {label: i for i, label in enumerate(labels)}
    offsets = np.cumsum([0, *map(len, tokens)], dtype=np.int64)
    flat = np.fromiter((i for ids in tokens for i in ids), np.int32, offsets[-1])
    return EncodedPictures(
        to_patches(pixels, patch_size),
        np.array([item.picture for item in items], np.int32),
        TokenStore(flat, offsets),
        np.array([number[item.label] for item in items], np.int32),
    )


def stack_pictures(
    items: Sequence[SeenPicture], shape: tuple[int, int], rows: int, length: int
) -> PictureText:
    """Returns up to `rows` items as arrays, the questions padded to `length` tokens.

    Args:
      shape: patches of a picture, and numbers of a patch.
    """
    patches = np.zeros((rows, *shape), np.uint8)
    for row, item in enumerate(items):
        patches[row] = item.patches
    return PictureText(patches, stack_texts([item.tokens for item in items], rows, length))


class PicturePlan(BucketPlan[LabelledBatch]):
    """All training batches of pictures, see `BucketPlan`; a length counts the patches, too."""

    def __init__(
        self,
        pictures: EncodedPictures,
        seed: int,
        tokens: int,
        num_buckets: int,
        multiple: int,
        rows: int = 0,
    ):
        self.pictures, self._before = pictures, 1 + pictures.patches.shape[1]
        lengths = self._before + pictures.store.lengths
        super().__init__(lengths, seed, tokens, num_buckets, multiple, rows)

    @property
    def padding_fraction(self) -> float:
        """Fraction of an epoch's positions that hold padding."""
        pictures = self.pictures
        tokens = len(pictures.store.tokens) + self._before * len(pictures.labels)
        return 1.0 - tokens / self.positions

    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> LabelledBatch:
        """Returns pictures, questions and classes; all are zero in a row of padding."""
        pictures, there = self.pictures, numbers >= 0
        patches = pictures.patches[pictures.pictures[numbers]]
        patches[~there] = 0
        tokens, _ = pictures.store.gather(numbers, length - self._before)
        labels = np.where(there, pictures.labels[numbers] + 1, NO_LABEL).astype(np.int32)
        return LabelledBatch(PictureText(patches, tokens), labels)
