"""How a translation must begin, by automata over token ids, and the terms that it must have.

For the automata, see `decoding.search.Prefixes`.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import regex
from jaxtyping import Int

from transformer.data.characters import UNSPACED, canonicalize, capitalize, lower
from transformer.data.pairs import Pair
from transformer.data.tokenizer import EOS_ID, NEVER_WRITTEN, UNK_ID, Tokenizer
from transformer.data.words import CHARACTER, TERM, WORD, shares_stem
from transformer.errors import UserError, shorten

SPACE = "▁"  # stands for a space in pieces
STATES = 16  # the number of states is a multiple, so that few shapes are compiled
BYTE = re.compile("<0x([0-9A-F]{2})>")
START = re.compile("(?<![^ ])([^\\w ]*)[^ ]+")  # a word; the punctuation before its letters
END = re.compile(r"[^\w\s]*$")
LETTER = rf"(?!{UNSPACED.pattern}){CHARACTER}"
WHOLE = rf"(?<!{LETTER})\L<terms>(?!{LETTER})"  # any of the `terms`, as whole words

MAX_PLACES = 8  # maximum number of words that a term is tried in place of
Item = tuple[str, "Prefix"]  # a text, and how its translation begins


class Prefix(NamedTuple):
    """How a translation begins.

    `text` may end within a word, or with a space after a complete word. It follows `tokens`.
    `is_whole` means that the translation ends with the prefix. `terms` are for `force_terms`:
    (numbers of the first and the last source word, from 1, target term).
    """

    text: str = ""
    is_whole: bool = False
    ignore_case: bool = False
    tokens: Sequence[int] = ()
    terms: Sequence[tuple[int, int, str]] = ()


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


# -- glossaries: target terms for whole words of the source


def prescribe(items: Sequence[Item], glossary: Mapping[str, str], reads_terms: bool) -> list[Item]:
    """Returns the items with the target terms of the source terms in their texts.

    The terms are written into the text if the model reads them, and otherwise into the prefix.
    Source terms match whole words in any case; of terms that overlap, the first and longest counts.
    """
    terms, results = {}, []
    for pair in glossary.items():
        source, target = map(canonicalize, pair)
        if not (source and target):
            raise UserError(f"the glossary has a blank term in {pair}: fill it in, or leave it out")
        terms[lower(source)] = target
    pattern = regex.compile(WHOLE, terms=[*terms])
    for text, prefix in items:
        places = [(*match.span(), terms[match[0]]) for match in pattern.finditer(lower(text))]
        if reads_terms:
            for _, end, term in reversed(places):
                # '▁' is read as a space, and leaves the number of words as it is.
                text = text[:end] + f" {term}".replace(" ", SPACE).join(TERM) + text[end:]
        else:
            words = ([len(text[:n].split()) for n in (i + 1, end)] for i, end, _ in places)
            terms_of = [(*each, term) for each, (*_, term) in zip(words, places, strict=True)]
            prefix = prefix._replace(terms=terms_of)
        results.append((text, prefix))
    return results


def has_term(text: str, term: str, inflected: bool = True) -> bool:
    """Returns whether a text has a term in any case, or, if `inflected`, forms of its words."""
    parts, words = (regex.findall(WORD, each) for each in (term, text))
    forms = (any(shares_stem(part, word) for word in words) for part in parts)
    is_there = regex.search(WHOLE, lower(text), terms=[lower(term)]) is not None
    return is_there or (inflected and bool(parts) and all(forms))


def force_terms(
    items: Sequence[Item], results: Sequence[list[Any]], align: Callable, search: Callable
) -> list[list[Any]]:
    """Returns the results of `search` for the items, searched again until their terms are there.

    The translation is kept up to a word that `align` links to a term, the term follows, and the
    search goes on; of several such words, the one with the best score is chosen. The term whose
    word comes first is forced first.
    """
    items, results = [*items], [*results]

    def lacking(i: int, terms: Sequence[Any]) -> list[Any]:
        return [each for each in terms if not has_term(results[i][0].text, each[-1])]

    todo = {i: each for i, (_, prefix) in enumerate(items) if (each := lacking(i, prefix.terms))}
    pairs = [Pair(items[i][0], results[i][0].text) for i in todo]
    for i, pair, links in zip(todo, pairs, align(pairs), strict=True):
        words, terms = pair.target.split(" "), todo[i]
        linked = [[j for n, j in links if first <= n + 1 <= last] for first, last, _ in terms]
        order = sorted(range(len(terms)), key=lambda n: linked[n] or [len(words)])
        todo[i] = [({words[j] for j in linked[n]}, terms[n][-1]) for n in order]
    while todo:
        tries = [
            (i, Prefix(text))
            for i, terms in todo.items()
            for text in _beginnings(results[i][0].text, items[i][1].text, *terms[0])
        ]
        rows = search([(items[i][0], prefix) for i, prefix in tries])
        for i, group in itertools.groupby(zip(tries, rows, strict=True), lambda each: each[0][0]):
            (_, prefix), results[i] = max(group, key=lambda each: each[1][0].score)
            items[i] = items[i][0], prefix
        todo = {i: each for i, terms in todo.items() if (each := lacking(i, terms[1:]))}
    return results


def _beginnings(text: str, begun: str, linked: set[str], term: str) -> list[str]:
    """Returns a term after beginnings of a text that end at a linked word, or else at any word."""
    begun, space = begun.rstrip(), " " * (not UNSPACED.match(term[-1]))
    whole = max(END.sub("", text).rstrip(), begun, key=len) + " "
    words = {match.end(1): match[0] for match in START.finditer(text)} | {len(whole): text}
    first, free = min(words), {place: words[place] for place in words if place >= len(begun)}
    return [
        whole[:place]
        + (capitalize(term) if place == first and text[place : place + 1].isupper() else term)
        + (END.findall(word)[0] or space)
        for place, word in free.items()
        if word in linked or linked.isdisjoint(free.values())
    ][:MAX_PLACES]
