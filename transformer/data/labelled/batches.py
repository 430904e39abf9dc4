"""Batches of labelled texts, and the plan of all of them in length buckets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan
from transformer.data.labelled.encode import EncodedTexts
from transformer.data.tokenizer import PAD_ID, Ids

NO_LABEL = -1


class LabelledBatch(NamedTuple):
    """Token ids of B texts, padded with 0, and their classes from zero; -1 of a row of padding."""

    tokens: Int[np.ndarray, "B M"]
    labels: Int[np.ndarray, "B"]


def make_labelled_batch(
    texts: Sequence[Ids], labels: Sequence[int], rows: int, length: int
) -> LabelledBatch:
    """Returns the batch of up to `rows` encoded texts of up to `length` tokens."""
    batch = LabelledBatch(
        np.full((rows, length), PAD_ID, np.int32), np.full(rows, NO_LABEL, np.int32)
    )
    for row, (ids, label) in enumerate(zip(texts, labels, strict=True)):
        batch.tokens[row, : len(ids)] = ids
        batch.labels[row] = label
    return batch


class LabelledPlan(BucketPlan[LabelledBatch]):
    """All training batches of labelled texts, see `BucketPlan`."""

    def __init__(
        self,
        texts: EncodedTexts,
        seed: int,
        tokens: int,
        num_buckets: int,
        multiple: int,
        rows: int = 0,
    ):
        self.texts = texts
        super().__init__(texts.store.lengths, seed, tokens, num_buckets, multiple, rows)

    @property
    def padding_fraction(self) -> float:
        """Fraction of an epoch's positions that hold padding."""
        return 1.0 - len(self.texts.store.tokens) / self.positions

    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> LabelledBatch:
        """Returns the same as `make_labelled_batch`."""
        labels = np.where(numbers < 0, NO_LABEL, self.texts.labels[numbers])
        return LabelledBatch(self.texts.store.gather(numbers, length)[0], labels.astype(np.int32))
