"""Strings that are always one token, such as placeholders and tags."""

import collections
import itertools
import logging
import re
import shlex
from collections.abc import Collection, Iterable, Sequence

from ml_collections import ConfigDict

# protobuf makes this class when it is imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from transformer.data.pairs import Pair
from transformer.data.tokenizer.model import Tokenizer
from transformer.errors import RunError, UserError

# Names of pieces that no text becomes.
RESERVED = re.compile(r"<pad>|<unk>|<s>|</s>|<0x[0-9A-F]{2}>|.*[▁\U0010ffff].*")
TAG = re.compile(r"</?[A-Za-z][^<>]*>|&lt;/?[A-Za-z]\w*/?&gt;|\{/?\w+/?\}")  # and placeholders
RARE, NAMED = 0.001, 10  # fraction of pairs that is no warning; tags that it names
logger = logging.getLogger(__name__)


def warn_of_tags(pairs: Iterable[Pair], symbols: Collection[str]) -> None:
    """Logs how many pairs have tags that are not among the symbols, and the key that adds them."""
    tags = [{*TAG.findall(f"{pair.source} {pair.target}")} - {*symbols} for pair in pairs]
    count, counts = sum(map(bool, tags)), collections.Counter(itertools.chain(*tags))
    names = sorted(counts, key=lambda tag: (-counts[tag], tag))
    fit = ",".join([name for name in names if not _fault(name, set()) and "," not in name][:NAMED])
    if count > RARE * len(tags):
        logger.warning(
            f"warning: {count:,} of the first {len(tags):,} pairs have tags such as {names[0]}, "
            f"which are split: --config.tokenizer.symbols={shlex.quote(fit)} keeps each whole"
        )


def check_symbols(settings: ConfigDict) -> None:
    """Checks `tokenizer.symbols`.

    Raises:
      UserError: one is empty, has a blank, is given twice or has a meaning already, or the kind of
        tokenizer has none.
    """
    seen: set[str] = set()
    for symbol in settings.symbols:
        if fault := _fault(symbol, seen):
            raise UserError(
                f"tokenizer.symbols has {symbol!r}, {fault}: correct or drop it, as in "
                "config.tokenizer.symbols='{name},<URL>'"
            )
        seen.add(symbol)
    if settings.symbols and settings.kind == "word" and not settings.model:
        raise _no_symbols_in_words()


def with_symbols(settings: ConfigDict, symbols: Sequence[str]) -> ConfigDict:
    """Returns the settings of a tokenizer with more strings that are always one token."""
    if not symbols:
        return settings
    known = dict.fromkeys((*settings.symbols, *symbols))
    return ConfigDict({**settings, "symbols": tuple(known)})


def add_symbols(model: ModelProto, symbols: Sequence[str]) -> None:
    """Makes each symbol a piece of a sentencepiece model, if it is not yet one."""
    there = {piece.piece: piece for piece in model.pieces}
    for symbol in symbols:
        piece = there.get(symbol) or model.pieces.add(piece=symbol)
        piece.type = piece.USER_DEFINED


def refuse_broken_symbols(
    tokenizer: Tokenizer, settings: ConfigDict, fix: str = "choose another"
) -> None:
    """Checks that each symbol is one token of a tokenizer, within a word too.

    Raises:
      RunError: one is not; the message ends with `fix`.
    """
    if settings.symbols and tokenizer.kind == "word":
        raise _no_symbols_in_words()
    for symbol in settings.symbols:
        [ids] = tokenizer.encode([f"a{symbol}a {symbol}"])
        if tokenizer.pieces(ids).count(symbol) != 2:
            raise RunError(
                f"{symbol!r} of tokenizer.symbols or a source_tag is split by the tokenizer: {fix}"
            )


def _fault(symbol: object, seen: set[str]) -> str:
    if not isinstance(symbol, str):
        return "which is not text"
    if not symbol:
        return "which is empty"
    if re.search(r"\s", symbol):
        return "which has a blank (commas divide symbols)"
    if RESERVED.fullmatch(symbol):
        return "which the tokenizer needs itself"
    return "twice" if symbol in seen else ""


def _no_symbols_in_words() -> UserError:
    return UserError(
        "tokenizer.symbols cannot be found within the words of tokenizer.kind=word: set "
        "config.tokenizer.kind to bpe, unigram or char"
    )
