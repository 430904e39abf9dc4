"""Training and extension of subword tokenizers with sentencepiece."""

import functools
import io
import itertools
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece
from ml_collections import ConfigDict

# protobuf creates these classes when they are imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer.config.keys import having
from transformer.data.characters import CHARACTER_RULE
from transformer.data.tokenizer import (
    BOS_ID,
    EOS_ID,
    NO_TEXT,
    PAD_ID,
    READING_PREFIX,
    Tokenizer,
    add_symbols,
    check_symbols,
    digest_of,
    load_tokenizer,
    refuse_broken_symbols,
    save_tokenizer,
    saved_tokenizer,
    with_words,
)
from transformer.data.tokenizer.draws import UNK_ID
from transformer.data.words import WORD_RULE, Words
from transformer.errors import RunError

logger = logging.getLogger(__name__)

BYTE_KINDS = ("bpe", "unigram")  # kinds that encode unknown characters as bytes, if `byte_fallback`
BYTES = 256  # number of byte pieces
# With these options, `decode` restores every space and line break.
EXACT = {
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "max_sentence_length": 2**20,  # bytes; longer lines are ignored
}
EXACT_SYMBOLS = ("\n", "\t")
SAMPLE_SEED = 0  # for sampling sentences from large corpora
ALPHABETS = 1000  # number of characters; Latin, Greek and Cyrillic text uses fewer
MAX_LINE_BYTES = 4192  # sentencepiece's default
LINE_RULE = "lines 2"  # in cache keys: change the number if texts are split into other lines
MIN_COVERAGE = 0.98  # minimum that sentencepiece accepts
TOO_MANY = "required_chars"  # in sentencepiece's message if a vocabulary cannot hold all characters

Texts = Callable[[], Iterable[str]]  # can be read several times


def train_tokenizer(
    texts: Iterable[str],
    settings: ConfigDict,
    cache_dir: Path,
    content: str,
    *,
    count: int = 0,
    reads: Sequence[bool] = (True,),
    saved: Path | None = None,
    initial: Path | None = None,
    words: Callable[[], Words] | None = None,
) -> Tokenizer:
    """Returns a tokenizer trained on `texts`, or a saved tokenizer from a run or the cache.

    The same texts and settings give the same tokenizer in every process.

    Args:
      texts: raw sentences, which are read only if there is no saved tokenizer for them.
      content: fingerprint of `texts`.
      count: number of texts; about `max_sentences` are sampled if there are more.
      reads: for each side of the texts in turn, whether it is a model input and not an output.
      saved: a run's tokenizer, which is used if it was trained on `texts` with these settings.
      words: function that returns the words to save in the model; it is called only in training.
      initial: tokenizer file of an earlier run, which is kept or extended according to
        `settings.initial`, or None for a new tokenizer. It is read only if `saved` is not used.
    """
    check_symbols(settings)
    unread = having("draws") if initial else (*having("draws"), "tokenizer.initial")
    read = [item for item in sorted(settings.items()) if f"tokenizer.{item[0]}" not in unread]
    described = repr(read) + content
    origin = digest_of(described.encode())
    if saved is not None and (tokenizer := saved_tokenizer(saved, origin)):
        return tokenizer
    sample = functools.partial(_sample, texts, settings.max_sentences / max(1, count), reads)
    train = functools.partial(_train_normalized, sample)
    if initial is not None:
        start = load_tokenizer(initial)
        if settings.initial == "keep":
            refuse_broken_symbols(start, settings, "set config.tokenizer.initial=grow")
            return Tokenizer(start.model, origin)
        described += start.digest
        train = functools.partial(grow, start.model, train)
    rules = CHARACTER_RULE, LINE_RULE, WORD_RULE * bool(words), reads, sentencepiece.__version__
    key = digest_of(f"{described}{rules}".encode())[:24]
    path = cache_dir / f"{key}.model"
    if tokenizer := saved_tokenizer(path, origin):
        return tokenizer
    if path.exists():
        logger.warning(f"{path} is damaged: the tokenizer is trained again")
    normalization = f"{READING_PREFIX}{settings.normalization}" if any(reads) else "identity"
    model = train(ConfigDict({**settings, "normalization": normalization}))
    model = with_words(Tokenizer(model), words).model
    refuse_broken_symbols(Tokenizer(model), settings)
    cache_dir.mkdir(parents=True, exist_ok=True)
    save_tokenizer(path, tokenizer := Tokenizer(model, origin))
    return tokenizer


