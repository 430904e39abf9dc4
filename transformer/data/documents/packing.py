"""From documents to rows of tokens for language models: encoding, packing, all batches."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import even_part
from transformer.data.stream import shuffle, stream
from transformer.data.text_files import training_text
from transformer.data.token_store import TokenStore, cached_arrays
from transformer.data.tokenizer import BEGIN, END, PAD, UNKNOWN, Tokenizer, train_tokenizer
from transformer.data.unknown import NOTHING_LOST, Lost, LostCounter, check_unknown
from transformer.errors import RunError, UserError

ENCODE_AT_ONCE = 10_000  # documents


class TextBatch(NamedTuple):
    """B rows of L tokens, each of one document or of several, one after another.

    The model reads `tokens` and predicts `labels`, the same shifted left by one. What is read
    where a document starts is begin-of-sentence; what is predicted where it ends, end-of-sentence.
    `segments` numbers the documents of a row from one; it is 0, as are the others, at padding.
    """

    tokens: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]
    segments: Int[np.ndarray, "B L"]


@dataclasses.dataclass(frozen=True)
class Text:
    """Encoded documents, and what they were.

    Attributes:
      store: tokens of each document; the last is end-of-sentence, but in running text.
      whole: whether this is running text, a document whose start and end mean nothing.
      documents, words, bytes: of the text before it was encoded, without ends. Words stand
        between white space; bytes are of UTF-8.
      unknown: tokens that are not in the vocabulary.
      digest: of the documents, 8 hexadecimal digits.
      lost: the unknown, by name.
    """

    store: TokenStore
    whole: bool
    documents: int
    words: int
    bytes: int
    unknown: int
    digest: str
    lost: Lost = NOTHING_LOST

    @property
    def ends(self) -> int:
        """How many ends of documents are predicted."""
        return 0 if self.whole else self.documents


def encode_text(documents: Iterable[str], tokenizer: Tokenizer, whole: bool) -> Text:
    """Returns documents as tokens.

    Args:
      whole: see `Text`.
    """
    parts, offsets = [np.zeros(0, np.int32)], [0]
    words = size = 0
    digest, lost = hashlib.sha256(), LostCounter()
    documents = iter(documents)
    while chunk := list(itertools.islice(documents, ENCODE_AT_ONCE)):
        for text in chunk:
            words += len(text.split())
            size += len(text.encode())
            digest.update(_delimited(text))
            # Line by line: what is one piece of a long text to sentencepiece takes it long.
            lines = text.splitlines(keepends=True)
            encoded = tokenizer.encode(lines)
            ids = itertools.chain(*encoded)
            parts.append(np.array([*ids] if whole else [*ids, END], np.int32))
            if (parts[-1] == UNKNOWN).any():
                lost.add(tokenizer, lines, encoded)
            offsets.append(offsets[-1] + len(parts[-1]))
    tokens = np.concatenate(parts)
    store = TokenStore(tokens, np.array(offsets, np.int64))
    unknown = int((tokens == UNKNOWN).sum())
    counts = len(store), words, size, unknown
    return Text(store, whole, *counts, digest.hexdigest()[:8], lost.lost())


def _delimited(text: str) -> bytes:
    """A document as bytes that, one after another, say where each starts."""
    return f"{len(text)} {text}".encode()


def prepare_text(
    documents: Iterable[str],
    data: Any,
    settings: Any,
    saved: Path | None = None,
    say: Callable[[str], None] = print,
) -> tuple[Text, Tokenizer]:
    """Returns the training text and its tokenizer, both from the cache if they are there.

    Args:
      documents: restartable: hashing, training a tokenizer and encoding read it in turn.
      data: `config.data`.
      settings: `config.tokenizer`.
      saved: a run's tokenizer, taken if it is of this text.
      say: called with a line where the cache is damaged.

    Raises:
      UserError: there is no text, the vocabulary does not suit it, too many tokens are unknown, or
        it is shorter than a row.
    """
    cache = Path(data.cache_dir or "~/.cache/transformer").expanduser()
    digest, lines = hashlib.sha256(), 0
    for text in documents:
        digest.update(_delimited(text))
        lines += text.count("\n") + 1
    content, whole = digest.hexdigest(), data.documents == "file"
    tokenizer = train_tokenizer(
        _Lines(documents),
        settings,
        cache,
        content,
        count=lines,
        saved=saved,
        name=training_text(data),
        say=say,
    )
    key = hashlib.sha256(f"{content} {tokenizer.digest} {whole}".encode()).hexdigest()[:24]

    def encode() -> dict[str, np.ndarray]:
        text = encode_text(documents, tokenizer, whole)
        counts = [text.documents, text.words, text.bytes, text.unknown]
        store = {"tokens": text.store.tokens, "offsets": text.store.offsets}
        return {**store, "counts": np.array(counts), "lost": text.lost.to_array()}

    arrays = cached_arrays(cache / f"{key}.text", encode, say)
    store = TokenStore(arrays["tokens"], arrays["offsets"])
    lost = Lost.from_array(arrays["lost"])
    text = Text(store, whole, *map(int, arrays["counts"]), content[:8], lost)
    if not text.documents:
        raise UserError("no training text is left: name a file with some")
    check_unknown(text.unknown / len(store.tokens), data.max_unknown_share, lost)
    if len(store.tokens) < data.context:
        raise RunError(
            f"the training text has {len(store.tokens):,} tokens, less than a row of "
            f"data.context={data.context}: lower --config.data.context, or name more text"
        )
    return text, tokenizer


@dataclasses.dataclass(frozen=True)
class _Lines:
    """The lines of documents, with their ends, read anew by each iteration."""

    documents: Iterable[str]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(
            text.splitlines(keepends=True) for text in self.documents
        )


class TextPlan:
    """All training batches there will ever be: batch i is a function of (seed, i) alone.

    The documents stand one after another in one stream of tokens, which each epoch cuts into rows
    of `context` tokens from another start on, and shuffles. They are spread evenly over an epoch's
    batches, so there is at most one row of padding in each, and no place of the text is always the
    first of its row. A document that is cut goes on in another row without what was before it.

    Args:
      rows: of a batch, at most.
      context: tokens of a row.
      each_position: whether each position is a row of its own, see `spread_positions`.
    """

    def __init__(self, text: Text, seed: int, rows: int, context: int, each_position: bool = False):
        self.text, self.seed, self.context, self.each_position = text, seed, context, each_position
        length = len(text.store.tokens)
        # Room for another start in each epoch, where there is text enough.
        self.windows = max(1, length // context - 1)
        self.slack = length - self.windows * context
        self.epoch_length = -(-self.windows // rows)
        self.rows = -(-self.windows // self.epoch_length)

    def __getitem__(self, i: int) -> TextBatch:
        epoch, place = divmod(i, self.epoch_length)
        start = shuffle([0], self.slack + 1, (self.seed, epoch, 0))[0]
        places = even_part(self.windows, self.epoch_length, place)
        windows = shuffle(places, self.windows, (self.seed, epoch, 1))
        batch = read_rows(self.text, [start + w * self.context for w in windows], self)
        return spread_positions(batch) if self.each_position else batch

    def start_at(self, i: int, prefetch: int) -> Iterator[TextBatch]:
        """Yields batch i and all after it, `prefetch` of them made ahead in the background."""
        return stream(self, i, prefetch)


def spread_positions(batch: TextBatch) -> TextBatch:
    """Returns L rows for each row: the l-th ends after position l, and only its last is predicted.

    So a model without a look-ahead mask would have to be trained: the same predictions, at L times
    the cost. A masked model makes them all at once.
    """
    length = batch.tokens.shape[1]
    places, last = np.arange(length), np.arange(length)[:, None]
    tokens, labels, segments = (np.repeat(x, length, axis=0) for x in batch)
    here = np.tile(places == last, (len(batch.tokens), 1))
    there = np.tile(places <= last, (len(batch.tokens), 1))
    return TextBatch(tokens * there, labels * here, segments * there)


def read_rows(text: Text, starts: list[int], shape: Any) -> TextBatch:
    """Returns the rows of the stream of all documents that start at these places.

    Args:
      starts: of at most `shape.rows` rows, each followed by `shape.context` tokens.
    """
    places = np.array(starts)[:, None] + np.arange(shape.context)
    tokens, offsets = text.store.tokens, text.store.offsets
    labels = tokens[places]
    before = tokens[np.maximum(places - 1, 0)]
    documents = np.searchsorted(offsets, places, side="right")
    first = offsets[documents - 1] == places
    batch = TextBatch(np.where(first, BEGIN, before), labels, documents - documents[:, :1] + 1)
    empty = ((0, shape.rows - len(starts)), (0, 0))
    return TextBatch(*(np.pad(x, empty, constant_values=PAD).astype(np.int32) for x in batch))


def pack_rows(text: Text, rows: int, context: int) -> Iterator[TextBatch]:
    """Yields all of a text once, in its order: each document from its start on, none shuffled.

    Documents share a row where they fit into it together; one that is longer than a row goes on in
    the next. The last batch is padded.

    Args:
      rows: of a batch.
      context: tokens of a row.
    """
    open_rows: list[list[tuple[int, int]]] = []
    room = 0
    for first, end in cut_pieces(text, context):
        if end - first > room:
            if len(open_rows) == rows:
                yield pack_pieces(text, open_rows, rows, context)
                open_rows = []
            open_rows.append([])
            room = context
        open_rows[-1].append((first, end))
        room -= end - first
    if open_rows:
        yield pack_pieces(text, open_rows, rows, context)


def cut_pieces(text: Text, context: int) -> Iterator[tuple[int, int]]:
    """Yields (first token, end) of what is read without what was before it, in order.

    That is a document, or a part of one that is longer than a row of `context` tokens.
    """
    for start, end in itertools.pairwise(text.store.offsets.tolist()):
        for first in range(start, end, context):
            yield first, min(first + context, end)


def pack_pieces(
    text: Text, pieces: list[list[tuple[int, int]]], rows: int, context: int
) -> TextBatch:
    """Returns the batch whose rows hold these pieces; see `cut_pieces`, `pack_rows`."""
    batch = TextBatch(*(np.full((rows, context), PAD, np.int32) for _ in range(3)))
    tokens, starts = text.store.tokens, text.store.offsets
    for row, of_row in enumerate(pieces):
        place = 0
        for number, (first, end) in enumerate(of_row, 1):
            there = slice(place, place + end - first)
            labels = tokens[first:end]
            is_start = starts[np.searchsorted(starts, first)] == first
            batch.tokens[row, there] = [BEGIN if is_start else tokens[first - 1], *labels[:-1]]
            batch.labels[row, there] = labels
            batch.segments[row, there] = number
            place = there.stop
    return batch
