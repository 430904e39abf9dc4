"""Subword tokenizers: files, imported models, and strings that are always one token."""

import copy
import functools
import hashlib
import itertools
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from jaxtyping import Bool
from ml_collections import ConfigDict

# protobuf creates these classes when they are imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec
from sentencepiece.sentencepiece_pb2 import SentencePieceText

from transformer.data.batches import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Ids
from transformer.data.characters import PUNCTUATION, canonicalize
from transformer.data.tokenizer.draws import WORD_START, Draws
from transformer.data.words import Words
from transformer.errors import RunError, UserError
from transformer.files import MAX_FILE, open_input, parse_json, read_file, write_bytes, write_json

NEVER_WRITTEN = (PAD_ID, UNK_ID, BOS_ID)  # ids that occur in no text
# Characters that occur in no text: a Unicode noncharacter, and a space, which is read as '▁'.
NO_TEXT = "\U0010ffff "
SYMBOL_SCORE = 1000.0  # score per character of a symbol
# Names of pieces that no text can produce.
RESERVED = re.compile(r"<pad>|<unk>|<s>|</s>|<0x[0-9A-F]{2}>|.*[▁\U0010ffff].*")
SPECIAL = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<s>", EOS_ID: "</s>"}
READING_PREFIX = "reading:"  # prefix of the name of a normalisation that target texts do not get

logger = logging.getLogger(__name__)


class Tokenizer:
    """Converts raw text to token ids and back.

    Texts are first canonicalised (see `canonicalize`), unless the model keeps all spaces.

    Args:
      model: a serialised sentencepiece model.
      origin: digest of the training data and the settings, or '' if it is unknown.
      writes: whether the texts are targets. Characters that are normalised in model inputs are kept
        in targets, but an imported model normalises all texts.
    """

    def __init__(self, model: bytes, origin: str = "", writes: bool = False):
        self.model, self.origin, self._writes = model, origin, writes
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size: int = self._processor.vocab_size()
        proto = self.proto()
        self.kind: str = TrainerSpec.ModelType.Name(proto.trainer_spec.model_type).lower()
        self.symbols = tuple(p.piece for p in proto.pieces if p.type == p.USER_DEFINED)
        self.words = Words.from_json(proto.normalizer_spec.normalization_rule_tsv, self.symbols)
        self._unused = {p.piece: i for i, p in enumerate(proto.pieces) if p.type == p.UNUSED}
        self._canonical = canonicalize if proto.normalizer_spec.remove_extra_whitespaces else str
        if (used := proto.SerializeToString()) != model:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=used)

    def proto(self) -> ModelProto:
        """Returns the sentencepiece model in use, which may have an extra piece at the end."""
        proto = ModelProto.FromString(self.model)
        if self._writes and proto.normalizer_spec.name.startswith(READING_PREFIX):
            proto.normalizer_spec.precompiled_charsmap = b""
        is_unigram = proto.trainer_spec.model_type == TrainerSpec.UNIGRAM
        if is_unigram and any(p.type == p.USER_DEFINED and len(p.piece) > 1 for p in proto.pieces):
            # sentencepiece scores a symbol by its number of characters times the best score of any
            # other piece, and a segmentation with fewer pieces may score higher. An extra piece
            # that occurs in no text makes the score of symbols the highest; ids are unchanged.
            proto.pieces.add(piece=NO_TEXT, score=SYMBOL_SCORE)
        return proto

    def writer(self) -> "Tokenizer":
        """Returns the tokenizer for texts that the model generates."""
        return Tokenizer(self.model, self.origin, writes=True)

    def typed(self) -> "Tokenizer":
        """Returns a tokenizer for typed texts, with or without a space before punctuation.

        If a word vocabulary has only attached or only separate punctuation, both styles are valid.
        """
        words, other = "\n".join(self.pieces(range(self.vocab_size))), copy.copy(self)
        alone = re.search(r"^▁[.,;:!?…]+$", words, re.MULTILINE) is not None
        if self.kind == "word" and alone != bool(re.search(r"\w[.,;:!?…]$", words, re.MULTILINE)):
            before = r" \1" if alone else r"\1"
            other._canonical = lambda text: PUNCTUATION.sub(before, self._canonical(text))
        return other

    @property
    def digest(self) -> str:
        """Fingerprint of the model, as 16 hexadecimal digits."""
        return hashlib.sha256(self.model).hexdigest()[:16]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without begin-of-sentence and end-of-sentence.

        A run of unknown characters may match a piece of type UNUSED, as in imported models.
        """
        texts = [*map(self._canonical, texts)]
        one = len(texts) == 1  # for a list, sentencepiece starts threads, which is ten times slower
        encoded = [self._processor.encode(texts[0])] if one else self._processor.encode(texts)
        for text, ids in zip(texts, encoded, strict=True) if self._unused else ():
            if UNK_ID in ids:
                pieces = zip(self._processor.encode(text, out_type=str), ids, strict=True)
                ids[:] = [self._unused.get(p, UNK_ID) if i == UNK_ID else i for p, i in pieces]
        return encoded

    def normalize(self, text: str) -> str:
        """Returns the normalised text, with '▁' in place of spaces."""
        return self._processor.normalize(self._canonical(text))

    def sample(self, text: str, strength: float, uniform: Callable[[], float]) -> list[int]:
        """Samples a segmentation of a text from `normalize`, and returns the token ids.

        For BPE, `strength` is the probability of dropping a merge (Provilkov et al. 2020); for
        unigram, it is the exponent of a segmentation's probability (Kudo 2018). `uniform` samples
        from [0, 1).
        """
        return self._draws.draw(text, strength, uniform)

    @functools.cached_property
    def _draws(self) -> Draws:
        return Draws(ModelProto.FromString(self.model))

    def decode(self, ids: Ids) -> str:
        """Decodes the ids before end-of-sentence; invalid bytes become U+FFFD."""
        text = itertools.takewhile(lambda token: token != EOS_ID, ids)
        return self._processor.decode([int(t) for t in text if t not in (PAD_ID, BOS_ID)])

    def pieces(self, ids: Ids) -> list[str]:
        """Returns the tokens as readable strings, with '▁' before a word, and bytes as <0xF0>."""
        return [self._processor.id_to_piece(int(token)) for token in ids]

    @functools.cached_property
    def word_starts(self) -> Bool[np.ndarray, "V"]:
        """Whether each token begins a word."""
        pieces = self.pieces(range(self.vocab_size))
        starts = np.array([piece.startswith(WORD_START) for piece in pieces])
        starts[UNK_ID] = self.kind == "word"
        return starts

    def has_pieces_of(self, other: "Tokenizer") -> bool:
        """Returns whether both tokenizers have the same vocabulary; segmentation may differ."""
        ours, theirs = (each.pieces(range(each.vocab_size)) for each in (self, other))
        return ours == theirs

    def starts(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the character offset of each token in its text, from zero.

        A token that begins a word starts at the space before the word. Texts must be canonical.
        """
        starts = []
        encoded = self._processor.encode(list(texts), out_type="serialized_proto")
        for text, proto in zip(texts, map(SentencePieceText.FromString, encoded), strict=True):
            ends = np.cumsum([0, *(len(character.encode()) for character in text)])  # in bytes
            starts.append(np.searchsorted(ends, [piece.begin for piece in proto.pieces]).tolist())
        return starts


