"""Training of subword tokenizers by sentencepiece on the text of the experiment."""

import contextlib
import dataclasses
import functools
import io
import itertools
import logging
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece
from ml_collections import ConfigDict

# protobuf makes this class when it is imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from transformer.data.characters import RULE
from transformer.data.tokenizer.growth import grow
from transformer.data.tokenizer.ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.tokenizer.model import (
    KINDS,
    NO_TEXT,
    READING,
    Tokenizer,
    digest_of,
    is_whole,
    load_tokenizer,
    saved_tokenizer,
)
from transformer.data.tokenizer.symbols import check_symbols, refuse_broken_symbols
from transformer.errors import RunError, UserError
from transformer.storage.files import write_bytes
from transformer.storage.reading import OddFileError, read_file

logger = logging.getLogger(__name__)

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
# Keys that say nothing of the training.
LATER = ("bpe_dropout", "sampling_alpha", "sampling_sides", "model", "target_model")
NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")


def train_tokenizer(
    texts: Iterable[str],
    settings,
    cache_dir: Path,
    content: str,
    *,
    count: int = 0,
    reads: Sequence[bool] = (True,),
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
      reads: see `TokenizerText`.
      saved: a file of a run; used if it has the tokenizer of this text and these settings.
      initial: a file of the run that this one starts from, which is kept or grows, by
        `settings.initial`; None for a new tokenizer. Read only if `saved` is not used.
      name: of the texts, for messages.

    Raises:
      UserError: the kind is unknown, the vocabulary's size does not suit the text, or a symbol
        cannot be one; or there is an initial tokenizer, and `saved` is of other text.
    """
    if settings.kind not in KINDS:
        raise UserError(
            f"tokenizer.kind='{settings.kind}' is unknown: choose one of {', '.join(KINDS)}"
        )
    check_symbols(settings)
    unread = LATER if initial else (*LATER, "initial")
    described = repr([item for item in sorted(settings.items()) if item[0] not in unread]) + content
    origin = digest_of(described.encode())
    if saved is not None and (tokenizer := saved_tokenizer(saved, origin)):
        return tokenizer
    sample = _Sample(texts, min(1.0, settings.max_sentences / max(1, count)), name, reads)

    similar = settings.copy_and_resolve_references()
    similar.normalization = f"{READING}{settings.normalization}" if any(reads) else "identity"
    train = functools.partial(_train, sample)
    if initial is not None:
        if saved is not None and is_whole(saved):
            raise UserError(
                f"{saved} is of other text, or of other keys of config.tokenizer: restore the "
                "original text to go on with its run, or use another folder"
            )
        start = load_tokenizer(initial)
        if settings.initial == "keep":
            refuse_broken_symbols(start, settings, "set config.tokenizer.initial=grow")
            return Tokenizer(start.model, origin)
        described += start.digest
        train = functools.partial(grow, start.model, train)
    key = digest_of(f"{described}{RULE}{reads}{sentencepiece.__version__}".encode())[:24]
    for path in cache_dir.glob(f"{key}.*.model"):
        # Its name contains the digest of its content.
        with contextlib.suppress(OddFileError):
            if path.name == _cached_name(key, model := read_file(path)):
                return Tokenizer(model, origin)
        logger.warning(f"{path} is damaged: the tokenizer is trained again")
        path.unlink(missing_ok=True)
    model = train(similar)
    refuse_broken_symbols(Tokenizer(model), settings)
    cache_dir.mkdir(parents=True, exist_ok=True)
    write_bytes(cache_dir / _cached_name(key, model), model)
    return Tokenizer(model, origin)


def _cached_name(key: str, model: bytes) -> str:
    return f"{key}.{digest_of(model)[:16]}.model"


@dataclasses.dataclass(frozen=True)
class _Sample:
    """A random sample of texts, normalised, the same in each iteration, unlike sentencepiece's."""

    texts: Iterable[str]
    fraction: float
    name: str
    reads: Sequence[bool]
    reader: Tokenizer | None = None

    def __iter__(self) -> Iterator[str]:
        assert self.reader, "texts of no side"
        sides = self.reader.writer(), self.reader
        draw = random.Random(SAMPLE_SEED).random
        for text, reads in zip(self.texts, itertools.cycle(self.reads), strict=False):
            if self.fraction >= 1.0 or draw() < self.fraction:
                yield sides[reads].normalize(text).replace("▁", " ")


def _train(texts: _Sample, settings, **changes) -> bytes:
    """Trains a model on texts that pass its normalisation before, each as its side does."""
    name, size = settings.normalization.removeprefix(READING), EOS_ID + 3
    options = {"vocab_size": size + len(_user_symbols(settings)), "normalization_rule_name": name}
    try:
        least = ModelProto.FromString(_train_model(NO_TEXT[0], settings, "char", **options))
    except RuntimeError:
        raise RunError(
            f"tokenizer.normalization='{name}' is unknown: choose one of "
            f"{', '.join(NORMALIZATIONS)}"
        ) from None
    least.normalizer_spec.name = settings.normalization
    texts = dataclasses.replace(texts, reader=Tokenizer(least.SerializeToString()))
    model = ModelProto.FromString(_train_pieces(texts, settings, **changes))
    model.normalizer_spec.CopyFrom(least.normalizer_spec)
    return model.SerializeToString(deterministic=True)


def _train_pieces(texts: _Sample, settings, **changes) -> bytes:
    """Trains a model in which single characters leave room for longer pieces.

    If those of a script like Chinese would take more than half of the vocabulary, the rarest are
    spelt in bytes.

    Args:
      changes: of sentencepiece's options.
    """
    spelt, model = spells_in_bytes(settings), b""
    room = (settings.vocab_size - BYTES) // 2
    try:
        model = _train_model(texts, settings, settings.kind, **changes)
        if not spelt or _characters(model) <= max(room, ALPHABETS):
            return model
    except (RuntimeError, ValueError) as error:
        if not spelt or room < 1 or not _too_many_characters(str(error)):
            raise RunError(_explain(str(error), texts, settings)) from None
    try:
        first = EOS_ID + 1 + len(_user_symbols(settings))
        frequent = Tokenizer(_train_model(texts, settings, "char", vocab_size=first + room))
        kept = "".join(frequent.pieces(range(first, frequent.vocab_size))).replace("▁", "")
        limits = {"character_coverage": MIN_COVERAGE, "required_chars": kept}
        return _train_model(texts, settings, settings.kind, **limits, **changes)
    except (RuntimeError, ValueError) as error:
        if model:
            return model
        raise RunError(_explain(str(error), texts, settings)) from None


def spells_in_bytes(settings: ConfigDict) -> bool:
    """Returns whether the tokenizer that is to be trained knows all characters, by their bytes."""
    return settings.byte_fallback and settings.kind in BYTE_KINDS


def _characters(model: bytes) -> int:
    """How many pieces of a model are single characters."""
    pieces = ModelProto.FromString(model).pieces
    return sum(piece.type == piece.NORMAL and len(piece.piece) == 1 for piece in pieces)


def _user_symbols(settings) -> list[str]:
    """The strings that are always one piece, which follow the special ones."""
    return [*(EXACT_SYMBOLS if settings.keep_spaces else ()), *settings.symbols]


def _train_model(texts: Iterable[str], settings, kind: str, **changes) -> bytes:
    """Returns sentencepiece's model.

    Args:
      changes: changes of its options.
    """
    model = io.BytesIO()
    symbols = _user_symbols(settings)
    options = {
        "vocab_size": settings.vocab_size,
        "character_coverage": settings.character_coverage,
        "normalization_rule_name": "identity",
        "byte_fallback": settings.byte_fallback and kind in BYTE_KINDS,
        # A word or character vocabulary is what occurs, up to `vocab_size`.
        "hard_vocab_limit": kind in ("bpe", "unigram"),
        **(EXACT if settings.keep_spaces else {}),
        # The model says what is given, so that what is not leaves its bytes as they are.
        **({"split_digits": True} if settings.split_digits else {}),
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


def _symbols(settings) -> str:
    return f", the {len(settings.symbols):,} of tokenizer.symbols" if settings.symbols else ""


def _too_many_characters(message: str) -> re.Match[str] | None:
    """If the vocabulary is too small, the match whose first group is the minimum size."""
    return re.search(r"required_chars\. \d+ vs (\d+)", message)


def _explain(message: str, texts: _Sample, settings) -> str:
    """Returns the error with the key to change if sentencepiece fails."""
    size = settings.vocab_size
    if limit := re.search(r"value <= (\d+)", message):
        characters = _train_model(texts, settings, "char")
        least = Tokenizer(characters).vocab_size + BYTES * spells_in_bytes(settings)
        # With the largest vocabulary, most sentences would be one or two tokens, too few to learn
        # from.
        return (
            f"tokenizer.vocab_size={size} is more than the training text allows, at most "
            f"{limit[1]}: set config.tokenizer.vocab_size={max(int(limit[1]) // 2, least)}"
        )
    if limit := _too_many_characters(message):
        what, fix = (
            "the characters of the training text" + _symbols(settings),
            f"lower config.tokenizer.character_coverage from {settings.character_coverage}",
        )
        if spells_in_bytes(settings):
            what = f"{what} and the {BYTES} bytes that spell others"
            fix = "set config.tokenizer.byte_fallback=False"
        return (
            f"tokenizer.vocab_size={size} is less than {what}: set "
            f"config.tokenizer.vocab_size={limit[1]} or more, or {fix}"
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
    return f"sentencepiece could not train a tokenizer of {size} tokens: {message}"
