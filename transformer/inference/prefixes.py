"""Automata over token ids that force how a translation begins; see `decoding.search.Prefixes`."""

import bisect
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.characters import capitalize
from transformer.data.placeholders import TextWithTerms
from transformer.data.tokenizer import EOS_ID, NEVER_WRITTEN, UNK_ID, Tokenizer
from transformer.errors import UserError, shorten

SPACE = "▁"  # stands for a space in pieces
STATES = 16  # the number of states is a multiple, so that few shapes are compiled
TAIL = re.compile(r"[^\w\s]*$")  # punctuation at the end of a word
BYTE = re.compile("<0x([0-9A-F]{2})>")


class Prefix(NamedTuple):
    """How a translation begins.

    `text` may end within a word, or with a space after a complete word. It follows `tokens`.
    `is_whole` means that the translation ends with the prefix.
    """

    text: str = ""
    is_whole: bool = False
    ignore_case: bool = False
    tokens: Sequence[int] = ()


class PrefixReader:
    """Makes automata for the tokens of a tokenizer.

    All words but the last are segmented by the tokenizer. The last word may have any segmentation,
    so that the search finds the most probable one, even of a word that goes on after the prefix.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        numbers = sorted({*range(tokenizer.vocab_size)} - {*NEVER_WRITTEN, EOS_ID})
        texts = list(zip(numbers, tokenizer.pieces(numbers), strict=True))
        self._texts = [sorted((_bytes(piece, fold), i) for i, piece in texts) for fold in (0, 1)]

    def moves(self, prefixes: Sequence[Prefix], rows: int) -> Int[np.ndarray, "rows S V"]:
        """Returns the automata of a batch of up to `rows` sentences."""
        each = list(map(self._moves, prefixes))
        states = -(-max(map(len, each)) // STATES) * STATES
        moves = np.zeros((rows, states, self._tokenizer.vocab_size), np.int16)
        for row, one in zip(moves, each, strict=False):
            row[: len(one)] = one
        return moves

    def _moves(self, prefix: Prefix) -> Int[np.ndarray, "S V"]:
        normal = self._tokenizer.normalize(prefix.text)
        start = 0 if prefix.ignore_case else max(0, normal.rfind(SPACE))  # of the last word
        last = normal[start:] + SPACE * bool(normal and prefix.text[-1:].isspace())
        [words] = self._tokenizer.encode([normal[:start].replace(SPACE, " ")]) if start else [[]]
        fixed = [*prefix.tokens, *words]
        rest, texts = _bytes(last, prefix.ignore_case), self._texts[prefix.ignore_case]
        end = len(fixed) + len(rest)
        moves = np.full((end + 1, self._tokenizer.vocab_size), -1, np.int16)
        moves[end, [EOS_ID] if prefix.is_whole else slice(None)] = end
        for state in range(end - 1, len(fixed) - 1, -1):  # backwards, to avoid dead ends
            tail = rest[state - len(fixed) :]
            for length in range(1, len(tail) + 1):
                above = tail[:length] + (b"\xff" if length == len(tail) else b"\0")
                span = slice(*(bisect.bisect(texts, (x, -1)) for x in (tail[:length], above)))
                if (moves[state + length] >= 0).any():
                    moves[state, [token for _, token in texts[span]]] = state + length
        moves[range(len(fixed)), fixed] = range(1, len(fixed) + 1)
        if UNK_ID in fixed or not (moves[len(fixed)] >= 0).any():
            unknown = [c for c in prefix.text if UNK_ID in self._tokenizer.encode([c])[0]]
            has = f"has {unknown[0]!r}, which" if unknown else "begins no word that"
            raise UserError(
                f"prefix {shorten(repr(prefix.text), 60)} {has} the tokenizer does not have: leave "
                "it out"
            )
        return moves


def _bytes(piece: str, fold: bool | int) -> bytes:
    """The UTF-8 of a piece, or the byte that it stands for."""
    if byte := BYTE.fullmatch(piece):
        return bytes.fromhex(byte[1])
    return (piece.lower() if fold else piece).encode()


def too_long(prefix: Prefix) -> UserError:
    """Returns the error to raise if no translation within the length limit begins so."""
    return UserError(
        f"prefix {shorten(repr(prefix.text), 60)} has more tokens than a translation of this text "
        "may have: shorten it, or raise config.decode.max_ratio"
    )


def force_term(
    source: TextWithTerms, translation: str, links: Sequence[tuple[int, int]], begun: str
) -> Prefix:
    """Returns how the next translation begins: as this one, with the first lacking term.

    The term replaces the first word that is linked to it, after the text `begun`.
    """
    words, places = translation.split(" "), []
    for start, end, term in source.lacking(translation):
        of_term = range(source[:start].count(" "), source[:end].count(" ") + 1)
        at = min((j for i, j in links if i in of_term), default=len(words))
        before, tail = " ".join(words[:at]), TAIL.findall(words[at])[0] if at < len(words) else ""
        # Punctuation or a space ends the word.
        places.append((before if len(before) > len(begun) else begun.strip(), term + (tail or " ")))
    before, term = min(places, key=lambda place: len(place[0]))
    return Prefix(f"{before} {term}" if before else capitalize(term))
