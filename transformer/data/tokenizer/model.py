"""A subword tokenizer, and its file in a run's folder."""

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from jaxtyping import Int

# protobuf makes these classes when they are imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec
from sentencepiece.sentencepiece_pb2 import SentencePieceText

from transformer.data.characters import canonicalize
from transformer.data.tokenizer.draws import Draws
from transformer.data.tokenizer.ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.errors import UserError
from transformer.storage.files import write_bytes, write_json
from transformer.storage.reading import parse_json, read_file

Ids = Sequence[int] | Int[np.ndarray, "_"]  # token ids of one sentence
NEVER_WRITTEN = (PAD_ID, UNK_ID, BOS_ID)  # no text holds them
KINDS = ("bpe", "unigram", "word", "char")
# Which no text has: Unicode keeps the first character free, and a blank is read as '▁'.
NO_TEXT = "\U0010ffff "
SYMBOL_SCORE = 1000.0  # for each character of a symbol
READING = "reading:"  # begins the name of a normalisation that texts which are written do not pass


class Tokenizer:
    """Turns raw text into token ids and back.

    Every text is canonical, see `canonicalize`, unless the model keeps all blanks.

    Args:
      model: a serialised sentencepiece model.
      origin: digest of the text and the settings that it was trained with; '' if unknown.
      writes: whether the texts are written, as targets are: they keep the characters that the
        model's normalisation changes in texts that are only read. An adopted model's changes all.

    Attributes:
      kind: one of `KINDS`.
      symbols: the strings that are always one token.
    """

    def __init__(self, model: bytes, origin: str = "", writes: bool = False):
        self.model, self.origin = model, origin
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size: int = self._processor.vocab_size()
        proto = ModelProto.FromString(model)
        self.kind: str = TrainerSpec.ModelType.Name(proto.trainer_spec.model_type).lower()
        self.symbols = tuple(p.piece for p in proto.pieces if p.type == p.USER_DEFINED)
        self._canonical = canonicalize if proto.normalizer_spec.remove_extra_whitespaces else str
        if writes and proto.normalizer_spec.name.startswith(READING):
            proto.normalizer_spec.precompiled_charsmap = b""
        if self.kind == "unigram" and any(len(symbol) > 1 for symbol in self.symbols):
            _bind(proto)
        if (changed := proto.SerializeToString()) != model:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=changed)

    def writer(self) -> "Tokenizer":
        """Returns the tokenizer for texts that are written."""
        return Tokenizer(self.model, self.origin, writes=True)

    @property
    def digest(self) -> str:
        """The model's fingerprint, 16 hexadecimal digits."""
        return hashlib.sha256(self.model).hexdigest()[:16]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without begin or end."""
        if len(texts) == 1:  # for lists sentencepiece starts threads, which take ten times as long
            return [self._processor.encode(self._canonical(texts[0]))]
        return self._processor.encode([*map(self._canonical, texts)])

    def normalize(self, text: str) -> str:
        """Returns the text that is segmented, in which '▁' stands for a blank."""
        return self._processor.normalize(self._canonical(text))

    def sample(self, text: str, strength: float, uniform: Callable[[], float]) -> list[int]:
        """Returns the ids of a random segmentation.

        Args:
          text: normalised, see `normalize`.
          strength: of kind bpe, the probability that a merge is left out (Provilkov et al. 2020);
            of kind unigram, the exponent of a segmentation's probability among all that there are
            (Kudo 2018).
          uniform: returns a random number from 0 to below 1, such as `random.Random(seed).random`.
        """
        return self._draws.draw(text, strength, uniform)

    @functools.cached_property
    def _draws(self) -> Draws:
        return Draws(ModelProto.FromString(self.model))

    def unknown_pieces(self, texts: Sequence[str], encoded: Iterable[Ids]) -> Iterator[str]:
        """Yields the unknown words, or parts of words, of each text.

        Args:
          encoded: the ids of each text.
        """
        spelt = self._processor.encode([*map(self._canonical, texts)], out_type=str)
        for ids, pieces in zip(encoded, spelt, strict=True):
            for token, piece in zip(ids, pieces, strict=True):
                if token == UNK_ID:
                    yield from filter(None, piece.split("▁"))

    def decode(self, ids: Ids) -> str:
        """Returns the text of ids up to the first end-of-sentence.

        Bytes that spell no character become U+FFFD.
        """
        kept = []
        for token in ids:
            if token == EOS_ID:
                break
            if token not in (PAD_ID, BOS_ID):
                kept.append(int(token))
        return self._processor.decode(kept)

    def pieces(self, ids: Ids) -> list[str]:
        """Returns the tokens as text, for people to read; '▁' begins a word, <0xF0> is a byte."""
        return [self._processor.id_to_piece(int(token)) for token in ids]

    def starts(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns where each token starts in its text, in characters from zero.

        A token that begins a word starts at the space before it. The texts are canonical.
        """
        return [
            _starts(text, SentencePieceText.FromString(encoded))
            for text, encoded in zip(
                texts, self._processor.encode(list(texts), out_type="serialized_proto"), strict=True
            )
        ]


def _bind(proto: ModelProto) -> None:
    """Lets a unigram model never split its symbols, with the same ids.

    sentencepiece scores a symbol, for each of its characters, by the best score of any other
    piece, which a segmentation of fewer pieces may beat; so one more piece, which no text has, has
    a score that nothing beats.
    """
    proto.pieces.add(piece=NO_TEXT, score=SYMBOL_SCORE)


def _starts(text: str, encoded: SentencePieceText) -> list[int]:
    """The characters at which tokens start, from the bytes that sentencepiece reports."""
    bytes_before = np.cumsum([0, *(len(character.encode()) for character in text)])
    return np.searchsorted(bytes_before, [piece.begin for piece in encoded.pieces]).tolist()


def save_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Writes a tokenizer's model, unless the file has it already, and its origin."""
    # A full disk must not destroy the existing file, and with it the run.
    if not path.exists() or path.read_bytes() != tokenizer.model:
        write_bytes(path, tokenizer.model)
    note = {"origin": tokenizer.origin, "model": digest_of(tokenizer.model)}
    if tokenizer.origin and _read_note(path) != note:
        write_json(path.with_suffix(".json"), note)


def _read_note(path: Path) -> Any:
    try:
        return parse_json(read_file(path.with_suffix(".json")), dict)[0]
    except OSError:
        return None


def saved_tokenizer(path: Path, origin: str) -> Tokenizer | None:
    """Returns the tokenizer of a run's folder, if it is undamaged and has this origin."""
    try:
        model = read_file(path)
    except OSError:
        return None
    right = _read_note(path) == {"origin": origin, "model": digest_of(model)}
    return Tokenizer(model, origin) if right else None


def is_whole(path: Path) -> bool:
    """Whether the tokenizer of a run's folder is as it was written, of whatever origin."""
    note = _read_note(path) if path.exists() else None
    return isinstance(note, dict) and note.get("model") == digest_of(read_file(path))


def digest_of(data: bytes) -> str:
    """Returns a fingerprint, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def load_tokenizer(path: Path) -> Tokenizer:
    """Returns the tokenizer of a file.

    Raises:
      UserError: the file is missing or not a tokenizer.
    """
    if not path.exists():
        raise UserError(
            f"{path} is missing: a checkpoint cannot be read without its tokenizer; "
            "restore the file that was written with it"
        )
    try:
        if not (model := read_file(path)):  # which sentencepiece would accept
            raise RuntimeError
        return Tokenizer(model)
    except RuntimeError:
        raise UserError(f"{path} is not a sentencepiece model: restore the original") from None
