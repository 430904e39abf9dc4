"""Placeholders and terms: what the model reads for words of a line, or after them.

Placeholders are numbered tokens in the model input for strings that need no translation.

These strings are addresses, long numbers, template placeholders, emoji, and rare words of the kinds
that are copied in the training data (see `Words`). They are restored in the translation.
Source: Post et al. 2019, "An Exploration of Placeholding in Neural Machine Translation".
"""

import itertools
import re
import zlib
from collections.abc import Mapping, Sequence

import regex

from transformer.data.characters import UNSPACED, canonicalize
from transformer.data.pairs import Pair, move_links
from transformer.data.words import CHARACTER, TERM, WORD, Token, Words, shares_stem
from transformer.errors import UserError

PLACEHOLDER_RULE = "placeholders 1"  # in cache keys: change the number when the rule changes
NAMES = tuple(f"<copy:{number}>" for number in range(10))  # the maximum per line is 10
NAME = re.compile(f"( ?)({'|'.join(NAMES)})")


def read_line(
    line: str, words: Words, terms: Sequence[tuple[int, int, str]] = ()
) -> tuple[str, dict[str, str]]:
    """Replaces strings in a line by placeholders; also returns a dict to restore the strings.

    Each of `terms` (start, end, translation) is written after its words, which are not replaced.
    """
    tokens = _strings_of_copies(line, words)
    tokens = [x for x in tokens if all(x.end <= start or end <= x.start for start, end, _ in terms)]
    strings = dict(zip(NAMES, (words.written(token.text) for token in tokens), strict=False))
    tokens = [*tokens[: len(NAMES)], *(Token("", end, False, "") for _, end, _ in terms)]
    names = *strings, *(f" {target}".join(TERM) for _, _, target in terms)
    return _replace_placeholders(line, tokens, names), strings


def read_pair(pair: Pair, words: Words, training: bool = False) -> Pair:
    """Replaces strings that occur on both sides of a pair by placeholders.

    In training, the first placeholder number depends on the text, so that all numbers are learnt.
    """
    if not (tokens := _strings_of_copies(pair.source, words)):
        return pair
    free = [*words.tokens(pair.target)]
    sides: tuple[list[Token], list[Token]] = ([], [])
    for token in tokens:
        texts = token.text, words.written(token.text)
        for text, other in itertools.product(texts, free):
            end = other.start + len(text)
            if pair.target.startswith(text, other.start) and end in {each.end for each in free}:
                free = [each for each in free if not other.start <= each.start < end]
                sides[0].append(token)
                sides[1].append(other._replace(text=text))
                break
    names = [name for name in NAMES if name not in pair.source]
    first = zlib.crc32(pair.source.encode()) % max(1, len(names)) if training else 0
    names = names[first:] + names[:first]
    source, target = (
        _replace_placeholders(text, each, names) for text, each in zip(pair[:2], sides, strict=True)
    )
    return move_links(pair, source, target)


def write_text(text: str, strings: Mapping[str, str]) -> tuple[str, int]:
    """Restores each string once; returns the text and the number of strings not restored."""
    lacking = dict(strings)

    def write(match: re.Match) -> str:
        blank, name = match.groups()
        return blank + lacking.pop(name) if name in lacking else ""

    return NAME.sub(write, text).strip(), len(lacking)


def _strings_of_copies(line: str, words: Words) -> list[Token]:
    """Returns the strings to copy, except symbols, or [] if the model has no placeholders.

    Adjacent rare words form one string, including a capitalised first word that may be a name.
    """
    strings: list[tuple[Token, bool]] = []
    for token in words.tokens(line) if NAMES[0] in words.symbols else ():
        kind = words.kind_of(token)
        is_other = not kind and not token.is_word
        copied = kind in words.copied or (is_other and not token.text.startswith(words.symbols))
        if not copied and kind.removeprefix("first ") not in words.copied:
            continue
        last, any_copied = strings[-1] if strings else (token, False)
        if last.is_word and token.is_word and line[last.end : token.start] == " ":
            text = line[last.start : token.end]
            strings[-1] = last._replace(text=text), any_copied or copied
        else:
            strings.append((token, copied))
    return [token for token, copied in strings if copied]


def _replace_placeholders(line: str, tokens: Sequence[Token], names: Sequence[str]) -> str:
    """Replaces each token of a line by the placeholder with the same index in `names`."""
    pairs = sorted(zip(tokens, names, strict=False), key=lambda pair: -pair[0].start)
    for token, name in pairs:
        line = line[: token.start] + name + line[token.end :]
    return line


# -- terms that translations must have: target terms for whole words of the source, in any case


class Glossary:
    """Target terms by source term; `forced` if the search is repeated until they are there.

    If source terms overlap in a text, the longer one counts.
    """

    def __init__(self, terms: Mapping[str, str], forced: bool):
        pairs = [(canonicalize(source), canonicalize(target)) for source, target in terms.items()]
        if blank := [pair for pair in pairs if not all(pair)]:
            raise UserError(f"the glossary has the terms {blank[0]}: fill both in")
        pairs.sort(key=lambda pair: -len(pair[0]))
        self._targets, self.forced = [target for _, target in pairs], forced
        self._pattern = regex.compile("|".join(f"({_whole(x)})" for x, _ in pairs), regex.I)

    def find(self, text: str) -> list[tuple[int, int, str]]:
        """Returns (start, end, target term) of each term in a text, from left to right."""
        matches = self._pattern.finditer(text)
        return [(*match.span(), self._targets[(match.lastindex or 0) - 1]) for match in matches]


class TextWithTerms(str):
    """A text in which a glossary has terms."""

    glossary: Glossary

    @classmethod
    def of(cls, text: str, glossary: Glossary | None) -> str:
        """Returns the text, which is unchanged if it has no terms."""
        if not glossary or not glossary.find(text):
            return text
        text = cls(canonicalize(text))
        text.glossary = glossary
        return text

    def lacking(self, translation: str) -> list[tuple[int, int, str]]:
        """Returns the terms that a translation must have, and has no form of."""
        terms = self.glossary.find(self) if self.glossary.forced else []
        return [term for term in terms if not has_term(translation, term[2])]


def _whole(term: str) -> str:
    """Returns a pattern for a term as whole words."""
    before = "" if UNSPACED.match(term[0]) else f"(?<!{CHARACTER})"
    return before + regex.escape(term) + ("" if UNSPACED.match(term[-1]) else f"(?!{CHARACTER})")


def has_term(text: str, term: str, inflected: bool = True) -> bool:
    """Returns whether a text has a term, or, if `inflected`, forms of its words."""
    parts, words = (regex.findall(WORD, each) for each in (term, text))
    forms = (any(shares_stem(part, word) for word in words) for part in parts)
    is_there = regex.search(_whole(term), text, regex.I) is not None
    return is_there or (inflected and bool(parts) and all(forms))
