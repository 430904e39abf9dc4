"""Cleaning rules for training pairs, and counts of the pairs that violate each rule.

Languages are identified with py3langid, a 4 MB naive Bayes classifier for 130 languages, which is
faster and smaller than lingua, and more accurate on short sentences.

Source: Khayrallah and Koehn, "On the Impact of Various Types of Noise on Neural Machine
Translation" (2018), for the types of noise; Lui and Baldwin, "langid.py: An Off-the-shelf Language
Identification Tool" (2012).
"""

import collections
import dataclasses
import functools
import re
import unicodedata
from collections.abc import Mapping
from html import unescape
from typing import Any, NamedTuple

import regex
from ml_collections import ConfigDict

from transformer.errors import UserError

# Added to both lengths before their ratio is computed: "Ja." may well be "Yes, of course I do."
SHORT_SENTENCE = 10

# Descriptions of the possible faults of a pair, in the order of the checks. "script" and all later
# faults depend on other pairs or on tokens. "held_out" refers to held-out text of any corpus.
REASONS = {
    "empty": "with an empty side",
    "too_long": "over config.data.max_characters",
    "length_ratio": "over config.data.max_length_ratio",
    "mojibake": "in a wrong encoding",
    "copied": "copied from the source",
    "numbers": "with other numbers",
    "language": "in another language",
    "script": "in another script",
    "duplicate": "repeated",
    "near_duplicate": "nearly repeated",
    "held_out": "in held-out text",
    "too_many_tokens": "over config.data.max_tokens",
    "token_ratio": "over config.data.max_token_ratio",
}
FAULTS = ("", *REASONS)  # indexed by the fault numbers in arrays; '' means that a pair is kept
COPY_LETTERS = 15  # maximum letters of a possible name, which may be the same in both languages
COPY_WORDS = 4
COPY_FRACTION = 0.8  # minimum fraction of the longer side's words
NAME_BYTES = 15  # maximum UTF-8 bytes of one or two names, which may be in any script
# Scripts, as the first word of Unicode character names; the last entry is any other script.
SCRIPTS = (
    *("", "LATIN", "CYRILLIC", "GREEK", "CJK", "HANGUL", "ARABIC"),
    *("HEBREW", "DEVANAGARI", "BENGALI", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "GUJARATI"),
    *("GURMUKHI", "SINHALA", "THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN", "GEORGIAN"),
    *("ARMENIAN", "ETHIOPIC", "OTHER"),
)
LETTER_RUN = regex.compile(r"[\p{L}\p{M}]+")  # marks include the vowels of Hindi, Thai and Arabic
NOT_FOLDED = regex.compile(r"[\p{Nd}\p{P}\p{Z}\p{C}\p{Sk}]+")
DIGITS = re.compile(r"\d{1,18}")
THOUSANDS = re.compile(r"(?<=\d)[.,'’\u00a0\u202f](?=\d{3}(?!\d))")
# Year offsets of the Thai, Persian, Japanese and Taiwanese calendars.
CALENDARS = (543, 621, 622, 1867, 1911, 1925, 1988, 2018)
# File names, options and identifiers, which stay the same in a translation.
CODE_WORD = re.compile(r"\S*[-_/\\@=.:<>{}$%+]\w\S*")


