"""From training text to tokens, in the same way for every kind of text.

A kind of text provides lines to train its tokenizer on, and yields its texts as parts;
`tokenize_training_text`, or `encode_training_text` for two sides, does the rest. Held-out text is
encoded by `encode` alone.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from ml_collections import ConfigDict

from transformer.data.characters import CHARACTER_RULE
from transformer.data.token_store import StoreWriter, TextStore, TokenStore, cached_arrays
from transformer.data.tokenizer import UNK_ID, Tokenizer, adopt_tokenizer, with_symbols, with_words
from transformer.data.tokenizer.train import train_tokenizer
from transformer.errors import RunError

Item = TypeVar("Item")

TOKENIZER = "tokenizer.model"  # the file in a run's folder
NAMED = 10  # number of the most frequent unknown characters or words to name
MORE_CHARACTERS = (
    "raise config.tokenizer.vocab_size or config.tokenizer.character_coverage, or set "
    "config.tokenizer.byte_fallback=True with bpe or unigram"
)


class Side(NamedTuple):
    """Texts of one side as tokens; `encoded` has the ids of `texts` if `tokens` are others."""

    tokens: Sequence[list[int]]
    texts: Sequence[str]
    encoded: Sequence[list[int]] | None = None


class EncodedPart(NamedTuple):
    """A part of a text: its sides by name, one number per text by name, and other counts."""

    sides: Mapping[str, Side]
    numbers: Mapping[str, Sequence[int]] = {}
    counts: Mapping[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Text as tokens.

    Attributes:
      arrays: the tokens and offsets of each side, and the numbers of the parts.
      notes: JSON data: the number of tokens on all sides, the number of unknown ones, a line that
        names the words or characters that they stand for, and the sums of the counts.
      arrays_digest: digest of all arrays, if they come from the cache.
    """

    arrays: Mapping[str, np.ndarray]
    notes: Mapping[str, Any]
    arrays_digest: str = ""

    @property
    def unknown(self) -> int:
        """Number of tokens that are not in the vocabulary."""
        return self.notes["unknown"]

    @property
    def unknown_fraction(self) -> float:
        """Fraction of the tokens that are not in the vocabulary."""
        return self.unknown / max(1, self.notes["tokens"])

    def describe_unknown(self) -> list[str]:
        """Returns the line to print at the start; an empty list if no token is unknown."""
        return [f"unknown: {self.notes['names']}"] if self.unknown else []

    def side(self, name: str) -> TokenStore:
        """Returns the encoded texts of one side."""
        return TokenStore(self.arrays[name], self.arrays[f"{name}_offsets"])

    @property
    def store(self) -> TokenStore:
        """The encoded texts, if their only side is "tokens"."""
        return self.side("tokens")

    def text(self, name: str) -> TextStore:
        """Returns the raw texts of one side, if they were saved with the tokens."""
        return TextStore(self.arrays[f"{name}_text"], self.arrays[f"{name}_text_offsets"])


