"""Subword tokenizers, trained with sentencepiece on the text of the experiment."""

import dataclasses
import functools
import hashlib
import io
import json
import logging
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from jaxtyping import Int
from ml_collections import ConfigDict

# protobuf makes these classes when they are imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec
from sentencepiece.sentencepiece_pb2 import SentencePieceText

from transformer.data.growth import grow
from transformer.errors import RunError, UserError
from transformer.storage.files import write_bytes, write_json

logger = logging.getLogger(__name__)

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3  # the same ids in every vocabulary
Ids = Sequence[int] | Int[np.ndarray, "_"]  # token ids of one sentence
NEVER_WRITTEN = (PAD_ID, UNK_ID, BOS_ID)  # no text holds them
KINDS = ("bpe", "unigram", "word", "char")
INITIAL = ("keep", "grow", "new")  # the tokenizer of a run that starts from another one
BYTE_KINDS = ("bpe", "unigram")  # that spell what they lack in bytes, if `byte_fallback` is set
BYTES = 256  # pieces that this takes
# With these, `decode` restores every space and line break.
EXACT = {
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "max_sentence_length": 2**20,  # bytes; longer lines are not used
}
EXACT_SYMBOLS = ("\n", "\t")
SAMPLE_SEED = 0  # of the sentences that train a tokenizer, of texts larger than it reads
ALPHABETS = 1000  # characters: more than Latin, Greek and Cyrillic text with all its signs has
MAX_LINE_BYTES = 4192  # sentencepiece's default
MIN_COVERAGE = 0.98  # that sentencepiece takes
NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")


class Tokenizer:
    """Turns raw text into token ids and back.

    Args:
      model: a serialised sentencepiece model.
      origin: digest of the text and the settings that it was trained with; '' if unknown.
    """

    def __init__(self, model: bytes, origin: str = ""):
        self.model, self.origin = model, origin
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size: int = self._processor.vocab_size()

    @property
    def digest(self) -> str:
        """The model's fingerprint, 16 hexadecimal digits."""
        return hashlib.sha256(self.model).hexdigest()[:16]

    @functools.cached_property
    def kind(self) -> str:
        """One of `KINDS`."""
        spec = ModelProto.FromString(self.model).trainer_spec
        return TrainerSpec.ModelType.Name(spec.model_type).lower()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without begin or end."""
        return self._processor.encode(list(texts))

    def unknown_pieces(self, texts: Sequence[str], encoded: Iterable[Ids]) -> Iterator[str]:
        """Yields the unknown words, or parts of words, of each text.

        Args:
          encoded: the ids of each text.
        """
        spelt = self._processor.encode(list(texts), out_type=str)
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

        A token that begins a word starts at the space before it.
        """
        return [
            _starts(text, SentencePieceText.FromString(encoded))
            for text, encoded in zip(
                texts, self._processor.encode(list(texts), out_type="serialized_proto"), strict=True
            )
        ]


def _starts(text: str, encoded: SentencePieceText) -> list[int]:
    """The characters at which tokens start, from the bytes that sentencepiece reports."""
    bytes_before = np.cumsum([0, *(len(character.encode()) for character in text)])
    return np.searchsorted(bytes_before, [piece.begin for piece in encoded.pieces]).tolist()


def save_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Writes a tokenizer's model, unless the file has it already, and its origin."""
    # A full disk must not destroy the existing file, and with it the run.
    if not path.exists() or path.read_bytes() != tokenizer.model:
        write_bytes(path, tokenizer.model)
    note = {"origin": tokenizer.origin, "model": _digest(tokenizer.model)}
    if tokenizer.origin and _read_note(path) != note:
        write_json(path.with_suffix(".json"), note)


