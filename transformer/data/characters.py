"""Canonical text: the characters that tokenizer, cleaning, translation and scores see.

It also changes the case of letters by the rules of a language.
"""

import itertools
import re
import unicodedata

import regex

CHARACTER_RULE = "characters 1"  # in cache keys: change the number when the rule changes

# Tabs, line ends and separators, with the blanks around them; or several blanks.
BLANKS = re.compile(" *[\t-\r\x1c-\x1f\x85\u2028\u2029][ \t-\r\x1c-\x1f\x85\u2028\u2029]*|  +")
# Other control characters, soft hyphens, zero-width spaces, direction marks, word joiners.
NEVER_SEEN = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb]+"
)
# Joiners, variation selectors and tags, which change other characters and are invisible alone.
INVISIBLE = re.compile("[\\s\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e007f\U000e0100-\U000e01ef]*")
# No blank is written after Chinese and Japanese characters, nor after full-width forms.
UNSPACED = regex.compile(
    r"[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Bopomofo}\u3000-\u303f\ufe30-\ufe4f\uff01-\uff9f]"
)
# Letters whose capitals depend on the language (Unicode's SpecialCasing.txt and CLDR).
DOTTED, DUTCH, ARMENIAN = ("i", "İ"), ("ij", "IJ"), ("և", "Եվ")
CAPITALS = {"tr": DOTTED, "tur": DOTTED, "az": DOTTED, "aze": DOTTED, "nl": DUTCH, "nld": DUTCH}
CAPITALS |= {"hy": ARMENIAN, "hye": ARMENIAN}
# Greek capitals lack accents, except the word "ή". A vowel that an accent separates from the
# one before has a diaeresis instead.
GREEK = {"el", "ell"}
HIATUS = regex.compile(r"(?<=[αεηιουωΑΕΗΙΟΥΩ]\u0301)[ιυΙΥ](?!\u0308)")
ACCENT = regex.compile(
    r"((?<![\p{L}\p{M}])[ηΗ]\u0301(?![\p{L}\p{M}]))|[\u0300\u0301\u0313\u0314\u0342]"
)
# Punctuation at the end of a word, with or without a blank before it.
PUNCTUATION = re.compile(r"(?<=[^\s.,;:!?…]) *([.,;:!?…]+)(?!\S)")


def canonicalize(text: str) -> str:
    """Returns a text in NFC and on one line, without invisible characters; '' if nothing is left.

    Consecutive blanks become one, and white space at both ends is removed; other spaces are kept.
    """
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    text = unicodedata.normalize("NFC", BLANKS.sub(" ", NEVER_SEEN.sub("", text)).strip())
    return "" if INVISIBLE.fullmatch(text) else text


def split_words(text: str) -> list[str]:
    """Returns the words between blanks; no-break spaces and tabs do not separate words."""
    return [word for word in text.split(" ") if word]


def word_ends(text: str) -> list[int]:
    """Returns the end of each word of a text in its canonical text, in characters from zero.

    An invisible word ends at the end of the word before it.
    """
    starts_of_text = itertools.accumulate(split_words(text), "{} {}".format)
    return [len(canonicalize(start)) for start in starts_of_text]


def join_texts(left: str, right: str) -> str:
    """Returns two texts joined by a blank, or by nothing if Chinese or Japanese text precedes."""
    return left + right if not left or UNSPACED.fullmatch(left[-1]) else f"{left} {right}"


def has_small(text: str) -> bool:
    """Returns whether a text has a lowercase letter that has a capital."""
    return any(len(c.upper()) == 1 and c.upper() != c for c in text)


def has_capital(text: str) -> bool:
    """Returns whether a text has a capital letter."""
    return text.lower() != text


def upper(text: str, language: str = "") -> str:
    """Returns a text in capitals, by the rules of a language."""
    if language in CAPITALS:
        text = text.replace(*CAPITALS[language])
    if language in GREEK:
        text = HIATUS.sub("\\g<0>\u0308", unicodedata.normalize("NFD", text))
        text = unicodedata.normalize("NFC", ACCENT.sub("\\g<1>", text))
    return text.upper()


def lower(text: str, language: str = "") -> str:
    """Returns a text in lower case, by the rules of a language."""
    if CAPITALS.get(language) == DOTTED:
        text = text.replace("I", "ı")
    return text.replace("İ", "i").lower()


def capitalize(text: str, language: str = "") -> str:
    """Returns a text with its first letter capitalised."""
    small, capital = CAPITALS.get(language, ("", ""))
    if small and text.startswith(small):
        return capital + text[len(small) :]
    return unicodedata.normalize("NFC", text[:1].title()) + text[1:]
