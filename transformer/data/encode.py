"""From training text to tokens, the same way for every kind of text.

A kind of text makes a tokenizer of its lines, and yields its texts as parts, which `encode` and
`encode_training_text` collect.
"""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from ml_collections import ConfigDict

from transformer.data.characters import RULE
from transformer.data.files.locate import training_text
from transformer.data.token_store import StoreWriter, TextStore, TokenStore, cached_arrays
from transformer.data.tokenizer import (
    UNK_ID,
    Tokenizer,
    adopt_tokenizer,
    train_tokenizer,
    with_symbols,
)
from transformer.data.unknown import Lost, check_unknown, kind_of_lost, lost_strings

Item = TypeVar("Item")


class Side(NamedTuple):
    """Texts of one side as tokens.

    Attributes:
      tokens: the ids of each text.
      texts: those in which unknown tokens are looked up.
      encoded: the ids of each of `texts`, if they are not `tokens`.
    """

    tokens: Sequence[list[int]]
    texts: Sequence[str]
    encoded: Sequence[list[int]] | None = None


class Part(NamedTuple):
    """A part of a text: its sides by name, a number for each text by name, and other counts."""

    sides: Mapping[str, Side]
    numbers: Mapping[str, Sequence[int]] = {}
    counts: Mapping[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Text as tokens.

    Attributes:
      arrays: the tokens and offsets of each store, see `store`, and the numbers of the parts.
      notes: as JSON: the number of tokens in all stores, how many of them are unknown, the lost
        words or characters, and the sums of the counts.
      arrays_digest: of all arrays, if they come from the cache.
    """

    arrays: Mapping[str, np.ndarray]
    notes: Mapping[str, Any]
    arrays_digest: str = ""

    @property
    def unknown(self) -> int:
        """How many tokens are not in the vocabulary."""
        return self.notes["unknown"]

    @property
    def unknown_fraction(self) -> float:
        """Fraction of the tokens that are not in the vocabulary."""
        return self.unknown / max(1, self.notes["tokens"])

    @property
    def lost(self) -> Lost:
        """The unknown words or characters."""
        what, different, frequent = self.notes["lost"]
        return Lost(what, different, tuple(map(tuple, frequent)))

    def store(self, name: str) -> TokenStore:
        """Returns the encoded texts of one side."""
        return TokenStore(self.arrays[name], self.arrays[f"{name}_offsets"])

    def text(self, name: str) -> TextStore:
        """Returns the texts of one side, if it was encoded with them."""
        return TextStore(self.arrays[f"{name}_text"], self.arrays[f"{name}_text_offsets"])


@dataclasses.dataclass(frozen=True)
class Restartable(Generic[Item]):
    """An iterable over the items of `read()`, which each iteration calls again."""

    read: Callable[[], Iterable[Item]]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.read())


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields lists of `size` items, the last of which may be shorter."""
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch


def cache_folder(data: ConfigDict) -> Path:
    """Returns the folder of tokenizers and encoded text, as `config.data` says."""
    return Path(data.cache_dir or "~/.cache/transformer").expanduser()


def make_tokenizer(
    lines: Iterable[str],
    fingerprint: str,
    data: ConfigDict,
    settings: ConfigDict,
    *,
    model: str,
    symbols: Sequence[str] = (),
    saved: Path | None = None,
    **others: Any,
) -> Tokenizer:
    """Returns the tokenizer of a training text: an adopted model, or see `train_tokenizer`.

    Args:
      model: the file of an adopted model; '' for none.
      symbols: strings that are always one token, in addition to those of the settings.
    """
    settings = with_symbols(settings, symbols)
    if model:
        return adopt_tokenizer(model, settings, saved)
    name = "the training text" if data.get("corpora") else training_text(data)
    cache = cache_folder(data)
    return train_tokenizer(lines, settings, cache, fingerprint, saved=saved, name=name, **others)


def encode(
    parts: Iterable[Part],
    tokenizers: Mapping[str, Tokenizer],
    folder: Path | None = None,
    with_texts: bool = False,
) -> Encoded:
    """Returns all parts of a text, with their unknown tokens counted.

    Args:
      tokenizers: by the name of the side that they encode.
      folder: for a large text, so that its tokens need no memory.
      with_texts: whether the texts are in the arrays as well, see `Encoded.text`.
    """
    stores = {name: StoreWriter(folder) for name in tokenizers}
    texts = {name: StoreWriter(folder, np.uint8) for name in tokenizers if with_texts}
    numbers: dict[str, list[int]] = collections.defaultdict(list)
    counts, lost = collections.Counter(tokens=0, unknown=0), collections.Counter()
    what = Lost().what
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
                ids = side.tokens if side.encoded is None else side.encoded
                lost.update(lost_strings(tokenizers[name], side.texts, ids))
                what = kind_of_lost(tokenizers[name])
    arrays = {name: np.array(values, np.int32) for name, values in numbers.items()}
    for name in tokenizers:
        arrays |= stores[name].arrays(name)
        arrays |= texts[name].arrays(f"{name}_text") if with_texts else {}
    return Encoded(arrays, {**counts, "lost": Lost.of(what, lost)})


def encode_training_text(
    parts: Iterable[Part],
    tokenizers: Mapping[str, Tokenizer],
    key: Sequence[Any],
    data: ConfigDict,
    settings: ConfigDict,
    initial: Path | None = None,
    with_texts: bool = False,
) -> Encoded:
    """Returns the result of `encode`, perhaps from the cache.

    Args:
      key: everything that the encoded text depends on except the tokenizers: the kind of text, the
        fingerprint of its content, limits.
      data, settings: `config.data` and `config.tokenizer`.
      initial: of another run, whose tokenizers are kept or grow.
    """
    digests = (tokenizer.digest for tokenizer in tokenizers.values())
    described = " ".join([RULE, *map(str, (*key, with_texts)), *digests])
    folder = cache_folder(data) / f"{hashlib.sha256(described.encode()).hexdigest()[:24]}.tokens"

    def make(partial: Path) -> tuple[Mapping[str, np.ndarray], Mapping[str, Any]]:
        encoded = encode(parts, tokenizers, partial, with_texts)
        return encoded.arrays, encoded.notes

    encoded = Encoded(*cached_arrays(folder, make))
    kept = initial is not None and settings.initial == "keep"
    check_unknown(encoded.unknown_fraction, data.max_oov_rate, encoded.lost, kept)
    return encoded