# -- training


def _sample(
    texts: Iterable[str], fraction: float, reads: Sequence[bool], reader: Tokenizer
) -> Iterator[str]:
    """Yields a random sample of normalised texts, which is reproducible in every process."""
    sides = reader.writer(), reader
    draw = random.Random(SAMPLE_SEED).random
    for text, is_read in zip(texts, itertools.cycle(reads), strict=False):
        if fraction >= 1.0 or draw() < fraction:
            yield sides[is_read].normalize(text).replace("▁", " ")


def _train_normalized(
    sample: Callable[[Tokenizer], Iterable[str]], settings: ConfigDict, **changes
) -> bytes:
    """Trains a model on texts that are normalised beforehand by the rules for their side."""
    name, size = settings.normalization.removeprefix(READING_PREFIX), EOS_ID + 3
    options = {"vocab_size": size + len(_user_symbols(settings)), "normalization_rule_name": name}
    least = ModelProto.FromString(_train_model(lambda: NO_TEXT[0], settings, "char", **options))
    least.normalizer_spec.name = settings.normalization
    texts = functools.partial(sample, Tokenizer(least.SerializeToString()))
    try:
        model = ModelProto.FromString(_train_pieces(texts, settings, **changes))
    except (RuntimeError, ValueError) as error:
        longest = EXACT["max_sentence_length"] if settings.keep_spaces else MAX_LINE_BYTES
        raise RunError(
            f"no tokenizer with config.tokenizer.vocab_size={settings.vocab_size} and "
            f"config.tokenizer.character_coverage={settings.character_coverage} can be trained on "
            f"this text, of which lines of up to {longest:,} bytes are read: "
            + str(error).rpartition("] ")[2]
        ) from None
    model.normalizer_spec.CopyFrom(least.normalizer_spec)
    return model.SerializeToString(deterministic=True)


def _train_pieces(texts: Texts, settings: ConfigDict, **changes) -> bytes:
    """Trains a model with a limited number of single characters, to leave room for longer pieces.

    If the characters of a script such as Chinese would fill more than half of the vocabulary, the
    rarest characters are encoded as bytes, provided that `byte_fallback` is set.
    """
    spelt, model = settings.byte_fallback and settings.kind in BYTE_KINDS, b""
    room = (settings.vocab_size - BYTES) // 2
    try:
        model = _train_model(texts, settings, settings.kind, **changes)
        pieces = ModelProto.FromString(model).pieces
        characters = sum(piece.type == piece.NORMAL and len(piece.piece) == 1 for piece in pieces)
        if not spelt or characters <= max(room, ALPHABETS):
            return model
    except (RuntimeError, ValueError) as error:
        if not spelt or room < 1 or TOO_MANY not in str(error):
            raise
    try:
        first = EOS_ID + 1 + len(_user_symbols(settings))
        frequent = Tokenizer(_train_model(texts, settings, "char", vocab_size=first + room))
        required = "".join(frequent.pieces(range(first, frequent.vocab_size))).replace("▁", "")
        limits = {"character_coverage": MIN_COVERAGE, "required_chars": required}
        return _train_model(texts, settings, settings.kind, **limits, **changes)
    except (RuntimeError, ValueError):
        if model:
            return model
        raise


def _user_symbols(settings: ConfigDict) -> list[str]:
    """Returns the user-defined symbols (never split), whose ids follow the special tokens."""
    return [*(EXACT_SYMBOLS if settings.keep_spaces else ()), *settings.symbols]


