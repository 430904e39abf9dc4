"""Signs that a pair is not a sentence and its translation: pure functions of its text.

Languages are identified by py3langid, a naive Bayes classifier of 130 languages in 4 MB: on short
sentences it is more accurate, faster and smaller than lingua, see docs/results/cleaning.md.

Source: Khayrallah and Koehn, "On the Impact of Various Types of Noise on Neural Machine
Translation" (2018), for the kinds of noise; Lui and Baldwin, "langid.py: An Off-the-shelf Language
Identification Tool" (2012).
"""

import collections
import functools
import re
import unicodedata
from typing import Any

import regex

from transformer.errors import UserError

COPY_LETTERS = 15  # a name or two may well be the same in both languages
COPY_WORDS = 4
COPY_FRACTION = 0.8  # of the words of the longer side
NAME_BYTES = 15  # in UTF-8, of a name or two, which may be in another script
# As the Unicode names of characters begin; the last is any other.
SCRIPTS = (
    *("", "LATIN", "CYRILLIC", "GREEK", "CJK", "HANGUL", "ARABIC"),
    *("HEBREW", "DEVANAGARI", "BENGALI", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "GUJARATI"),
    *("GURMUKHI", "SINHALA", "THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN", "GEORGIAN"),
    *("ARMENIAN", "ETHIOPIC", "OTHER"),
)
WORD = regex.compile(r"[\p{L}\p{M}]+")  # marks are the vowels of Hindi, Thai or Arabic
NOT_FOLDED = regex.compile(r"[\p{Nd}\p{P}\p{Z}\p{C}\p{Sk}]+")
DIGITS = re.compile(r"\d{1,18}")
THOUSANDS = re.compile(r"(?<=\d)[.,'’\u00a0\u202f](?=\d{3}(?!\d))")
# The differences of the years of two calendars: Thai; Persian; the eras of Japan and Taiwan.
CALENDARS = (543, 621, 622, 1867, 1911, 1925, 1988, 2018)
# Names of files, options and identifiers, which stay as they are in a translation.
CODE = re.compile(r"\S*[-_/\\@=.:<>{}$%+]\w\S*")
# Codes of countries that are taken for those of languages.
COUNTRIES = {"ua": "uk", "cz": "cs", "gr": "el", "jp": "ja", "kr": "ko", "cn": "zh", "dk": "da",
             "se": "sv", "si": "sl", "ee": "et", "al": "sq", "in": "hi"}  # fmt: skip


def is_copied(source: str, target: str) -> bool:
    """Whether the target repeats all or most words of the source, whatever their case.

    Texts of up to `COPY_LETTERS` letters are not counted as copies, and of others with different
    letters names of files, options and the like are not words.
    """
    texts = source.casefold(), target.casefold()
    if texts[0] != texts[1]:  # a quick answer for most pairs, which have few words in common
        sets = [set(text.split()) for text in texts]
        if 2 * len(sets[0] & sets[1]) < min(map(len, sets)):
            return False
    letters = ["".join(WORD.findall(text)) for text in texts]
    if min(map(len, letters)) <= COPY_LETTERS:
        return False
    if letters[0] == letters[1]:
        return True
    words = [WORD.findall(CODE.sub(" ", text)) for text in texts]
    longer = max(map(len, words))
    if min(map(len, words)) < max(COPY_WORDS, COPY_FRACTION * longer):
        return False
    shared = collections.Counter(words[0]) & collections.Counter(words[1])
    return shared.total() >= COPY_FRACTION * longer


def numbers_differ(source: str, target: str) -> bool:
    """Whether each side has a number from ten on that contradicts those of the other.

    So none contradicts a number in words. The order, separators, zeros at the end and the script of
    the digits do not count, nor how hours and centuries are named: 10,000 is 1万, and 5 pm 17:00.
    """
    sides = [[*map(int, DIGITS.findall(THOUSANDS.sub("", text)))] for text in (source, target)]
    first, second = (sorted("".join(map(str, numbers)).replace("0", "")) for numbers in sides)
    return first != second and all(
        any(n >= 10 and not any(_may_be_same(n, m) for m in others) for n in numbers)
        for numbers, others in (sides, sides[::-1])
    )


def _may_be_same(a: int, b: int) -> bool:
    small, large = sorted((a, b))
    return (
        f"{a}".rstrip("0") == f"{b}".rstrip("0")
        or (small >= 10 and (f"{small}" in f"{large}" or small == large // 100 + 1))  # 90s, 19th
        or large - small in CALENDARS
        or large + small == 100  # a discount of 25% is 75折
        or (large <= 24 and (large - small) % 12 in (0, 1, 11))  # 10 pm; a quarter to 11
    )


def is_mojibake(text: str) -> bool:
    """Whether a text was read in a wrong encoding, such as "Ã¼" for "ü", or lost characters by it.

    Source: the heuristics of ftfy (Speer 2019), which are made for few false positives.
    """
    if text.isascii():
        return False
    from ftfy.badness import is_bad  # of which a model in use has no need

    return "\ufffd" in text or is_bad(text)


def scripts_of(text: str, name_bytes: int = NAME_BYTES) -> tuple[str, str]:
    """Returns the two scripts of most letters; '' for none, or if the text may be but a name."""
    if len("".join(WORD.findall(text)).encode()) <= name_bytes:
        return "", ""
    if text.isascii():
        return "LATIN", ""
    counts = collections.Counter(filter(None, map(_script, text)))
    first, second, *_ = *sorted(counts, key=lambda script: (-counts[script], script)), "", ""
    return first, second


@functools.cache
def _script(character: str) -> str:
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    if script in ("HIRAGANA", "KATAKANA"):  # which a Japanese text mixes with Chinese characters
        return "CJK"
    return script if script in SCRIPTS else SCRIPTS[-1]


def folded(text: str) -> str:
    """Returns what near-duplicates have in common: not case, digits, punctuation and blanks."""
    return NOT_FOLDED.sub("", unicodedata.normalize("NFC", text.casefold()))


def check_language(language: str) -> None:
    """Raises UserError if a language is unknown, or the library that identifies it is missing."""
    known = _identifier().labels
    if language not in known:
        near = COUNTRIES.get(language.lower(), re.split("[-_]", language.lower())[0])
        what = (
            f"did you mean {near!r}?" if near in known else f"choose of {', '.join(sorted(known))}"
        )
        raise UserError(
            f"config.data.languages: {language!r} is unknown: give the codes of the languages of "
            f"source and target, such as en,de: {what}"
        )


def likeliness(language: str, text: str) -> float:
    """Returns the probability of a language, over that of the most probable one; from 0 to 1.

    A text of few letters leaves many languages likely, and one without letters all.
    """
    ranked = _identifier().rank(text)
    return dict(ranked)[language] / ranked[0][1]


@functools.cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ModuleNotFoundError:
        raise UserError(
            "config.data.languages needs a library: install it with `pip install py3langid`, or "
            "leave the languages empty"
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
