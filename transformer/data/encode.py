"""Tokenisation of training text: sentence pairs, documents, and labelled texts.

The module for each of these types of text provides the lines for `make_tokenizer` and the encoded
parts for `encode_training_text`. Held-out text is encoded with `encode` alone.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from ml_collections import ConfigDict

from transformer.data.characters import CHARACTER_RULE
from transformer.data.token_store import StoreWriter, TokenStore, cached_arrays
from transformer.data.tokenizer import UNK_ID, Tokenizer, adopt_tokenizer, with_symbols, with_words
from transformer.data.tokenizer.train import train_tokenizer
from transformer.errors import RunError

Item = TypeVar("Item")

TOKENIZER = "tokenizer.model"  # file name in a run's folder
MORE_CHARACTERS = (
    "raise config.tokenizer.vocab_size or config.tokenizer.character_coverage, or set "
    "config.tokenizer.byte_fallback=True with bpe or unigram"
)


class EncodedPart(NamedTuple):
    """An encoded part of a corpus.

    Attributes:
      sides: the token ids of each text, keyed by side.
      numbers: lists with one integer per text, keyed by name.
      counts: other counts, keyed by name.
      texts: the raw texts, keyed by side, if they are saved with the tokens.
      lists: lists of integers for each text, keyed by name, such as word links.
    """

    sides: Mapping[str, Sequence[list[int]]]
    numbers: Mapping[str, Sequence[int]] = {}
    counts: Mapping[str, int] = {}
    texts: Mapping[str, Sequence[str]] = {}
    lists: Mapping[str, Sequence[Sequence[int]]] = {}


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A tokenised corpus.

    Attributes:
      arrays: the tokens and offsets of each side, and the `numbers` of all parts, keyed by name.
      notes: JSON data with the number of tokens on all sides, the number of unknown tokens, and
        the sums of the `counts` of all parts.
      arrays_digest: digest of all arrays, or '' if they do not come from the cache.
    """

    arrays: Mapping[str, np.ndarray]
    notes: Mapping[str, Any]
    arrays_digest: str = ""

    @property
    def unknown_fraction(self) -> float:
        """Fraction of tokens that are unknown (out-of-vocabulary rate)."""
        return self.notes["unknown"] / max(1, self.notes["tokens"])

    def side(self, name: str) -> TokenStore:
        """Returns the encoded texts of a side, its raw texts (`<side>_text`), or saved `lists`."""
        return TokenStore(self.arrays[name], self.arrays[f"{name}_offsets"])

    @property
    def store(self) -> TokenStore:
        """The encoded texts of a corpus that has only the side "tokens"."""
        return self.side("tokens")


@dataclasses.dataclass(frozen=True)
class Restartable(Generic[Item]):
    """An iterable that calls `read()` again for each iteration."""

    read: Callable[[], Iterable[Item]]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.read())


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields lists of `size` items; the last list may be shorter."""
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch


def cache_folder(data: ConfigDict) -> Path:
    """Returns the cache folder for tokenizers and encoded text."""
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
    """Returns a tokenizer for training text, imported from a model file or trained on the text.

    Args:
      folder, initial: folders of this run, and of a run whose tokenizer is kept or extended.
      file: file name of the tokenizer in these folders, or `TOKENIZER` if this file is missing.
      model: path of a tokenizer model; by default `settings.model`.
      symbols: strings that are always one token, in addition to `settings.symbols`.
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


def encode(
    parts: Iterable[EncodedPart],
    sides: Collection[str] = ("tokens",),
    folder: Path | None = None,
    with_texts: bool = False,
) -> Encoded:
    """Concatenates the parts of a corpus, and counts all tokens and unknown tokens.

    Args:
      sides: the names of the sides.
      folder: folder for the tokens of a large corpus, or None to hold the tokens in memory.
      with_texts: whether the arrays include the raw texts; see `Encoded.side`.
    """
    numbers: dict[str, list[int]] = collections.defaultdict(list)
    counts = collections.Counter(tokens=0, unknown=0)
    with contextlib.ExitStack() as files:
        stores = {name: StoreWriter(folder, files) for name in sides}
        for name in sides if with_texts else ():
            stores[f"{name}_text"] = StoreWriter(folder, files, np.uint8)
        for part in parts:
            counts.update(part.counts)
            for name, values in part.numbers.items():
                numbers[name] += values
            for name, tokens in part.sides.items():
                stores[name].add(tokens)
                counts["tokens"] += sum(map(len, tokens))
                counts["unknown"] += sum(ids.count(UNK_ID) for ids in tokens)
            for name, texts in part.texts.items() if with_texts else ():
                stores[f"{name}_text"].add([text.encode() for text in texts])
            for name, lists in part.lists.items():
                if name not in stores:
                    stores[name] = StoreWriter(folder, files)
                stores[name].add(lists)
        arrays = {name: np.array(values, np.int32) for name, values in numbers.items()}
        for name, store in stores.items():
            arrays |= store.arrays(name)
    return Encoded(arrays, counts)


def encode_training_text(
    parts: Iterable[EncodedPart],
    tokenizers: Mapping[str, Tokenizer],
    key: Sequence[Any],
    data: ConfigDict,
    settings: ConfigDict,
    initial: Path | None = None,
    with_texts: bool = False,
) -> Encoded:
    """Returns the result of `encode`, from the cache if possible.

    Args:
      key: cache key: all values that the encoded text depends on, except for the tokenizers.
      initial: folder of an earlier run whose tokenizers are kept or extended, or None.
    """
    digests = (tokenizer.digest for tokenizer in tokenizers.values())
    described = " ".join([CHARACTER_RULE, *map(str, (*key, with_texts)), *digests])
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
            f"data.max_oov_rate={data.max_oov_rate:.1%}: {fix}"
        )
    return encoded
