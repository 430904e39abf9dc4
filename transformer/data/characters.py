"""Text canonicalisation for tokenizers, cleaning, translation and metrics.

This module also converts letter case with language-specific rules.
"""

import itertools
import re
import unicodedata

import regex

CHARACTER_RULE = "characters 1"  # in cache keys: change the number when the rule changes

# Tabs, line ends and separators with the spaces around them, or several spaces.
BLANKS = re.compile(" *[\t-\r\x1c-\x1f\x85\u2028\u2029][ \t-\r\x1c-\x1f\x85\u2028\u2029]*|  +")
# Other control characters, soft hyphens, zero-width spaces, direction marks, word joiners.
NEVER_SEEN = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb]+"
)
# Joiners, variation selectors and tags modify other characters and are invisible alone.
INVISIBLE = re.compile("[\\s\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e007f\U000e0100-\U000e01ef]*")
# Characters that are not followed by a space: Chinese, Japanese and full-width characters.
UNSPACED = regex.compile(
    r"[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Bopomofo}\u3000-\u303f\ufe30-\ufe4f\uff01-\uff9f]"
)
# Letters with language-specific capitals (Unicode's SpecialCasing.txt and CLDR).
DOTTED, DUTCH, ARMENIAN = ("i", "İ"), ("ij", "IJ"), ("և", "Եվ")
CAPITALS = {"tr": DOTTED, "tur": DOTTED, "az": DOTTED, "aze": DOTTED, "nl": DUTCH, "nld": DUTCH}
CAPITALS |= {"hy": ARMENIAN, "hye": ARMENIAN}
# Greek capitals have no accents, except in the word "ή". After a vowel that loses its accent, an
# iota or upsilon gets a diaeresis.
GREEK = {"el", "ell"}
HIATUS = regex.compile(r"(?<=[αεηιουωΑΕΗΙΟΥΩ]\u0301)[ιυΙΥ](?!\u0308)")
ACCENT = regex.compile(
    r"((?<![\p{L}\p{M}])[ηΗ]\u0301(?![\p{L}\p{M}]))|[\u0300\u0301\u0313\u0314\u0342]"
)
# Punctuation at the end of a word, with or without a space before it.
PUNCTUATION = re.compile(r"(?<=[^\s.,;:!?…]) *([.,;:!?…]+)(?!\S)")


def canonicalize(text: str) -> str:
    """Returns a text as one NFC line without invisible characters, or '' if nothing is left.

    Runs of spaces, tabs and line ends become one space; other spaces are kept, except at the ends.
    """
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    text = unicodedata.normalize("NFC", BLANKS.sub(" ", NEVER_SEEN.sub("", text)).strip())
    return "" if INVISIBLE.fullmatch(text) else text


def split_words(text: str) -> list[str]:
    """Splits a text at ASCII spaces; no-break spaces and tabs do not separate words."""
    return [word for word in text.split(" ") if word]


def word_ends(text: str) -> list[int]:
    """Returns the offset of the end of each word, in characters of the canonical text.

    An invisible word has the same offset as the word before it.
    """
    starts_of_text = itertools.accumulate(split_words(text), "{} {}".format)
    return [len(canonicalize(start)) for start in starts_of_text]


def join_texts(left: str, right: str) -> str:
    """Joins two texts, with a space unless the first ends in Chinese or Japanese text."""
    return left + right if not left or UNSPACED.fullmatch(left[-1]) else f"{left} {right}"


def has_small(text: str) -> bool:
    """Returns whether a text contains a lowercase letter that has an uppercase form."""
    return any(len(c.upper()) == 1 and c.upper() != c for c in text)


def has_capital(text: str) -> bool:
    """Returns whether a text contains a capital letter."""
    return text.lower() != text


def upper(text: str, language: str = "") -> str:
    """Converts a text to upper case by the rules of a language."""
    if language in CAPITALS:
        text = text.replace(*CAPITALS[language])
    if language in GREEK:
        text = HIATUS.sub("\\g<0>\u0308", unicodedata.normalize("NFD", text))
        text = unicodedata.normalize("NFC", ACCENT.sub("\\g<1>", text))
    return text.upper()


def lower(text: str, language: str = "") -> str:
    """Converts a text to lower case by the rules of a language."""
    if CAPITALS.get(language) == DOTTED:
        text = text.replace("I", "ı")
    return text.replace("İ", "i").lower()


def capitalize(text: str, language: str = "") -> str:
    """Capitalises the first letter of a text by the rules of a language."""
    small, capital = CAPITALS.get(language, ("", ""))
    if small and text.startswith(small):
        return capital + text[len(small) :]
    return unicodedata.normalize("NFC", text[:1].title()) + text[1:]
