"""Documents for language models: sources, tokens, and batches.

A document is self-contained text: a line, a paragraph, or a whole file. Every source returns its
splits as iterables that can be read repeatedly. Training uses windows of the concatenated token
stream; evaluation reads each document once, from its start.
"""

import dataclasses
import hashlib
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data import tfds
from transformer.data.buckets import Part, Plan, even_part, shuffle
from transformer.data.characters import canonicalize
from transformer.data.encode import (
    Encoded,
    EncodedPart,
    Restartable,
    batched,
    encode,
    encode_training_text,
    make_tokenizer,
)
from transformer.data.files.locate import locate
from transformer.data.files.rows import text_value
from transformer.data.files.table import FORMATS, TableFile, describe_rows, format_of
from transformer.data.files.text import read_lines
from transformer.data.pairs import SPLITS, choose_source, split_sizes
from transformer.data.parallel import sources
from transformer.data.synthetic import circuits
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from transformer.errors import RunError, UserError

logger = logging.getLogger(__name__)

# Old quotations, enough to test memorisation.
QUOTATIONS = (
    "the only true wisdom is in knowing you know nothing",
    "the unexamined life is not worth living",
    "no man ever steps in the same river twice",
    "a journey of a thousand miles begins with a single step",
    "i think therefore i am",
    "if i have seen further it is by standing on the shoulders of giants",
    "all that glitters is not gold",
    "the journey not the arrival matters",
)
ENCODE_AT_ONCE = 1_000  # documents
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese; Khmer; kana and Han.
UNSPACED_CHARACTER = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3041-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)

Splits = Mapping[str, Iterable[str]]


# -- sources


def open_documents(settings: ConfigDict) -> Splits:
    """Returns the documents in each split of the corpus configured in `config.data`."""
    return choose_source(settings, REGISTRY)(settings)


def _file_documents(settings: ConfigDict) -> Splits:
    """Returns the documents in the configured files.

    A split without a file is taken from the end of the training text, validation before test.
    `validation_fraction` and `test_fraction` are fractions of all characters if a document is a
    whole file, and of all documents otherwise. A split with fraction zero is omitted.
    """
    named = {
        split: TextFile(locate(settings, f"{split}_source"), settings)
        for split in SPLITS
        if split == "train" or settings[f"{split}_source"]
    }
    for line in describe_rows(text.rows for text in named.values()):
        logger.warning(line)
    fractions = {s: settings[f"{s}_fraction"] for s in SPLITS[1:] if s not in named}
    fractions = {split: fraction for split, fraction in fractions.items() if fraction}
    return {**named, **_cut_splits(named["train"], fractions)} if fractions else named


def _cut_splits(text: "TextFile", fractions: Mapping[str, float]) -> Splits:
    """Returns the training split, and the splits from the end of `text`, which are in memory."""
    whole = next(iter(text), "") if text.documents == "file" else None
    count = sum(1 for _ in text) if whole is None else len(whole)
    end = 1.0 - sum(fractions.values())
    bounds = [int(end * count)]
    for fraction in fractions.values():
        end += fraction
        bounds.append(max(bounds[-1] + 1, int(end * count + 1e-6)))
    bounds[-1] = count
    if bounds[0] < 1 or bounds[-2] >= count:
        asked = " and ".join(f"config.data.{split}_fraction={x}" for split, x in fractions.items())
        raise UserError(f"{text.path} is too short to hold out {asked}: lower them, or add text")
    first, parts = bounds[0], itertools.pairwise(bounds)
    if whole is not None:
        train, held_out = [whole[:first]], [[whole[a:b]] for a, b in parts]
    else:
        rest = itertools.islice(text, first, None)
        train = Restartable(lambda: itertools.islice(text, first))
        held_out = [[*itertools.islice(rest, b - a)] for a, b in parts]
    return {"train": train, **dict(zip(fractions, held_out, strict=True))}


