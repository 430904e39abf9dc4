"""From training text to tokens, the same way for every kind of text.

Each kind of text defines how it is read and encoded. `prepare` finds or trains its tokenizers,
finds its tokens in the cache or encodes it, and refuses text with too many unknown tokens.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from ml_collections import ConfigDict

from transformer.data.characters import RULE
from transformer.data.files.locate import training_text
from transformer.data.token_store import (
    ArrayWriter,
    TextStore,
    TextWriter,
    TokenStore,
    arrays_digest,
    cached_arrays,
)
from transformer.data.tokenizer import (
    UNK_ID,
    Ids,
    Tokenizer,
    adopt_tokenizer,
    train_tokenizer,
    with_symbols,
)
from transformer.data.unknown import Lost, LostCounter, check_unknown

Item = TypeVar("Item")
NOTES = "notes"  # the array that holds all but the arrays of an encoded text, as JSON


@dataclasses.dataclass(frozen=True)
class TokenizerText:
    """Text that a tokenizer is trained on.

    Attributes:
      lines: restartable; read only if there is no tokenizer for it yet.
      fingerprint: of the lines.
      count: how many lines there are.
      reads: by the sides that lines are of in turn, whether they are only read, not written too.
      saved: a run's tokenizer, used if it was trained on this text.
      initial: the tokenizer of the run that this one starts from, if it is kept or grows.
      symbols: strings that are always one token, in addition to those of the settings.
    """

    lines: Iterable[str]
    fingerprint: str
    count: int
    reads: tuple[bool, ...]
    saved: Path | None = None
    initial: Path | None = None
    symbols: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Text as tokens, in the format of the cache.

    Attributes:
      arrays: the tokens and offsets of each store, see `store`, and other arrays with a number for
        each text.
      tokens: number of tokens in all stores.
      unknown: how many of them are not in the vocabulary.
      lost: the unknown words or characters.
      notes: other counts, as JSON.
      arrays_digest: of all arrays, if they come from the cache.
    """

    arrays: Mapping[str, np.ndarray]
    tokens: int
    unknown: int
    lost: Lost
    notes: Mapping[str, Any]
    arrays_digest: str = ""

    @property
    def unknown_fraction(self) -> float:
        """Fraction of the tokens that are not in the vocabulary."""
        return self.unknown / max(1, self.tokens)

    def store(self, name: str) -> TokenStore:
        """Returns the encoded texts of one side."""
        return TokenStore(self.arrays[name], self.arrays[f"{name}_offsets"])

    def text(self, name: str) -> TextStore:
        """Returns the texts of one side, if it was encoded with them."""
        return TextStore(self.arrays[f"{name}_text"], self.arrays[f"{name}_text_offsets"])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays that `from_arrays` reads."""
        fields = {
            "tokens": self.tokens,
            "unknown": self.unknown,
            "lost": dataclasses.asdict(self.lost),
            "notes": self.notes,
        }
        return {**self.arrays, NOTES: np.frombuffer(json.dumps(fields).encode(), np.uint8)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Encoded":
        """Returns the inverse of `to_arrays`."""
        fields = json.loads(arrays[NOTES].tobytes())
        fields["lost"] = Lost.from_json(fields["lost"])
        return cls({name: array for name, array in arrays.items() if name != NOTES}, **fields)


class EncodedBuilder:
    """Collects texts that are encoded in parts, and counts their unknown tokens.

    Args:
      folder: where the tokens are written as they come, see `cached_arrays`; None for memory.
      with_texts: whether the texts are written as well, see `Encoded.text`.
      tokenizers: by the name of the side that they encode.
    """

    def __init__(self, folder: Path | None, with_texts: bool = False, **tokenizers: Tokenizer):
        self._tokenizers = tokenizers
        self._tokens = {name: ArrayWriter(folder and folder / f"{name}.npy") for name in tokenizers}
        self._lengths = {name: [np.zeros(1, np.int64)] for name in tokenizers}
        names = tokenizers if folder and with_texts else ()
        self._texts = {name: TextWriter(Path(folder or "", f"{name}_text.npy")) for name in names}
        self._unknown, self._lost = 0, LostCounter()

    def add(
        self,
        name: str,
        sequences: Sequence[Ids],
        texts: Sequence[str],
        encoded: Sequence[Ids] | None = None,
    ) -> None:
        """Adds to one side.

        Args:
          sequences: the token ids of each text.
          texts: the texts in which unknown tokens are looked up.
          encoded: the token ids of each of `texts`, if they are not `sequences`.
        """
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        tokens = np.fromiter(itertools.chain.from_iterable(sequences), np.int32, lengths.sum())
        self._lengths[name].append(lengths)
        self._tokens[name].add(tokens)
        if name in self._texts:
            self._texts[name].add(texts)
        if unknown := int((tokens == UNK_ID).sum()):
            self._unknown += unknown
            self._lost.add(self._tokenizers[name], texts, sequences if encoded is None else encoded)

    def build(self, arrays: Mapping[str, np.ndarray] | None = None, **notes: Any) -> Encoded:
        """Returns everything that was added, with `arrays` and `notes`, see `Encoded`."""
        stores, tokens = {}, 0
        for name, writer in self._texts.items():
            texts = writer.finish()
            stores |= {f"{name}_text": texts.bytes, f"{name}_text_offsets": texts.offsets}
        for name, writer in self._tokens.items():
            stores[name] = writer.finish()
            lengths = np.concatenate(self._lengths[name])
            stores[f"{name}_offsets"] = np.cumsum(lengths, dtype=np.int64)
            tokens += len(stores[name])
        return Encoded(
            {**stores, **(arrays or {})}, tokens, self._unknown, self._lost.lost(), notes
        )


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


def prepare(
    texts: Sequence[TokenizerText],
    encode: Callable[[Sequence[Tokenizer], Path], Encoded],
    key: Sequence[Any],
    data: ConfigDict,
    settings: ConfigDict,
) -> tuple[list[Tokenizer], Encoded]:
    """Returns the tokenizer of each side and the encoded training text, perhaps from the cache.

    Args:
      texts: the text that each tokenizer is trained on.
      encode: encodes the training text; called with the tokenizers and the folder of an
        `EncodedBuilder`.
      key: everything that the encoded text depends on except the tokenizers: the kind of text, the
        fingerprint of its content, limits.
      data: `config.data`.
      settings: `config.tokenizer`.

    Raises:
      UserError: a vocabulary does not suit the text, or too many tokens are unknown.
    """
    cache = cache_folder(data)
    readers = [
        adopt_tokenizer(model, with_symbols(settings, text.symbols), text.saved)
        if model
        else train_tokenizer(
            text.lines,
            with_symbols(settings, text.symbols),
            cache,
            text.fingerprint,
            count=text.count,
            reads=text.reads,
            saved=text.saved,
            initial=text.initial,
            name="the training text" if data.get("corpora") else training_text(data),
        )
        for text, model in zip(texts, (settings.model, settings.target_model), strict=False)
    ]
    sides = zip(readers, texts, strict=True)
    tokenizers = [t if reads else t.writer() for t, text in sides for reads in text.reads]
    described = " ".join([RULE, *map(str, key), *(tokenizer.digest for tokenizer in tokenizers)])
    folder = cache / f"{hashlib.sha256(described.encode()).hexdigest()[:24]}.tokens"
    encoded = Encoded.from_arrays(
        cached_arrays(folder, lambda partial: encode(tokenizers, partial).to_arrays())
    )
    encoded = dataclasses.replace(encoded, arrays_digest=arrays_digest(folder, NOTES))
    kept = texts[0].initial is not None and settings.initial == "keep"
    check_unknown(encoded.unknown_fraction, data.max_oov_rate, encoded.lost, kept)
    return tokenizers, encoded
