"""Signs that a pair is not a sentence and its translation: pure functions of its text.

Source: Khayrallah and Koehn, "On the Impact of Various Types of Noise on Neural Machine
Translation" (2018), for the kinds of noise.
"""

import collections
import functools
import re
import unicodedata

COPY_LETTERS = 15  # a name or two may well be the same in both languages
COPY_WORDS = 4
COPY_FRACTION = 0.8  # of the words of the longer side
SPELT_OUT = 3  # digits of a number that is often written as a word
# As the Unicode names of characters begin; the last is any other.
SCRIPTS = (
    *("", "LATIN", "CYRILLIC", "GREEK", "CJK", "HANGUL", "ARABIC"),
    *("HEBREW", "DEVANAGARI", "BENGALI", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "GUJARATI"),
    *("GURMUKHI", "SINHALA", "THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN", "GEORGIAN"),
    *("ARMENIAN", "ETHIOPIC", "OTHER"),
)
DIGIT = re.compile(r"\d")
WORD = re.compile(r"[^\W\d_]+")
# Names of files, options and identifiers, which stay as they are in a translation.
CODE = re.compile(r"\S*[-_/\\@=.:<>{}$%+]\w\S*")
NOT_A_LETTER = re.compile(r"[\W\d_]+")
INVISIBLE = ("Cc", "Cf", "Zl", "Zp", "Zs")  # categories: control and format characters, blanks


def is_visible(text: str) -> bool:
    """Whether a text has a character that is seen, unlike a zero-width space."""
    return any(unicodedata.category(character) not in INVISIBLE for character in text)


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
    """Whether the sides have different digits, apart from those of numbers written in words.

    Order and separators do not count, so 1,000 is 1.000 and 1000, and 3.5 is 3,5; digits of all
    scripts are the same. If all digits of one side are on the other too, the other may have up to
    `SPELT_OUT` more: "12" may be "twelve".
    """
    first, second = (collections.Counter(map(int, DIGIT.findall(t))) for t in (source, target))
    if first == second:
        return False
    more, fewer = first - second, second - first
    return bool(more and fewer) or (more | fewer).total() > SPELT_OUT


def is_mojibake(text: str) -> bool:
    """Whether a text was read in a wrong encoding, such as "Ã¼" for "ü", or lost characters by it.

    Source: the heuristics of ftfy (Speer 2019), which are made for few false positives.
    """
    if text.isascii():
        return False
    from ftfy.badness import is_bad  # of which a model in use has no need

    return "\ufffd" in text or is_bad(text)


def script_of(text: str) -> str:
    """Returns the script of most letters, one of `SCRIPTS`; '' if there are no letters."""
    if text.isascii():
        return "LATIN" if any(map(str.isalpha, text)) else ""
    counts = collections.Counter(filter(None, map(_script, text)))
    return max(counts, key=lambda script: (counts[script], script)) if counts else ""


@functools.cache
def _script(character: str) -> str:
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    if script in ("HIRAGANA", "KATAKANA"):  # which a Japanese text mixes with Chinese characters
        return "CJK"
    return script if script in SCRIPTS else SCRIPTS[-1]


def folded(text: str) -> str:
    """Returns a text's letters without case, which near-duplicates have in common."""
    return NOT_A_LETTER.sub("", text.casefold())
