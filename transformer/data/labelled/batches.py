"""From labelled texts to batches: encoding, and a plan of all batches in length buckets."""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan
from transformer.data.labels import Labelled
from transformer.data.text_files import training_text
from transformer.data.token_store import TokenStore, cached_arrays
from transformer.data.tokenizer import BEGIN, PAD, UNKNOWN, Ids, Tokenizer, train_tokenizer
from transformer.data.unknown import Lost, LostCounter, check_unknown

ENCODE_AT_ONCE = 10_000  # texts
NO_LABEL = -1
LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)  # which reviews from the web are full of


class LabelledBatch(NamedTuple):
    """Token ids of B texts, padded with 0, and the numbers of their classes, from zero.

    A row of padding alone is no text; its label is -1.
    """

    tokens: Int[np.ndarray, "B M"]
    labels: Int[np.ndarray, "B"]


def make_labelled_batch(
    texts: Sequence[Ids], labels: Sequence[int], rows: int, length: int
) -> LabelledBatch:
    """Returns the batch of up to `rows` encoded texts of up to `length` tokens."""
    batch = LabelledBatch(np.full((rows, length), PAD, np.int32), np.full(rows, NO_LABEL, np.int32))
    for row, (ids, label) in enumerate(zip(texts, labels, strict=True)):
        batch.tokens[row, : len(ids)] = ids
        batch.labels[row] = label
    return batch


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """Labelled texts as the model reads them.

    Attributes:
      store: tokens of each text, the first of which is begin-of-sentence.
      labels: the number of each text's class, from zero.
      cut: how many texts were longer, and are their first tokens alone.
      unknown: tokens that are not in the vocabulary.
      lost: the same by name.
    """

    store: TokenStore
    labels: Int[np.ndarray, "texts"]
    cut: int
    unknown: int
    lost: Lost

    @property
    def unknown_share(self) -> float:
        """Share of the tokens that are not in the vocabulary."""
        return self.unknown / len(self.store.tokens)


def read_texts(texts: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Returns each text as begin-of-sentence and its tokens.

    Line breaks of HTML are blanks. The begin is what "first" pools, and something to read where a
    text has no token.
    """
    return [[BEGIN, *ids] for ids in tokenizer.encode(list(map(_plain, texts)))]


def _plain(text: str) -> str:
    """A text without line breaks of HTML."""
    return LINE_BREAK.sub(" ", text)


def encode_labelled(
    items: Iterable[Labelled], labels: Sequence[str], tokenizer: Tokenizer, max_tokens: int
) -> EncodedTexts:
    """Returns labelled texts as tokens and numbers of classes.

    Args:
      labels: names of the classes, by number.
      max_tokens: of a text; what comes after them is not read.
    """
    number = {label: i for i, label in enumerate(labels)}
    parts, offsets, classes, cut = [np.zeros(0, np.int32)], [0], [], 0
    lost = LostCounter()
    items = iter(items)
    while chunk := list(itertools.islice(items, ENCODE_AT_ONCE)):
        read = read_texts((item.text for item in chunk), tokenizer)
        if any(UNKNOWN in ids[:max_tokens] for ids in read):
            lost.add(tokenizer, [_plain(item.text) for item in chunk], read)
        for ids in read:
            cut += len(ids) > max_tokens
            parts.append(np.array(ids[:max_tokens], np.int32))
            offsets.append(offsets[-1] + len(parts[-1]))
        classes += [number[item.label] for item in chunk]
    tokens = np.concatenate(parts)
    store = TokenStore(tokens, np.array(offsets, np.int64))
    unknown = int((tokens == UNKNOWN).sum())
    return EncodedTexts(store, np.array(classes, np.int32), cut, unknown, lost.lost())


def prepare_labelled(
    items: Iterable[Labelled],
    labels: Sequence[str],
    data: Any,
    settings: Any,
    saved: Path | None = None,
    say: Callable[[str], None] = print,
) -> tuple[EncodedTexts, Tokenizer]:
    """Returns the training texts and their tokenizer, both from the cache if they are there.

    Args:
      items: restartable: hashing, training a tokenizer and encoding read it in turn.
      labels: names of the classes, by number.
      data: `config.data`.
      settings: `config.tokenizer`.
      saved: a run's tokenizer, taken if it is of this text.
      say: called with a line where the cache is damaged.

    Raises:
      UserError: the vocabulary does not suit the texts, or too many tokens are unknown.
    """
    cache = Path(data.cache_dir or "~/.cache/transformer").expanduser()
    texts_digest, digest = hashlib.sha256(), hashlib.sha256()
    count = 0
    for item in items:
        count += 1
        texts_digest.update(f"{len(item.text)} {item.text}".encode())
        digest.update(f"{len(item.label)} {item.label}".encode())
    content = texts_digest.hexdigest()
    tokenizer = train_tokenizer(
        _Plain(items),
        settings,
        cache,
        content,
        count=count,
        saved=saved,
        name=training_text(data),
        say=say,
    )
    key = f"{content} {digest.hexdigest()} {tokenizer.digest} {data.max_tokens}"

    def encode() -> dict[str, np.ndarray]:
        texts = encode_labelled(items, labels, tokenizer, data.max_tokens)
        arrays = {"tokens": texts.store.tokens, "offsets": texts.store.offsets}
        told = {"counts": np.array([texts.cut, texts.unknown]), "lost": texts.lost.to_array()}
        return {**arrays, "labels": texts.labels, **told}

    folder = cache / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.labelled"
    arrays = cached_arrays(folder, encode, say)
    store = TokenStore(arrays["tokens"], arrays["offsets"])
    lost = Lost.from_array(arrays["lost"])
    texts = EncodedTexts(store, arrays["labels"], *map(int, arrays["counts"]), lost)
    check_unknown(texts.unknown_share, data.max_unknown_share, lost)
    return texts, tokenizer


@dataclasses.dataclass(frozen=True)
class _Plain:
    """The texts of labelled ones without line breaks, read anew by each iteration."""

    items: Iterable[Labelled]

    def __iter__(self) -> Iterator[str]:
        return (_plain(item.text) for item in self.items)


class LabelledPlan(BucketPlan):
    """All training batches of labelled texts there will ever be, see `BucketPlan`."""

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
    def padding_share(self) -> float:
        """Share of an epoch's positions that hold padding."""
        return 1.0 - len(self.texts.store.tokens) / self.positions

    def __getitem__(self, i: int) -> LabelledBatch:
        bucket, indices = self.indices(i)
        texts = [self.texts.store[j] for j in indices]
        labels = self.texts.labels[indices].tolist()
        return make_labelled_batch(texts, labels, bucket.rows, bucket.length)
