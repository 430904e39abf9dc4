"""From documents to tokens, for language models."""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ml_collections import ConfigDict

from transformer.data.encode import (
    Encoded,
    Part,
    Restartable,
    Side,
    batched,
    encode,
    encode_training_text,
    make_tokenizer,
)
from transformer.data.tokenizer import EOS_ID, Tokenizer
from transformer.errors import RunError

ENCODE_AT_ONCE = 1_000  # documents
# Scripts without blanks between words: Thai, Lao, Tibetan, Burmese; Khmer; kana and Han.
UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3041-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclasses.dataclass(frozen=True)
class Text(Encoded):
    """Encoded documents; each ends with end-of-sentence, except running text.

    Attributes:
      whole: whether this is running text, one document without meaningful start and end.
      digest: of the documents, 8 hexadecimal digits.
    """

    whole: bool = False
    digest: str = ""

    @property
    def documents(self) -> int:
        """The number of documents."""
        return len(self.store)

    @property
    def words(self) -> int:
        """The words of the text before it was encoded, see `count_words`."""
        return self.notes.get("words", 0)

    @property
    def bytes(self) -> int:
        """The bytes of the text in UTF-8."""
        return self.notes.get("bytes", 0)

    @property
    def ends(self) -> int:
        """The number of predicted ends of documents."""
        return 0 if self.whole else self.documents


def encode_text(documents: Iterable[str], tokenizer: Tokenizer, whole: bool) -> Text:
    """Returns documents, which can be read repeatedly, as tokens."""
    encoded = encode(_parts(documents, tokenizer, whole), {"tokens": tokenizer})
    return Text(**vars(encoded), whole=whole, digest=_fingerprint(documents)[0][:8])


def _parts(documents: Iterable[str], tokenizer: Tokenizer, whole: bool) -> Iterator[Part]:
    end = [] if whole else [EOS_ID]
    for chunk in batched(documents, ENCODE_AT_ONCE):
        # Line by line, since sentencepiece is slow on one long text.
        lines = list(_lines(chunk))
        encoded = tokenizer.encode(lines)
        rest = iter(encoded)
        counts = [len(text.splitlines()) for text in chunk]
        tokens = [[*itertools.chain(*itertools.islice(rest, n)), *end] for n in counts]
        words, size = sum(map(count_words, chunk)), sum(len(text.encode()) for text in chunk)
        yield Part({"tokens": Side(tokens, lines, encoded)}, counts={"words": words, "bytes": size})


def count_words(text: str) -> int:
    """Returns the number of words between blanks; each character of `UNSPACED` begins one."""
    return len(UNSPACED.sub(r" \g<0>", text).split())


def _lines(documents: Iterable[str]) -> Iterator[str]:
    """The lines of documents, with their ends."""
    return itertools.chain.from_iterable(text.splitlines(keepends=True) for text in documents)


def _fingerprint(documents: Iterable[str]) -> tuple[str, int]:
    """A digest of documents, and how many lines they have."""
    digest, lines = hashlib.sha256(), 0
    for text in documents:
        digest.update(f"{len(text)} {text}".encode())
        lines += text.count("\n") + 1
    return digest.hexdigest(), lines


def prepare_text(
    documents: Iterable[str],
    data: ConfigDict,
    settings: ConfigDict,
    saved: Path | None = None,
    initial: Path | None = None,
) -> tuple[Text, Tokenizer]:
    """Returns the training text, which is read several times, and its tokenizer.

    Args:
      saved, initial: see `train_tokenizer`.
    """
    (content, lines), whole = _fingerprint(documents), data.documents == "file"
    tokenizer = make_tokenizer(
        Restartable(lambda: _lines(documents)),
        content,
        data,
        settings,
        model=settings.model,
        count=lines,
        reads=(False,),
        saved=saved,
        initial=initial,
    ).writer()
    key, parts = ("documents", content, whole), _parts(documents, tokenizer, whole)
    encoded = encode_training_text(parts, {"tokens": tokenizer}, key, data, settings, initial)
    text = Text(**vars(encoded), whole=whole, digest=content[:8])
    if len(text.store.tokens) < data.context:
        raise RunError(
            f"the training text has {len(text.store.tokens):,} tokens, less than a row of "
            f"data.context={data.context}: lower config.data.context, or name more text"
        )
    return text, tokenizer