class TextFile:
    """The documents of a file; each iteration reads the file from the start.

    Blank lines between lines or paragraphs are dropped, but a whole-file document is unchanged. The
    text of a table row is treated as one line, or as one or more complete paragraphs. `settings` is
    `config.data`, with the document unit and the text field.
    """

    def __init__(self, path: Path, settings: ConfigDict):
        self.path, self.documents = path, settings.documents
        has_rows = format_of(path, any_text=True) in FORMATS
        self.rows = TableFile(path, settings, ("text_field",), text_value) if has_rows else None

    def __iter__(self) -> Iterator[str]:
        lines: Iterable[str] = read_lines(self.path, True) if self.rows is None else self.rows
        if self.rows is not None and self.documents == "paragraph":
            lines = itertools.chain.from_iterable((*text.split("\n"), "") for text in self.rows)
        if self.documents == "file":
            text = "".join(f"{line}\n" for line in lines)
            if canonicalize(text):
                yield text
        elif self.documents == "line":
            yield from filter(canonicalize, lines)
        else:
            for blank, block in itertools.groupby(lines, key=lambda line: not canonicalize(line)):
                if not blank:
                    yield "\n".join(block)


def _source_sentences(settings: ConfigDict) -> Splits:
    """Returns the source sentences of a parallel corpus."""
    pairs = sources.open_source(settings)
    return {split: [pair.source for pair in pairs[split]] for split in SPLITS}


REGISTRY: dict[str, Callable[[Any], Splits]] = {
    **dict.fromkeys(sources.REGISTRY, _source_sentences),
    "files": _file_documents,
    "repeated": lambda settings: circuits.repeat_sequences(settings.seed, split_sizes(settings)),
    "quotations": lambda _: dict.fromkeys(SPLITS, QUOTATIONS),  # to measure memorisation
    "tfds": lambda settings: tfds.open_splits(settings, ("text",), str),
}


# -- tokens


@dataclasses.dataclass(frozen=True)
class Documents(Encoded):
    """Encoded documents, each followed by end-of-sentence unless `whole` is true.

    `notes` also has the numbers of `words` (see `count_words`) and UTF-8 `bytes` in the raw text.

    Attributes:
      whole: whether the text is one document without a meaningful start and end.
      digest: digest of the documents, as 8 hexadecimal digits.
    """

    whole: bool = False
    digest: str = ""

    @property
    def ends(self) -> int:
        """Number of document ends that the model must predict."""
        return 0 if self.whole else len(self.store)


def encode_text(documents: Iterable[str], tokenizer: Tokenizer, whole: bool) -> Documents:
    """Encodes `documents`, which must support repeated iteration."""
    encoded = encode(_chunks(documents, whole, tokenizer))
    return Documents(**vars(encoded), whole=whole, digest=_text_fingerprint(documents)[0][:8])


def _chunks(documents: Iterable[str], whole: bool, tokenizer: Tokenizer) -> Iterator[EncodedPart]:
    end = [] if whole else [EOS_ID]
    for chunk in batched(documents, ENCODE_AT_ONCE):
        # Encodes line by line, since sentencepiece is slow on long texts.
        ids = iter(tokenizer.encode(list(_lines_of_documents(chunk))))
        counts = [len(text.splitlines()) for text in chunk]
        tokens = [[*itertools.chain(*itertools.islice(ids, n)), *end] for n in counts]
        words, size = sum(map(count_words, chunk)), sum(len(text.encode()) for text in chunk)
        yield EncodedPart({"tokens": tokens}, counts={"words": words, "bytes": size})


def count_words(text: str) -> int:
    """Counts words separated by whitespace; each `UNSPACED_CHARACTER` starts a new word."""
    return len(UNSPACED_CHARACTER.sub(r" \g<0>", text).split())


def _lines_of_documents(documents: Iterable[str]) -> Iterator[str]:
    """Yields the lines of documents, including line ends."""
    return itertools.chain.from_iterable(text.splitlines(keepends=True) for text in documents)


def _text_fingerprint(documents: Iterable[str]) -> tuple[str, int]:
    """Returns a digest of the documents and the number of lines."""
    digest, lines = hashlib.sha256(), 0
    for text in documents:
        digest.update(f"{len(text)} {text}".encode())
        lines += text.count("\n") + 1
    return digest.hexdigest(), lines


def prepare_text(
    documents: Iterable[str],
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    initial: Path | None = None,
) -> tuple[Documents, Tokenizer]:
    """Returns the encoded training text and its tokenizer; see `make_tokenizer`."""
    (content, count), whole = _text_fingerprint(documents), data.documents == "file"
    lines = Restartable(lambda: _lines_of_documents(documents))
    tokenizer = make_tokenizer(
        lines, content, data, settings, folder, initial, count=count, reads=(False,)
    ).writer()
    parts, key = _chunks(documents, whole, tokenizer), ("documents", content, whole)
    encoded = encode_training_text(parts, {"tokens": tokenizer}, key, data, settings, initial)
    text = Documents(**vars(encoded), whole=whole, digest=content[:8])
    if len(text.store.tokens) < data.context:
        raise RunError(
            f"the training text has {len(text.store.tokens):,} tokens, less than a row of "
            f"data.context={data.context}: lower config.data.context, or name more text"
        )
    return text, tokenizer


