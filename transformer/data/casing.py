"""Lines in capitals or title case: read in sentence case, translated, and written in their case."""

from collections.abc import Sequence

import regex  # whose letters have their vowel signs and accents

from transformer.data.characters import outside, replace_all, symbol_codes

WORD = regex.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
INITIAL = regex.compile(r"(?<![\w'’])\w")
START = regex.compile(r"(?:^|(?<=[.!?…] ))\W*\w")  # of a sentence
MIN_LETTERS, MIN_WORDS = 4, 4  # of a line in capitals, which is no acronym; in title case


def is_capitals(text: str) -> bool:
    """Returns whether all letters of a text, several at least, are capitals."""
    letters = "".join(WORD.findall(text))
    return letters.isupper() and len(letters) >= MIN_LETTERS


def is_title(text: str) -> bool:
    """Returns whether all words of a text, several at least, start with a capital."""
    words = WORD.findall(text)
    return len(words) >= MIN_WORDS and all(word[0].isupper() for word in words)


def title_case(text: str) -> str:
    """Returns a text with a capital at the start of each word."""
    return INITIAL.sub(lambda match: match[0].title(), text)


def sentence_case(text: str) -> str:
    """Returns a text in small letters, but for the first of each sentence."""
    return START.sub(lambda match: match[0].title(), text.lower())


def read_case(line: str, symbols: Sequence[str]) -> str:
    """Returns a line in sentence case if all of it is in capitals or title case.

    Args:
      symbols: strings that do not change.
    """
    return outside(
        symbols, line, lambda s: sentence_case(s) if is_capitals(s) or is_title(s) else s
    )


def write_case(text: str, line: str, symbols: Sequence[str]) -> str:
    """Returns a translation in the case of the line that it translates, see `read_case`."""
    line = replace_all(line, symbol_codes(symbols))
    change = str.upper if is_capitals(line) else title_case if is_title(line) else str
    return outside(symbols, text, change)