@dataclasses.dataclass(frozen=True)
class CleaningRules:
    """The rules that a training pair must satisfy. Pairs with an empty side are always dropped.

    The length ratio is the longer length divided by the shorter length, after adding ten to both so
    that short sentences are kept. The smaller of two such ratios is used: one in characters, which
    suits Russian and English, and one in UTF-8 bytes, which suits Chinese and English, since a
    Chinese character of three bytes is often a word.

    Args:
      max_characters: maximum length of a side, in Unicode code points.
      remove_near_duplicates: whether to keep only the first of several pairs with equal `folded`.
      languages: language codes of source and target; '' accepts any language.
      min_language_ratio: minimum probability of the expected language of a side, as a fraction of
        the probability of the most probable language.
      min_script_fraction: minimum fraction of sentences in a script for it to be usual on a side.
        A pair with unusual scripts is dropped, unless they may be names. 0 keeps all pairs.
    """

    max_characters: int
    max_length_ratio: float
    remove_duplicates: bool
    remove_near_duplicates: bool = False
    languages: tuple[str, ...] = ("", "")
    min_language_ratio: float = 0.05
    min_script_fraction: float = 0.0
    remove_copies: bool = False
    remove_mojibake: bool = False
    match_numbers: bool = False

    def __post_init__(self):
        codes = [*filter(None, self.languages)]
        choices = language_identifier().labels if codes else ()
        if len(self.languages) != 2 or not {*codes} <= {*choices}:
            raise UserError(
                f"config.data.languages={self.languages}: give codes of the languages of source "
                f"and target, such as en,de, of {', '.join(sorted(choices))}"
            )

    def fault(self, source: str, target: str) -> str:
        """Returns the first of `REASONS` that applies to a canonical pair, or '' if none does.

        HTML entities are decoded before the checks.
        """
        sides = source, target = unescape(source), unescape(target)
        if not all(sides):
            return "empty"
        if max(map(len, sides)) > self.max_characters:
            return "too_long"
        lengths = [[*map(len, sides)], [len(side.encode()) for side in sides]]
        ratios = [(max(two) + SHORT_SENTENCE) / (min(two) + SHORT_SENTENCE) for two in lengths]
        if min(ratios) > self.max_length_ratio:
            return "length_ratio"
        if self.remove_mojibake and any(map(is_mojibake, sides)):
            return "mojibake"
        if self.remove_copies and is_copied(source, target):
            return "copied"
        if self.match_numbers and numbers_differ(source, target):
            return "numbers"
        for language, text in zip(self.languages, sides, strict=True):
            if language:  # a text with few letters has many likely languages
                ranked = dict(language_identifier().rank(text))
                if ranked[language] / max(ranked.values()) < self.min_language_ratio:
                    return "language"
        return ""


def rules_of(settings: ConfigDict) -> CleaningRules:
    """Returns the cleaning rules in `config.data`."""
    fields = dataclasses.fields(CleaningRules)
    values: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields}
    return CleaningRules(**{**values, "languages": tuple(settings.languages)})


class CleaningReport(NamedTuple):
    """Pair counts, keyed by the first fault of a pair, or by '' for pairs that are kept.

    The string form of a report is a one-line summary.
    """

    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        """Number of pairs that were read."""
        return sum(self.counts.values())

    @property
    def kept(self) -> int:
        """Number of pairs without a fault."""
        return self.counts.get("", 0)

    @property
    def dropped(self) -> dict[str, int]:
        """Number of dropped pairs for each reason that occurred."""
        counts = {reason: self.counts.get(fault, 0) for fault, reason in REASONS.items()}
        return {reason: count for reason, count in counts.items() if count}

    def summary(self) -> dict[str, Any]:
        """Returns the numbers of pairs that were read, kept and dropped, as JSON data."""
        return {"read": self.total, "kept": self.kept, "dropped": self.dropped}

    def without(self, **dropped: int) -> "CleaningReport":
        """Returns a report with more dropped pairs; `dropped` has their number for each fault."""
        rest = self.kept - sum(dropped.values())
        return self._replace(counts={**self.counts, **dropped, "": rest})

    def __str__(self) -> str:
        dropped = [f"{count:,} {reason}" for reason, count in self.dropped.items()]
        line = f"kept {self.kept:,} of {self.total:,} sentence pairs"
        return f"{line}; dropped {', '.join(dropped)}" if dropped else line


def check_kept(report: CleaningReport) -> CleaningReport:
    """Returns the report; raises UserError with all counts if cleaning dropped every pair."""
    if not report.kept:
        raise UserError(
            f"no training text is left: {report}; raise the limits named here, or see whether "
            "config.data.source names the right text"
        )
    return report