def _read_note(path: Path) -> Any:
    try:
        return json.loads(path.with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        return None


def _saved(path: Path, origin: str) -> Tokenizer | None:
    """Returns the tokenizer of a run's folder, if it is undamaged and has this origin."""
    try:
        model = path.read_bytes()
    except OSError:
        return None
    right = _read_note(path) == {"origin": origin, "model": _digest(model)}
    return Tokenizer(model, origin) if right else None


def _is_whole(path: Path) -> bool:
    """Whether the tokenizer of a run's folder is what was written there, of whatever origin."""
    note = _read_note(path) if path.exists() else None
    return isinstance(note, dict) and note.get("model") == _digest(path.read_bytes())


def _digest(data: bytes) -> str:
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
        if not (model := path.read_bytes()):  # which sentencepiece would accept
            raise RuntimeError
        return Tokenizer(model)
    except RuntimeError:
        raise UserError(f"{path} is not a sentencepiece model: restore the original") from None


def with_symbols(settings: ConfigDict, symbols: Sequence[str]) -> ConfigDict:
    """Returns the settings of a tokenizer with more strings that are always one token."""
    if not symbols:
        return settings
    known = dict.fromkeys((*settings.get("symbols", ()), *symbols))
    return ConfigDict({**settings, "symbols": tuple(known)})


def train_tokenizer(
    texts: Iterable[str],
    settings,
    cache_dir: Path,
    content: str,
    *,
    count: int = 0,
    saved: Path | None = None,
    initial: Path | None = None,
    name: str = "the training text",
) -> Tokenizer:
    """Returns a tokenizer trained on `texts`, or a saved one from a run or the cache.

    The same text and settings make the same tokenizer in every process.

    Args:
      texts: raw sentences; read only if there is no tokenizer for them yet, and a second time
        to explain a refusal.
      settings: `config.tokenizer`.
      content: fingerprint of `texts`.
      count: number of texts; if there are more than `max_sentences`, about that many are sampled.
      saved: a file of a run; used if it has the tokenizer of this text and these settings.
      initial: a file of the run that this one starts from, which is kept or grows, by
        `settings.initial`; None for a new tokenizer. Read only if `saved` is not used.
      name: of the texts, for messages.

    Raises:
      UserError: the kind is unknown, or the vocabulary's size does not suit the text; or there is
        an initial tokenizer, and `saved` is of other text.
    """
    if settings.kind not in KINDS:
        raise UserError(
            f"tokenizer.kind='{settings.kind}' is unknown: choose one of {', '.join(KINDS)}"
        )
    read = [item for item in settings.items() if initial or item[0] != "initial"]
    described = repr(sorted(read)) + content
    origin = _digest(described.encode())
    if saved is not None and (tokenizer := _saved(saved, origin)):
        return tokenizer
    sample = _Sample(texts, min(1.0, settings.max_sentences / max(1, count)), name)

    train = functools.partial(_train, sample)
    if initial is not None:
        if saved is not None and _is_whole(saved):
            raise UserError(
                f"{saved} is of other text, or of other keys of config.tokenizer: restore the "
                "original text to go on with its run, or use another --workdir"
            )
        start = load_tokenizer(initial)
        if settings.initial == "keep":
            return Tokenizer(start.model, origin)
        described += start.digest
        train = functools.partial(grow, start.model, train)
    key = _digest(f"{described}{sentencepiece.__version__}".encode())[:24]
    for path in cache_dir.glob(f"{key}.*.model"):
        # Its name contains the digest of its content.
        if path.name == _cached_name(key, model := path.read_bytes()):
            return Tokenizer(model, origin)
        logger.warning(f"{path} is damaged: the tokenizer is trained again")
        path.unlink(missing_ok=True)
    model = train(settings)
    cache_dir.mkdir(parents=True, exist_ok=True)
    write_bytes(cache_dir / _cached_name(key, model), model)
    return Tokenizer(model, origin)


def _cached_name(key: str, model: bytes) -> str:
    return f"{key}.{_digest(model)[:16]}.model"


@dataclasses.dataclass(frozen=True)
class _Sample:
    """A random sample of texts, the same in each iteration, unlike sentencepiece's own sample."""

    texts: Iterable[str]
    fraction: float
    name: str

    def __iter__(self) -> Iterator[str]:
        if self.fraction >= 1.0:
            return iter(self.texts)
        draw = random.Random(SAMPLE_SEED).random
        return (text for text in self.texts if draw() < self.fraction)


def _train(texts: _Sample, settings, **changes) -> bytes:
    """Trains a model in which single characters leave room for longer pieces.

    If those of a script like Chinese would take more than half of the vocabulary, the rarest are
    spelt in bytes.

    Args:
      changes: of sentencepiece's options.
    """
    spelt, model = _spelt_in_bytes(settings), b""
    room = (settings.vocab_size - BYTES) // 2
    try:
        model = _train_model(texts, settings, settings.kind, **changes)
        if not spelt or _characters(model) <= max(room, ALPHABETS):
            return model
    except (RuntimeError, ValueError) as error:
        if not spelt or room < 1 or not _too_many_characters(str(error)):
            raise RunError(_explain(str(error), texts, settings)) from None
    try:
        first = EOS_ID + 1 + len(settings.get("symbols", ()))
        frequent = Tokenizer(_train_model(texts, settings, "char", vocab_size=first + room))
        kept = "".join(frequent.pieces(range(first, frequent.vocab_size))).replace("▁", "")
        limits = {"character_coverage": MIN_COVERAGE, "required_chars": kept}
        return _train_model(texts, settings, settings.kind, **limits, **changes)
    except (RuntimeError, ValueError) as error:
        if model:
            return model
        raise RunError(_explain(str(error), texts, settings)) from None


def _spelt_in_bytes(settings) -> bool:
    return settings.byte_fallback and settings.kind in BYTE_KINDS


def _characters(model: bytes) -> int:
    """How many pieces of a model are single characters."""
    pieces = ModelProto.FromString(model).pieces
    return sum(piece.type == piece.NORMAL and len(piece.piece) == 1 for piece in pieces)


def _train_model(texts: Iterable[str], settings, kind: str, **changes) -> bytes:
    """Returns sentencepiece's model.

    Args:
      changes: changes of its options.
    """
    model = io.BytesIO()
    symbols = [*(EXACT_SYMBOLS if settings.keep_spaces else ()), *settings.get("symbols", ())]
    options = {
        "vocab_size": settings.vocab_size,
        "character_coverage": settings.character_coverage,
        "normalization_rule_name": settings.normalization,
        "byte_fallback": settings.byte_fallback and kind in BYTE_KINDS,
        # A word or character vocabulary is what occurs, up to `vocab_size`.
        "hard_vocab_limit": kind in ("bpe", "unigram"),
        **(EXACT if settings.keep_spaces else {}),
        **({"user_defined_symbols": symbols} if symbols else {}),
        **changes,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=kind,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        use_all_vocab=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def _too_many_characters(message: str) -> re.Match[str] | None:
    """If the vocabulary is too small, the match whose first group is the minimum size."""
    return re.search(r"required_chars\. \d+ vs (\d+)", message)


def _explain(message: str, texts: _Sample, settings) -> str:
    """Returns the error with the key to change if sentencepiece fails."""
    size = settings.vocab_size
    if limit := re.search(r"value <= (\d+)", message):
        characters = _train_model(texts, settings, "char")
        least = Tokenizer(characters).vocab_size + BYTES * _spelt_in_bytes(settings)
        # With the largest vocabulary, most sentences would be one or two tokens, too few to learn
        # from.
        return (
            f"tokenizer.vocab_size={size} is more than the training text allows, at most "
            f"{limit[1]}: set --config.tokenizer.vocab_size={max(int(limit[1]) // 2, least)}"
        )
    if limit := _too_many_characters(message):
        what, fix = (
            "the characters of the training text",
            f"lower --config.tokenizer.character_coverage from {settings.character_coverage}",
        )
        if _spelt_in_bytes(settings):
            what = f"{what} and the {BYTES} bytes that spell others"
            fix = "set --config.tokenizer.byte_fallback=False"
        return (
            f"tokenizer.vocab_size={size} is less than {what}: set "
            f"--config.tokenizer.vocab_size={limit[1]} or more, or {fix}"
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        longest = EXACT["max_sentence_length"] if settings.keep_spaces else MAX_LINE_BYTES
        sizes = enumerate((len(text.encode()) for text in texts.texts), 1)
        number, size = next((pair for pair in sizes if pair[1] > longest), (1, 0))
        return (
            f"{texts.name}: line {number} has {size:,} bytes, and none has up to the {longest:,} "
            "of which a tokenizer learns: break it into lines of a sentence or a paragraph"
            if size
            else f"{texts.name} has only blank lines: name a file with sentences"
        )
    if "charsmap" in message:
        return (
            f"tokenizer.normalization='{settings.normalization}' is unknown: choose one of "
            f"{', '.join(NORMALIZATIONS)}"
        )
    return f"sentencepiece could not train a tokenizer of {size} tokens: {message}"
