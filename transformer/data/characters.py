"""The rule of text: which characters a tokenizer, cleaning, translation and scores see.

And the case of letters by the rules of a language.
"""

import itertools
import re
import unicodedata

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
# Letters with capitals of their own in a language (Unicode's SpecialCasing.txt and CLDR).
DOTTED, DUTCH, ARMENIAN = ("i", "İ"), ("ij", "IJ"), ("և", "Եվ")
CAPITALS = {"tr": DOTTED, "tur": DOTTED, "az": DOTTED, "aze": DOTTED, "nl": DUTCH, "nld": DUTCH}
CAPITALS |= {"hy": ARMENIAN, "hye": ARMENIAN}
# Greek capitals lack accents, but for the word "ή". A vowel that an accent parts from the one
# before has a diaeresis instead.
GREEK = {"el", "ell"}
HIATUS = regex.compile(r"(?<=[αεηιουωΑΕΗΙΟΥΩ]\u0301)[ιυΙΥ](?!\u0308)")
ACCENT = regex.compile(
    r"((?<![\p{L}\p{M}])[ηΗ]\u0301(?![\p{L}\p{M}]))|[\u0300\u0301\u0313\u0314\u0342]"
)
# Punctuation at the end of a word, with or without a blank before it.
PUNCTUATION = re.compile(r"(?<=[^\s.,;:!?…]) *([.,;:!?…]+)(?!\S)")


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


def has_small(text: str) -> bool:
    """Returns whether a text has a letter that is not a capital and could be one."""
    return any(len(c.upper()) == 1 and c.upper() != c for c in text)


def has_capital(text: str) -> bool:
    """Returns whether a text has a letter that is a capital."""
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
    """Returns a text in small letters, by the rules of a language."""
    if CAPITALS.get(language) == DOTTED:
        text = text.replace("I", "ı")
    return text.replace("İ", "i").lower()


def capitalize(text: str, language: str = "") -> str:
    """Returns a text with a capital as its first letter."""
    small, capital = CAPITALS.get(language, ("", ""))
    if small and text.startswith(small):
        return capital + text[len(small) :]
    return unicodedata.normalize("NFC", text[:1].title()) + text[1:]
