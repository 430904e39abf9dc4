"""From labelled texts to tokens and numbers of classes."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.encode import (
    Encoded,
    Lost,
    Part,
    Restartable,
    Side,
    batched,
    encode,
    encode_training_text,
    make_tokenizer,
)
from transformer.data.pairs import Labelled
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import BOS_ID, Tokenizer

ENCODE_AT_ONCE = 10_000  # texts
LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)  # frequent in reviews from the web


class EncodedTexts(NamedTuple):
    """Labelled texts as the model reads them.

    Attributes:
      store: tokens of each text, the first of which is begin-of-sentence.
      labels: the number of each text's class, from zero.
      cut: how many texts were cut to their first tokens.
      unknown: tokens that are not in the vocabulary.
      arrays_digest: see `Encoded`.
    """

    store: TokenStore
    labels: Int[np.ndarray, "texts"]
    cut: int
    unknown: int
    lost: Lost = Lost()
    arrays_digest: str = ""

    @property
    def unknown_fraction(self) -> float:
        """Fraction of the tokens that are not in the vocabulary."""
        return self.unknown / len(self.store.tokens)


def read_texts(texts: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Returns each text as begin-of-sentence and its tokens; HTML line breaks become spaces.

    The first token is pooled by "first", and makes texts without tokens non-empty.
    """
    return [[BOS_ID, *ids] for ids in tokenizer.encode(list(map(_plain, texts)))]


def _plain(text: str) -> str:
    return LINE_BREAK.sub(" ", text)


def encode_labelled(
    items: Iterable[Labelled], labels: Sequence[str], tokenizer: Tokenizer, max_tokens: int
) -> EncodedTexts:
    """Returns labelled texts as their first `max_tokens` tokens and numbers of `labels`."""
    return _texts_of(encode(_parts(items, labels, tokenizer, max_tokens), {"tokens": tokenizer}))


def _texts_of(encoded: Encoded) -> EncodedTexts:
    store, labels, cut = encoded.store("tokens"), encoded.arrays["labels"], encoded.notes["cut"]
    return EncodedTexts(store, labels, cut, encoded.unknown, encoded.lost, encoded.arrays_digest)


def _parts(
    items: Iterable[Labelled], labels: Sequence[str], tokenizer: Tokenizer, max_tokens: int
) -> Iterator[Part]:
    number = {label: i for i, label in enumerate(labels)}
    for chunk in batched(items, ENCODE_AT_ONCE):
        texts = [_plain(item.text) for item in chunk]
        encoded = read_texts(texts, tokenizer)
        tokens = [ids[:max_tokens] for ids in encoded]
        side = Side(tokens, texts, [ids[1:] for ids in encoded])
        numbers = {"labels": [number[item.label] for item in chunk]}
        cut = sum(len(ids) > max_tokens for ids in encoded)
        yield Part({"tokens": side}, numbers, {"cut": cut})


def prepare_labelled(
    items: Iterable[Labelled],
    labels: Sequence[str],
    data: ConfigDict,
    settings: ConfigDict,
    saved: Path | None = None,
    initial: Path | None = None,
) -> tuple[EncodedTexts, Tokenizer]:
    """Returns the training texts, which are read several times, and their tokenizer.

    Args:
      labels: names of the classes, by number.
      data, settings: `config.data` and `config.tokenizer`.
      saved, initial: see `train_tokenizer`.
    """
    texts_digest, labels_digest, count = hashlib.sha256(), hashlib.sha256(), 0
    for item in items:
        count += 1
        texts_digest.update(f"{len(item.text)} {item.text}".encode())
        labels_digest.update(f"{len(item.label)} {item.label}".encode())
    content = texts_digest.hexdigest()
    tokenizer = make_tokenizer(
        Restartable(lambda: (_plain(item.text) for item in items)),
        f"labelled {content}",  # the same texts as documents have other lines
        data,
        settings,
        model=settings.model,
        count=count,
        saved=saved,
        initial=initial,
    )
    key = ("labelled", content, labels_digest.hexdigest(), data.max_tokens)
    parts = _parts(items, labels, tokenizer, data.max_tokens)
    encoded = encode_training_text(parts, {"tokens": tokenizer}, key, data, settings, initial)
    return _texts_of(encoded), tokenizer