def with_words(tokenizer: Tokenizer, words: Callable[[], Words] | None) -> Tokenizer:
    """Adds the words of the training data to a tokenizer, in a field that encoding ignores."""
    if words is None or tokenizer.words.forms:
        return tokenizer
    proto = ModelProto.FromString(tokenizer.model)
    proto.normalizer_spec.normalization_rule_tsv = words().to_json()
    return Tokenizer(proto.SerializeToString(deterministic=True), tokenizer.origin)


def save_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Saves the model and the origin of a tokenizer, unless they are already saved."""
    # A full disk must not corrupt the existing file, which the run needs.
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
    """Returns a saved tokenizer, or None if it is missing or damaged, or has another origin."""
    model = read_file(path) if path.is_file() else b""
    right = _read_note(path) == {"origin": origin, "model": digest_of(model)}
    return Tokenizer(model, origin) if right else None


def digest_of(data: bytes) -> str:
    """Returns a fingerprint as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def load_tokenizer(path: Path) -> Tokenizer:
    """Loads a tokenizer from a file."""
    fix = "a checkpoint cannot be read without it: restore the original"
    with open_input(path, MAX_FILE, fix) as file:
        model = file.read()
    try:
        if not model:  # sentencepiece would accept an empty model
            raise RuntimeError
        return Tokenizer(model)
    except RuntimeError:
        raise UserError(f"{path} is not a sentencepiece model: {fix}") from None


# -- an existing sentencepiece model instead of a trained one


