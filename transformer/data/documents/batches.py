"""Batches of text for language models: the plan of training, and a text once, for evaluation."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.batch_plan import Plan, shuffle
from transformer.data.buckets import even_part
from transformer.data.documents.encode import Text
from transformer.data.tokenizer import BOS_ID, PAD_ID


class TextBatch(NamedTuple):
    """B rows of L tokens, each with one document or several.

    The model reads `tokens` and predicts `labels`, the same shifted left by one. A document starts
    with begin-of-sentence in `tokens` and ends with end-of-sentence in `labels`. `segments` numbers
    the documents of a row from one; it is 0, as are the others, at padding.
    """

    tokens: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]
    segments: Int[np.ndarray, "B L"]


class TextPlan(Plan[TextBatch]):
    """All training batches: batch i is a function of (seed, i) alone.

    The documents are concatenated to one stream of tokens. Each epoch cuts it into rows of
    `context` tokens with a new offset, so that no position of the text is always the first of its
    row, and shuffles the rows. They are spread evenly over an epoch's batches of at most `rows`,
    so each has at most one row of padding. A document that is cut continues in another row without
    the preceding text. For `each_position` see `spread_positions`.
    """

    def __init__(self, text: Text, seed: int, rows: int, context: int, each_position: bool = False):
        self.text, self.seed, self.context, self.each_position = text, seed, context, each_position
        length = len(text.store.tokens)
        # Room for a new offset in each epoch, if there is enough text.
        self.windows = max(1, length // context - 1)
        self.slack = length - self.windows * context
        self.epoch_length = -(-self.windows // rows)
        self.rows = -(-self.windows // self.epoch_length)

    @property
    def shape(self) -> tuple[int, int]:
        """The rows of a batch and the tokens of a row."""
        return self.rows * (self.context if self.each_position else 1), self.context

    def __getitem__(self, i: int) -> TextBatch:
        epoch, place = divmod(i, self.epoch_length)
        start = shuffle([0], self.slack + 1, (self.seed, epoch, 0))[0]
        places = even_part(self.windows, self.epoch_length, place)
        windows = shuffle(places, self.windows, (self.seed, epoch, 1))
        starts = [start + w * self.context for w in windows]
        batch = read_rows(self.text, starts, self.rows, self.context)
        return spread_positions(batch) if self.each_position else batch


def spread_positions(batch: TextBatch) -> TextBatch:
    """Returns L rows for each row: the l-th ends after position l, and only its last is predicted.

    A model without a look-ahead mask would need these rows; a masked one makes all predictions at
    once, for an L-th of the cost.
    """
    length = batch.tokens.shape[1]
    places, last = np.arange(length), np.arange(length)[:, None]
    tokens, labels, segments = (np.repeat(x, length, axis=0) for x in batch)
    here = np.tile(places == last, (len(batch.tokens), 1))
    there = np.tile(places <= last, (len(batch.tokens), 1))
    return TextBatch(tokens * there, labels * here, segments * there)


def read_rows(text: Text, starts: list[int], rows: int, context: int) -> TextBatch:
    """Returns the rows of `context` tokens of the stream of all documents from these places on."""
    places = np.array(starts)[:, None] + np.arange(context)
    tokens, offsets = text.store.tokens, text.store.offsets
    labels = tokens[places]
    before = tokens[np.maximum(places - 1, 0)]
    documents = np.searchsorted(offsets, places, side="right")
    first = offsets[documents - 1] == places
    batch = TextBatch(np.where(first, BOS_ID, before), labels, documents - documents[:, :1] + 1)
    empty = ((0, rows - len(starts)), (0, 0))
    return TextBatch(*(np.pad(x, empty, constant_values=PAD_ID).astype(np.int32) for x in batch))


def pack_rows(text: Text, rows: int, context: int) -> Iterator[TextBatch]:
    """Yields all of a text once, in its order; each document is read from its start.

    Documents share a row if they fit into it together; a document longer than a row continues in
    the next one. The last batch is padded.
    """
    open_rows: list[list[tuple[int, int]]] = []
    room = 0
    for first, end in cut_chunks(text, context):
        if end - first > room:
            if len(open_rows) == rows:
                yield pack_chunks(text, open_rows, rows, context)
                open_rows = []
            open_rows.append([])
            room = context
        open_rows[-1].append((first, end))
        room -= end - first
    if open_rows:
        yield pack_chunks(text, open_rows, rows, context)


def cut_chunks(text: Text, context: int) -> Iterator[tuple[int, int]]:
    """Yields (first token, end) of each document, or of its parts of up to `context` tokens."""
    for start, end in itertools.pairwise(text.store.offsets.tolist()):
        for first in range(start, end, context):
            yield first, min(first + context, end)


def pack_chunks(
    text: Text, chunks: list[list[tuple[int, int]]], rows: int, context: int
) -> TextBatch:
    """Returns the batch whose rows hold these chunks; see `cut_chunks`, `pack_rows`."""
    batch = TextBatch(*np.full((3, rows, context), PAD_ID, np.int32))
    tokens, starts = text.store.tokens, text.store.offsets
    for row, of_row in enumerate(chunks):
        place = 0
        for number, (first, end) in enumerate(of_row, 1):
            there = slice(place, place + end - first)
            labels = tokens[first:end]
            is_start = starts[np.searchsorted(starts, first)] == first
            batch.tokens[row, there] = [BOS_ID if is_start else tokens[first - 1], *labels[:-1]]
            batch.labels[row, there] = labels
            batch.segments[row, there] = number
            place = there.stop
    return batch
