"""The rule of text: which characters a tokenizer, cleaning, translation and scores see.

And the case of a line: one in capitals or title case is read in sentence case, translated, and
written in its own case.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence

import regex

CHARACTER_RULE = "characters 1"  # in the keys of caches: another number for another rule

# Tabs, ends of lines and separators, with the blanks around them; and several blanks.
BLANKS = re.compile(" *[\t-\r\x1c-\x1f\x85\u2028\u2029][ \t-\r\x1c-\x1f\x85\u2028\u2029]*|  +")
# Other control characters, soft hyphens, zero-width spaces, marks of direction, word joiners.
NEVER_SEEN = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb]+"
)
# Joiners, variation selectors and tags, which change others and are not seen by themselves.
INVISIBLE = re.compile("[\\s\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e007f\U000e0100-\U000e01ef]*")
# No blank is written after Chinese and Japanese, nor after full-width forms.
UNSPACED = regex.compile(
    r"[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Bopomofo}\u3000-\u303f\ufe30-\ufe4f\uff01-\uff9f]"
)
WORD = regex.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
FIRST_LETTER = regex.compile(r"(?<![\w'’])\w")
START = regex.compile(r"(?:^|(?<=[.!?…] ))\W*\w")  # of a sentence
# Punctuation at the end of a word, with or without a blank before it.
PUNCTUATION = re.compile(r"(?<=[^\s.,;:!?…]) *([.,;:!?…]+)(?!\S)")
MIN_LETTERS, MIN_WORDS = 4, 4  # of a line in capitals, which is no acronym; in title case


def canonicalize(text: str) -> str:
    """Returns a text in NFC and in one line, without what is never seen, '' if nothing is.

    Of consecutive blanks one is left, of white space at both ends nothing; other spaces are kept.
    """
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    text = unicodedata.normalize("NFC", BLANKS.sub(" ", NEVER_SEEN.sub("", text)).strip())
    return "" if INVISIBLE.fullmatch(text) else text


def split_words(text: str) -> list[str]:
    """Returns what stands between blanks, no-break spaces and tabs not being any."""
    return [word for word in text.split(" ") if word]


def word_ends(text: str) -> list[int]:
    """Returns where each word of a text ends in the canonical text, in characters from zero.

    A word that is never seen ends where the word before it does.
    """
    starts_of_text = itertools.accumulate(split_words(text), "{} {}".format)
    return [len(canonicalize(start)) for start in starts_of_text]


def join_texts(left: str, right: str) -> str:
    """Returns two texts with a blank between them, but not between Chinese or Japanese ones."""
    return left + right if not left or UNSPACED.fullmatch(left[-1]) else f"{left} {right}"


def symbol_codes(symbols: Sequence[str]) -> dict[str, str]:
    """Returns a character for private use for each symbol; it has no case and is no letter."""
    longest_first = sorted(symbols, key=len, reverse=True)
    return {symbol: chr(0xE000 + i) for i, symbol in enumerate(longest_first)}


def replace_all(text: str, strings: Mapping[str, str]) -> str:
    """Returns a text with the values of some strings in their place, one after another."""
    return functools.reduce(lambda text, item: text.replace(*item), strings.items(), text)


def outside(symbols: Sequence[str], text: str, change: Callable[[str], str]) -> str:
    """Returns a changed text, in which symbols are as they were."""
    codes = symbol_codes(symbols)
    changed = change(replace_all(text, codes))
    return replace_all(changed, {code: symbol for symbol, code in codes.items()})


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
    return FIRST_LETTER.sub(lambda match: match[0].title(), text)


def sentence_case(text: str) -> str:
    """Returns a text in small letters, but for the first of each sentence."""
    return START.sub(lambda match: match[0].title(), text.lower())


def read_case(line: str, symbols: Sequence[str]) -> str:
    """Returns a line in sentence case if all of it, but for symbols, is in capitals or a title."""
    return outside(
        symbols, line, lambda s: sentence_case(s) if is_capitals(s) or is_title(s) else s
    )


def write_case(text: str, line: str, symbols: Sequence[str]) -> str:
    """Returns a translation in the case of the line that it translates, see `read_case`."""
    line = replace_all(line, symbol_codes(symbols))
    change = str.upper if is_capitals(line) else title_case if is_title(line) else str
    return outside(symbols, text, change)