# -- batches


class TextBatch(NamedTuple):
    """A batch of B sequences of L tokens, each with one or more documents.

    The model reads `tokens` and predicts `labels`, which are `tokens` shifted left by one. A
    document starts with begin-of-sentence in `tokens` and ends with end-of-sentence in `labels`.
    `segments` numbers the documents in a sequence from one. All fields are 0 at padding positions.
    """

    tokens: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]
    segments: Int[np.ndarray, "B L"]


class TextPlan(Plan[TextBatch]):
    """All training batches: batch i is a function of (seed, i) alone.

    The documents are concatenated into one token stream. Each epoch cuts this stream into windows
    of `context` tokens from a new offset, so that no token is always the first of its window, and
    shuffles the windows. The windows are spread evenly over batches of at most `rows` sequences, so
    each batch has at most one padding row. The rest of a cut document is in another window, without
    the preceding text as context.
    """

    def __init__(self, text: Documents, seed: int, rows: int, context: int):
        self.text, self.seed, self.context = text, seed, context
        length = len(text.store.tokens)
        # Leaves room for a new offset in each epoch, if there is enough text.
        self.windows = max(1, length // context - 1)
        self.slack = length - self.windows * context
        self.epoch_length = -(-self.windows // rows)
        self.rows = -(-self.windows // self.epoch_length)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a batch: the number of sequences, and the number of tokens per sequence."""
        return self.rows, self.context

    def part(self, i: int, part: Part) -> TextBatch:
        epoch, place = divmod(i, self.epoch_length)
        here = part.rows(self.rows)
        start = int(shuffle([0], self.slack + 1, (self.seed, epoch, 0))[0])
        places = even_part(self.windows, self.epoch_length, place)[here]
        windows = shuffle(places, self.windows, (self.seed, epoch, 1)).tolist()
        starts = (start + w * self.context for w in windows)
        spans = [(first, first + self.context) for first in starts]
        return read_rows(self.text, spans, here.stop - here.start, self.context)


def read_rows(
    text: Documents, spans: Sequence[tuple[int, int]], rows: int, context: int
) -> TextBatch:
    """Returns a batch with one sequence per span of the token stream, given as (start, end)."""
    starts, ends = np.array([*spans, *[(0, 0)] * (rows - len(spans))], np.int64).T[..., None]
    places = starts + np.arange(context)
    there = places < ends
    places = np.where(there, places, starts)
    tokens, offsets = text.store.tokens, text.store.offsets
    documents = np.searchsorted(offsets, places, side="right")
    before = np.where(offsets[documents - 1] == places, BOS_ID, tokens[np.maximum(places - 1, 0)])
    batch = before, tokens[places], documents - documents[:, :1] + 1
    return TextBatch(*(np.where(there, x, PAD_ID).astype(np.int32) for x in batch))


def pack_rows(text: Documents, rows: int, context: int) -> Iterator[TextBatch]:
    """Yields batches that contain each document once, in order, from its start.

    Several documents are packed into one sequence if they fit. A document that is longer than a
    sequence continues in the next sequence. The last batch is padded.
    """
    for spans in batched(pack_spans(text, context), rows):
        yield read_rows(text, spans, rows, context)


def pack_spans(text: Documents, context: int) -> Iterator[tuple[int, int]]:
    """Yields the (start, end) offsets of the sequences of `pack_rows`."""
    start = end = 0
    for first, last in cut_chunks(text, context):  # chunks follow each other without gaps
        if last - start > context:
            yield start, end
            start = first
        end = last
    if end:
        yield start, end


def cut_chunks(text: Documents, context: int) -> Iterator[tuple[int, int]]:
    """Cuts documents into chunks of up to `context` tokens; yields their (start, end) offsets."""
    for start, end in itertools.pairwise(text.store.offsets.tolist()):
        for first in range(start, end, context):
            yield first, min(first + context, end)
