"""Packs a whole text once, in order, into batches for evaluation."""

import itertools
from collections.abc import Iterator

import numpy as np

from transformer.data.documents.batches import TextBatch
from transformer.data.documents.encode import Text
from transformer.data.tokenizer import BOS_ID, PAD_ID


def pack_rows(text: Text, rows: int, context: int) -> Iterator[TextBatch]:
    """Yields all of a text once, in its order; each document is read from its start.

    Documents share a row if they fit into it together; a document longer than a row continues in
    the next one. The last batch is padded.

    Args:
      rows: of a batch.
      context: tokens of a row.
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
    """Yields (first token, end) of each chunk of a text, in order; each is read by itself.

    A chunk is a document, or a part of one that is longer than a row of `context` tokens.
    """
    for start, end in itertools.pairwise(text.store.offsets.tolist()):
        for first in range(start, end, context):
            yield first, min(first + context, end)


def pack_chunks(
    text: Text, chunks: list[list[tuple[int, int]]], rows: int, context: int
) -> TextBatch:
    """Returns the batch whose rows hold these chunks; see `cut_chunks`, `pack_rows`."""
    batch = TextBatch(*(np.full((rows, context), PAD_ID, np.int32) for _ in range(3)))
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