def adopt_tokenizer(name: str, settings: ConfigDict, saved: Path | None = None) -> Tokenizer:
    """Imports a sentencepiece model file as a tokenizer with this project's special ids.

    The tokenizer has the pieces of the model, the symbols of `config.tokenizer`, and any special
    pieces that the model lacks. If the run's `saved` file has this tokenizer, that file is loaded.
    """
    check_symbols(settings)
    origin = digest_of(repr(("adopted", name, settings.symbols)).encode())
    tokenizer = saved_tokenizer(saved, origin) if saved else None
    tokenizer = tokenizer or _read_model(name, settings.symbols, origin)
    refuse_broken_symbols(tokenizer, settings)
    logger.info(
        f"{name}: {tokenizer.vocab_size:,} subwords of kind {tokenizer.kind}; tokenizer.vocab_size="
        f"{settings.vocab_size} and the other keys of a tokenizer's training do not count"
    )
    return tokenizer


def _read_model(name: str, symbols: tuple[str, ...], origin: str) -> Tokenizer:
    model = read_file(Path(name).expanduser())
    try:
        proto = ModelProto.FromString(model)
        Tokenizer(model)
        if not proto.pieces:
            raise RuntimeError
        spec = proto.trainer_spec
        names = {*SPECIAL.values(), spec.pad_piece, spec.bos_piece, spec.eos_piece}
        others = [
            piece
            for piece in proto.pieces
            if piece.type != piece.UNKNOWN
            and (piece.type != piece.CONTROL or piece.piece not in names)
        ]
        set_pieces(proto, others, symbols)
        return Tokenizer(proto.SerializeToString(), origin)
    except (DecodeError, RuntimeError):
        raise UserError(
            f"tokenizer.model={name!r} is not a sentencepiece model, or is damaged: name a file "
            "such as spm_train writes, *.model"
        ) from None


def set_pieces(proto: ModelProto, others: Sequence[Any], symbols: Sequence[str] = ()) -> None:
    """Sets the pieces of a sentencepiece model: four special pieces, `others`, then `symbols`."""
    spec, others = proto.trainer_spec, list(others)  # a copy, since they may be `proto.pieces`
    del proto.pieces[:]
    for number, text in SPECIAL.items():
        kind = "UNKNOWN" if number == UNK_ID else "CONTROL"
        proto.pieces.add(piece=text, type=ModelProto.SentencePiece.Type.Value(kind))
    proto.pieces.extend(others)
    add_symbols(proto, symbols)
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = SPECIAL
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL.values()
    spec.vocab_size = len(proto.pieces)


# -- strings that are always one token, such as placeholders and tags


def check_symbols(settings: ConfigDict) -> None:
    """Raises UserError for invalid entries in `tokenizer.symbols`, or any entry for kind "word"."""
    for number, symbol in enumerate(settings.symbols):
        is_usable = isinstance(symbol, str) and re.fullmatch(r"\S+", symbol)
        if not is_usable or RESERVED.fullmatch(symbol) or symbol in settings.symbols[:number]:
            raise UserError(
                f"tokenizer.symbols has {symbol!r}: a symbol is a text without blanks, once, which "
                "the tokenizer does not need itself, as in config.tokenizer.symbols='{name},<URL>'"
            )
    if settings.symbols and settings.kind == "word" and not settings.model:
        raise _no_symbols_in_words()


def with_symbols(settings: ConfigDict, symbols: Sequence[str]) -> ConfigDict:
    """Returns tokenizer settings with additional symbols, which are always one token."""
    if not symbols:
        return settings
    return ConfigDict({**settings, "symbols": tuple(dict.fromkeys((*settings.symbols, *symbols)))})


def add_symbols(model: ModelProto, symbols: Sequence[str]) -> None:
    """Makes each symbol a user-defined piece of a sentencepiece model; adds missing pieces."""
    there = {piece.piece: piece for piece in model.pieces}
    for symbol in symbols:
        piece = there.get(symbol) or model.pieces.add(piece=symbol)
        piece.type = piece.USER_DEFINED


def refuse_broken_symbols(
    tokenizer: Tokenizer, settings: ConfigDict, fix: str = "choose another"
) -> None:
    """Raises RunError, with the advice `fix`, unless each symbol is one token even in words."""
    if settings.symbols and tokenizer.kind == "word":
        raise _no_symbols_in_words()
    for symbol in settings.symbols:
        if f"▁{symbol}" in tokenizer.symbols:  # a tag of an imported model, which begins a text
            continue
        [ids] = tokenizer.encode([f"a{symbol}a {symbol}"])
        if tokenizer.pieces(ids).count(symbol) != 2:
            raise RunError(
                f"{symbol!r} of tokenizer.symbols or a source_tag is split by the tokenizer: {fix}"
            )


def _no_symbols_in_words() -> UserError:
    return UserError(
        "tokenizer.symbols and placeholders cannot be found within the words of kind=word: set "
        "config.tokenizer.kind to bpe, unigram or char"
    )
