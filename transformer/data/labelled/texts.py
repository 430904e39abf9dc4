"""From labelled texts to tokens and class numbers, and their batches in length buckets."""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.buckets import BucketPlan
from transformer.data.encode import (
    Encoded,
    EncodedPart,
    Restartable,
    Side,
    batched,
    encode,
    tokenize_training_text,
)
from transformer.data.pairs import Labelled
from transformer.data.tokenizer import BOS_ID, Ids, Tokenizer
from transformer.data.tokenizer.train import MAX_LINE_BYTES

ENCODE_AT_ONCE = 10_000  # texts
LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)  # frequent in reviews from the web
NO_LABEL = 0  # marks a row of padding


class EncodedTexts(Encoded):
    """Labelled texts as model inputs; each starts with begin-of-sentence."""

    @property
    def labels(self) -> Int[np.ndarray, "texts"]:
        """The class number of each text, from zero."""
        return self.arrays["labels"]

    @property
    def cut(self) -> int:
        """Number of texts that were truncated."""
        return self.notes["cut"]

    def items(self) -> list[Ids]:
        """Returns the tokens of each text."""
        return [self.store[i] for i in range(len(self.store))]


def read_texts(texts: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Returns each text as tokens after begin-of-sentence, whose state "first" pools.

    HTML line breaks become spaces.
    """
    return [[BOS_ID, *ids] for ids in tokenizer.encode(list(map(_in_one_line, texts)))]


def _in_one_line(text: str) -> str:
    return LINE_BREAK.sub(" ", text)


def _labelled_lines(text: str) -> list[str]:
    """Returns a text, split if it is longer than the lines that a tokenizer is trained on."""
    step = MAX_LINE_BYTES // 4 if len(text.encode()) > MAX_LINE_BYTES else len(text)
    return [text[start : start + step] for start in range(0, len(text), step)]


def encode_labelled(
    items: Iterable[Labelled], labels: Sequence[str], tokenizer: Tokenizer, max_tokens: int
) -> EncodedTexts:
    """Returns labelled texts as their first `max_tokens` tokens and indices into `labels`."""
    encoded = encode(_labelled_parts(items, labels, max_tokens, tokenizer), {"tokens": tokenizer})
    return EncodedTexts(**vars(encoded))


def _labelled_parts(
    items: Iterable[Labelled], labels: Sequence[str], max_tokens: int, tokenizer: Tokenizer
) -> Iterator[EncodedPart]:
    number = {label: i for i, label in enumerate(labels)}
    for chunk in batched(items, ENCODE_AT_ONCE):
        texts = [_in_one_line(item.text) for item in chunk]
        encoded = read_texts(texts, tokenizer)
        tokens = [ids[:max_tokens] for ids in encoded]
        side = Side(tokens, texts, [ids[1:] for ids in encoded])
        numbers = {"labels": [number[item.label] for item in chunk]}
        cut = sum(len(ids) > max_tokens for ids in encoded)
        yield EncodedPart({"tokens": side}, numbers, {"cut": cut})


def prepare_labelled(
    items: Iterable[Labelled],
    labels: Sequence[str],
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    initial: Path | None = None,
) -> tuple[EncodedTexts, Tokenizer]:
    """Returns the encoded training texts, which are read several times, and their tokenizer.

    Args:
      labels: class names, by number.
      folder, initial: see `tokenize_training_text`.
    """
    texts_digest, labels_digest, count = hashlib.sha256(), hashlib.sha256(), 0
    for item in items:
        count += 1
        texts_digest.update(f"{len(item.text)} {item.text}".encode())
        labels_digest.update(f"{len(item.label)} {item.label}".encode())
    content = texts_digest.hexdigest()
    lines = Restartable(
        lambda: (line for item in items for line in _labelled_lines(_in_one_line(item.text)))
    )
    parts = functools.partial(_labelled_parts, items, labels, data.max_tokens)
    key = ("labelled", content, labels_digest.hexdigest(), data.max_tokens)
    # Keyed apart from documents, which split the same text into other lines.
    about = lines, f"labelled {content}", count, parts, key
    encoded, tokenizer = tokenize_training_text(*about, data, settings, folder, initial)
    return EncodedTexts(**vars(encoded)), tokenizer


# -- batches


class LabelledBatch(NamedTuple):
    """B texts and their classes, from one; class 0 is a row of padding or an unknown class.

    `source` is the model input: token ids padded with 0, or a `PictureText`.
    """

    source: Any
    labels: Int[np.ndarray, "B"]


def stack_labels(labels: Sequence[int], rows: int) -> Int[np.ndarray, "rows"]:
    """Returns classes from zero as an array of `rows` classes from one, padded with 0."""
    filled = np.full(rows, NO_LABEL, np.int32)
    filled[: len(labels)] = np.add(labels, 1)
    return filled


class LabelledPlan(BucketPlan[LabelledBatch]):
    """All training batches of labelled texts, see `BucketPlan`."""

    def __init__(self, texts: EncodedTexts, *numbers: Any, **named: Any):
        self.texts = texts
        super().__init__(texts.store.lengths, *numbers, **named)

    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> LabelledBatch:
        """Returns texts and classes; both are zero in a row of padding."""
        labels = np.where(numbers < 0, NO_LABEL, self.texts.labels[numbers] + 1)
        return LabelledBatch(self.texts.store.gather(numbers, length)[0], labels.astype(np.int32))
