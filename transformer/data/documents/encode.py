"""From documents to tokens, for language models."""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ml_collections import ConfigDict

from transformer.data.encode import (
    Encoded,
    EncodedBuilder,
    Restartable,
    TokenizerText,
    batched,
    prepare,
)
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import EOS_ID, Tokenizer
from transformer.data.unknown import NOTHING_LOST, Lost
from transformer.errors import RunError, UserError

ENCODE_AT_ONCE = 1_000  # documents
# Scripts without blanks between words: Thai, Lao, Tibetan, Burmese; Khmer; kana and Han.
UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3041-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclasses.dataclass(frozen=True)
class Text:
    """Encoded documents with statistics of their text.

    Attributes:
      store: tokens of each document; the last is end-of-sentence, except in running text.
      whole: whether this is running text, one document without meaningful start and end.
      documents, words, bytes: of the text before it was encoded, without ends. Words stand
        between white space; bytes are of UTF-8.
      unknown: tokens that are not in the vocabulary.
      digest: of the documents, 8 hexadecimal digits.
      lost: the unknown words or characters.
      arrays_digest: see `Encoded`.
    """

    store: TokenStore
    whole: bool
    documents: int
    words: int
    bytes: int
    unknown: int
    digest: str
    lost: Lost = NOTHING_LOST
    arrays_digest: str = ""

    @property
    def ends(self) -> int:
        """The number of predicted ends of documents."""
        return 0 if self.whole else self.documents


def encode_text(documents: Iterable[str], tokenizer: Tokenizer, whole: bool) -> Text:
    """Encodes documents as tokens.

    Args:
      whole: see `Text`.
    """
    return _text_of(_encode(documents, tokenizer, whole, None))


def _text_of(encoded: Encoded) -> Text:
    store = encoded.store("tokens")
    return Text(
        store,
        unknown=encoded.unknown,
        lost=encoded.lost,
        arrays_digest=encoded.arrays_digest,
        **encoded.notes,
    )


def _encode(
    documents: Iterable[str], tokenizer: Tokenizer, whole: bool, folder: Path | None
) -> Encoded:
    builder, digest = EncodedBuilder(folder, tokens=tokenizer), hashlib.sha256()
    number = words = size = 0
    end = [] if whole else [EOS_ID]
    for chunk in batched(documents, ENCODE_AT_ONCE):
        # Line by line, since sentencepiece is slow on one long text.
        lines = list(_lines(chunk))
        encoded = tokenizer.encode(lines)
        parts = iter(encoded)
        counts = [len(text.splitlines()) for text in chunk]
        tokens = [[*itertools.chain(*itertools.islice(parts, n)), *end] for n in counts]
        builder.add("tokens", tokens, lines, encoded)
        number += len(chunk)
        for text in chunk:
            words += count_words(text)
            size += len(text.encode())
            digest.update(_delimited(text))
    return builder.build(
        whole=whole, documents=number, words=words, bytes=size, digest=digest.hexdigest()[:8]
    )


def count_words(text: str) -> int:
    """Returns the number of words between blanks; each character of `UNSPACED` begins one."""
    return len(UNSPACED.sub(r" \g<0>", text).split())


def _lines(documents: Iterable[str]) -> Iterator[str]:
    """The lines of documents, with their ends."""
    return itertools.chain.from_iterable(text.splitlines(keepends=True) for text in documents)


def _delimited(text: str) -> bytes:
    """A document as bytes whose concatenation is unambiguous."""
    return f"{len(text)} {text}".encode()


def prepare_text(
    documents: Iterable[str],
    data: ConfigDict,
    settings: ConfigDict,
    saved: Path | None = None,
    initial: Path | None = None,
) -> tuple[Text, Tokenizer]:
    """Returns the training text and its tokenizer, both from the cache if they are there.

    Args:
      documents: restartable: hashing, training a tokenizer and encoding read it in turn.
      data: `config.data`.
      settings: `config.tokenizer`.
      saved: a run's tokenizer, taken if it is of this text.
      initial: the tokenizer of the run that this one starts from, if it is kept or grows.

    Raises:
      UserError: there is no text, the vocabulary does not suit it, too many tokens are unknown, or
        it is shorter than a row.
    """
    digest, lines = hashlib.sha256(), 0
    for text in documents:
        digest.update(_delimited(text))
        lines += text.count("\n") + 1
    content, whole = digest.hexdigest(), data.documents == "file"

    def encode(tokenizers: Sequence[Tokenizer], folder: Path) -> Encoded:
        return _encode(documents, *tokenizers, whole=whole, folder=folder)

    restartable = Restartable(lambda: _lines(documents))
    texts = [TokenizerText(restartable, content, lines, (False,), saved, initial)]
    key = ("documents", content, whole)
    [tokenizer], encoded = prepare(texts, encode, key, data, settings)
    text = _text_of(encoded)
    if not text.documents:
        raise UserError("no training text is left: name a file with some")
    if len(text.store.tokens) < data.context:
        raise RunError(
            f"the training text has {len(text.store.tokens):,} tokens, less than a row of "
            f"data.context={data.context}: lower config.data.context, or name more text"
        )
    return text, tokenizer