def _train_model(texts: Texts, settings: ConfigDict, kind: str, **changes) -> bytes:
    """Trains a sentencepiece model; `changes` override the options."""
    model, symbols = io.BytesIO(), _user_symbols(settings)
    options = {
        "vocab_size": settings.vocab_size,
        "character_coverage": settings.character_coverage,
        "normalization_rule_name": "identity",
        "byte_fallback": settings.byte_fallback and kind in BYTE_KINDS,
        # A word or character vocabulary has all pieces that occur, up to `vocab_size`.
        "hard_vocab_limit": kind in ("bpe", "unigram"),
        **(EXACT if settings.keep_spaces else {}),
        # A model stores only the options that are given, so omitted options do not change the file.
        **({"split_digits": True} if settings.split_digits else {}),
        **({"user_defined_symbols": symbols} if symbols else {}),
        **changes,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts()),
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


# -- extension


def grow(old: bytes, train: Callable[..., bytes], settings: ConfigDict) -> bytes:
    """Extends the model `old` to `vocab_size` with pieces that are trained on new text.

    Training uses the tokenizer kind and the normalisation of `old`.
    """
    model = ModelProto.FromString(old)
    names = {piece.piece for piece in model.pieces}
    if settings.vocab_size <= len(names.union(settings.symbols)):
        raise RunError(
            f"tokenizer.vocab_size={settings.vocab_size} leaves no room for more than the "
            f"{len(model.pieces)} pieces of the tokenizer that tokenizer.initial=grow starts with: "
            "raise config.tokenizer.vocab_size, or set config.tokenizer.initial=keep"
        )
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    similar = {
        "kind": TrainerSpec.ModelType.Name(trainer.model_type).lower(),
        "normalization": normalizer.name,
        "byte_fallback": trainer.byte_fallback,
        "keep_spaces": not normalizer.add_dummy_prefix,
    }
    # A small corpus may give fewer pieces.
    new = train(ConfigDict({**settings, **similar}), hard_vocab_limit=False)
    return grown_model(old, new, settings.vocab_size)


def grown_model(old: bytes, new: bytes, size: int) -> bytes:
    """Returns a sentencepiece model with the pieces of `old`, followed by new pieces of `new`.

    Existing pieces keep their ids and scores. Among the new pieces, symbols come first, then single
    characters, then longer pieces in order, since a longer piece is useless without its characters.
    In BPE, new pieces are merged after all old pieces, so a text is segmented as before, and its
    pieces may then be merged further. A new piece is left out if the model splits even the text of
    this piece, because its parts merge in another way (Purason et al. 2025, "Teaching Old
    Tokenizers New Words").
    """
    model, other = ModelProto.FromString(old), ModelProto.FromString(new)
    add_symbols(model, [p.piece for p in other.pieces if p.type == p.USER_DEFINED])
    first, names = len(model.pieces), {piece.piece for piece in model.pieces}
    lacking = [p for p in other.pieces if p.type == p.NORMAL and p.piece not in names]
    lacking.sort(key=lambda piece: len(piece.piece) > 1)
    lowest = min(piece.score for piece in model.pieces)
    is_bpe = model.trainer_spec.model_type == TrainerSpec.BPE
    for i, piece in enumerate(lacking, 1):
        model.pieces.add(piece=piece.piece, score=lowest - i if is_bpe else piece.score)
    plain = ModelProto()  # segments the text of a piece without normalisation
    plain.CopyFrom(model)
    plain.normalizer_spec.Clear()
    plain.normalizer_spec.add_dummy_prefix = False
    plain.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=plain.SerializeToString())
    texts = [piece.piece for piece in lacking]
    cuts = dict(zip(texts, processor.encode(texts, out_type=str), strict=True))
    useful = [p for p in model.pieces[first:] if cuts[p.piece] == [p.piece]][: size - first]
    del model.pieces[first:]
    model.pieces.extend(useful)
    model.trainer_spec.vocab_size = len(model.pieces)
    return model.SerializeToString(deterministic=True)