# -- checks for pairs that are not translations


def is_copied(source: str, target: str) -> bool:
    """Returns whether the target repeats all or most words of the source, ignoring case.

    Texts of up to `COPY_LETTERS` letters do not count as copies. Unless all letters are equal, file
    names, options and identifiers are not counted as words.
    """
    texts = source.casefold(), target.casefold()
    if texts[0] != texts[1]:  # early exit for most pairs, which have few words in common
        sets = [set(text.split()) for text in texts]
        if 2 * len(sets[0] & sets[1]) < min(map(len, sets)):
            return False
    letters = ["".join(LETTER_RUN.findall(text)) for text in texts]
    if min(map(len, letters)) <= COPY_LETTERS:
        return False
    if letters[0] == letters[1]:
        return True
    words = [LETTER_RUN.findall(CODE_WORD.sub(" ", text)) for text in texts]
    longer = max(map(len, words))
    if min(map(len, words)) < max(COPY_WORDS, COPY_FRACTION * longer):
        return False
    shared = collections.Counter(words[0]) & collections.Counter(words[1])
    return shared.total() >= COPY_FRACTION * longer


def numbers_differ(source: str, target: str) -> bool:
    """Returns whether each side has a number of at least 10 that the other side does not have.

    Order, separators, trailing zeros and the script of digits are ignored, and different notations
    of hours and centuries are equal. For example, 10,000 equals 1万, and 5 pm equals 17:00.
    """
    sides = [[*map(int, DIGITS.findall(THOUSANDS.sub("", text)))] for text in (source, target)]
    first, second = (sorted("".join(map(str, numbers)).replace("0", "")) for numbers in sides)
    return first != second and all(
        any(n >= 10 and not any(_may_be_same_number(n, m) for m in others) for n in numbers)
        for numbers, others in (sides, sides[::-1])
    )


def _may_be_same_number(a: int, b: int) -> bool:
    small, large = sorted((a, b))
    return (
        f"{a}".rstrip("0") == f"{b}".rstrip("0")
        or (small >= 10 and (f"{small}" in f"{large}" or small == large // 100 + 1))  # 90s, 19th
        or large - small in CALENDARS
        or large + small == 100  # a discount of 25% is 75折
        or (large <= 24 and (large - small) % 12 in (0, 1, 11))  # 10 pm; a quarter to 11
    )


def is_mojibake(text: str) -> bool:
    """Returns whether a text was decoded wrongly ("Ã¼" for "ü") or has lost characters.

    Source: ftfy (Speer 2019), whose heuristics have few false positives.
    """
    if text.isascii():
        return False
    from ftfy.badness import is_bad  # not needed for inference

    return "\ufffd" in text or is_bad(text)


def scripts_of(text: str, name_bytes: int = NAME_BYTES) -> tuple[str, str]:
    """Returns the two most frequent scripts, or '' if there are fewer or the text may be a name."""
    if len("".join(LETTER_RUN.findall(text)).encode()) <= name_bytes:
        return "", ""
    if text.isascii():
        return "LATIN", ""
    counts = collections.Counter(filter(None, map(_script_of, text)))
    first, second, *_ = *sorted(counts, key=lambda script: (-counts[script], script)), "", ""
    return first, second


@functools.cache
def _script_of(character: str) -> str:
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    if script in ("HIRAGANA", "KATAKANA"):  # Japanese text mixes them with Chinese characters
        return "CJK"
    return script if script in SCRIPTS else SCRIPTS[-1]


def folded(text: str) -> str:
    """Returns a text without case, digits, punctuation and spaces, to find near-duplicates."""
    return NOT_FOLDED.sub("", unicodedata.normalize("NFC", text.casefold()))


@functools.cache
def language_identifier() -> Any:
    """Returns py3langid's classifier: `labels`, and `rank(text)` with all (label, probability)."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # takes 0.2 s to import

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