@dataclasses.dataclass(frozen=True)
class Restartable(Generic[Item]):
    """An iterable over the items of `read()`, which is called again for each iteration."""

    read: Callable[[], Iterable[Item]]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.read())


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields lists of `size` items; the last one may be shorter."""
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch


def cache_folder(data: ConfigDict) -> Path:
    """Returns the folder for tokenizers and encoded text that `config.data` names."""
    return Path(data.cache_dir or "~/.cache/transformer").expanduser()


def make_tokenizer(
    lines: Iterable[str],
    fingerprint: str,
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    initial: Path | None = None,
    *,
    file: str = TOKENIZER,
    model: str | None = None,
    symbols: Sequence[str] = (),
    **others: Any,
) -> Tokenizer:
    """Returns the tokenizer of a training text, from a model file or from `train_tokenizer`.

    Args:
      folder, initial: of this run, and of the run whose tokenizer is kept or extended, if any.
      file: the file name in that folder; two sides may share one file, `TOKENIZER`.
      model: the tokenizer model; by default that of the settings.
      symbols: strings that are always one token, in addition to those of the settings.
    """
    settings, model = with_symbols(settings, symbols), settings.model if model is None else model
    files = (path and path / file for path in (folder, initial))
    saved, first = (
        path if path is None or path.exists() else path.with_name(TOKENIZER) for path in files
    )
    if model:
        return with_words(adopt_tokenizer(model, settings, saved), others.get("words"))
    others |= {"saved": saved, "initial": first}
    return train_tokenizer(lines, settings, cache_folder(data), fingerprint, **others)


def tokenize_training_text(
    lines: Iterable[str],
    digest: str,
    count: int,
    parts: Callable[[Tokenizer], Iterable[EncodedPart]],
    key: tuple[Any, ...],
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    initial: Path | None = None,
    writes: bool = False,
) -> tuple[Encoded, Tokenizer]:
    """Returns a training text, which is read several times, as tokens, and its tokenizer.

    Args:
      lines: `count` lines that the tokenizer learns from, with this `digest`.
      parts: yields the encoded text, given a tokenizer.
      key: everything that the parts depend on except the tokenizer.
      folder, initial: see `make_tokenizer`.
      writes: whether the model writes such text.
    """
    tokenizer = make_tokenizer(
        lines, digest, data, settings, folder, initial, count=count, reads=(not writes,)
    )
    tokenizer = tokenizer.writer() if writes else tokenizer
    sides = {"tokens": tokenizer}
    return encode_training_text(parts(tokenizer), sides, key, data, settings, initial), tokenizer


def encode(
    parts: Iterable[EncodedPart],
    tokenizers: Mapping[str, Tokenizer],
    folder: Path | None = None,
    with_texts: bool = False,
) -> Encoded:
    """Returns all parts of a text, with a count of their unknown tokens.

    Args:
      tokenizers: the tokenizer of each side, by the name of the side.
      folder: where tokens of a large text are written, so that they need no memory.
      with_texts: whether the arrays include the raw texts, see `Encoded.text`.
    """
    numbers: dict[str, list[int]] = collections.defaultdict(list)
    counts, lost = collections.Counter(tokens=0, unknown=0), collections.Counter()
    what = "characters"
    with contextlib.ExitStack() as files:
        stores = {name: StoreWriter(folder, files) for name in tokenizers}
        texts = {name: StoreWriter(folder, files, np.uint8) for name in tokenizers if with_texts}
        for part in parts:
            counts.update(part.counts)
            for name, values in part.numbers.items():
                numbers[name] += values
            for name, side in part.sides.items():
                stores[name].add(side.tokens)
                if with_texts:
                    texts[name].add([text.encode() for text in side.texts])
                counts["tokens"] += sum(map(len, side.tokens))
                if unknown := sum(ids.count(UNK_ID) for ids in side.tokens):
                    counts["unknown"] += unknown
                    what = "words" if tokenizers[name].kind == "word" else "characters"
                    encoded = side.tokens if side.encoded is None else side.encoded
                    for piece in tokenizers[name].unknown_pieces(side.texts, encoded):
                        lost.update([piece] if what == "words" else piece)
        arrays = {name: np.array(values, np.int32) for name, values in numbers.items()}
        for name in tokenizers:
            arrays |= stores[name].arrays(name)
            arrays |= texts[name].arrays(f"{name}_text") if with_texts else {}
    # Equally frequent words are in alphabetical order.
    frequent = sorted(lost.items(), key=lambda item: (-item[1], item[0]))[:NAMED]
    named = ", ".join(f"{text!r} ({count:,})" for text, count in frequent)
    named = f"{named}, ..." if len(lost) > NAMED else named
    names = f"{len(lost):,} {what} are not in the vocabulary: {named}"
    return Encoded(arrays, {**counts, "names": names})


def encode_training_text(
    parts: Iterable[EncodedPart],
    tokenizers: Mapping[str, Tokenizer],
    key: Sequence[Any],
    data: ConfigDict,
    settings: ConfigDict,
    initial: Path | None = None,
    with_texts: bool = False,
) -> Encoded:
    """Returns the result of `encode`, possibly from the cache.

    Args:
      key: everything that the encoded text depends on except the tokenizers.
      initial: folder of another run, whose tokenizers are kept or extended.
    """
    digests = (tokenizer.digest for tokenizer in tokenizers.values())
    described = " ".join([CHARACTER_RULE, "names", *map(str, (*key, with_texts)), *digests])
    folder = cache_folder(data) / f"{hashlib.sha256(described.encode()).hexdigest()[:24]}.tokens"

    def make(partial: Path) -> tuple[Mapping[str, np.ndarray], Mapping[str, Any]]:
        encoded = encode(parts, tokenizers, partial, with_texts)
        return encoded.arrays, encoded.notes

    encoded = Encoded(*cached_arrays(folder, make))
    if encoded.unknown_fraction > data.max_oov_rate:
        keeps = initial is not None and settings.initial == "keep"
        fix = "set config.tokenizer.initial to grow or new" if keeps else MORE_CHARACTERS
        raise RunError(
            f"{encoded.unknown_fraction:.1%} of the training tokens are unknown, more than "
            f"data.max_oov_rate={data.max_oov_rate:.1%} ({encoded.notes['names']}): {fix}"
        )
    return encoded
