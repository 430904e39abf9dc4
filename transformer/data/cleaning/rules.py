"""The conditions for a sentence pair to be trained on, and how many pairs break each of them."""

import dataclasses
from html import unescape
from typing import Any

from ml_collections import ConfigDict

from transformer.data.cleaning.filters import (
    check_language,
    is_copied,
    is_mojibake,
    likeliness,
    numbers_differ,
    scripts_of,
)
from transformer.errors import UserError

# Added to both lengths before their ratio is taken: "Ja." may well be "Yes, of course I do."
SHORT_SENTENCE = 10

# The faults of a pair and their names, in the order in which they are looked for. The last
# two are found when the pairs are encoded; before them, pairs in the held-out text of any corpus.
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
# Likely causes if more than half of the pairs have a fault.
HINTS = {
    "length_ratio": "is line n of one side the translation of line n of the other?",
    "copied": "are the two sides in two languages?",
    "numbers": "is line n of one side the translation of line n of the other?",
    "language": "do config.data.languages name the source first, then the target?",
}
FAULTS = ("", *REASONS)  # by their numbers in arrays; '' is kept


@dataclasses.dataclass(frozen=True)
class CleaningRules:
    """The conditions for a pair to be trained on. In any case, no side may be empty.

    The length ratio is the longer side over the shorter one, with ten added to both so that short
    sentences are kept. It is computed in characters and in UTF-8 bytes, and the smaller ratio is
    used: characters suit Russian and English, bytes suit Chinese and English, because one Chinese
    character of three bytes often stands for a word. Words are not used, since Chinese and Thai do
    not put spaces between them.

    Args:
      max_characters: maximum length of a side, in Unicode code points.
      max_length_ratio: maximum ratio, at least 1; `inf` keeps all.
      remove_duplicates: keep only the first of pairs that are equal on both sides.
      remove_near_duplicates: and of those that are the same by `filters.folded`.
      languages: codes of the languages of source and target as they are read; '' is any.
      min_language_ratio: smallest probability of a side's language that is kept, over that of the
        most probable one, from 0 to 1.
      min_script_fraction: of a side's sentences, for a script to be usual there; one without a
        usual script is dropped, unless it may be a name. 0 keeps all.
      remove_copies, remove_mojibake, match_numbers: whether to look for these, see `filters`.
      usual_scripts: of each side, those that have this fraction, known once the text was read; None
        before.
    """

    max_characters: int
    max_length_ratio: float
    remove_duplicates: bool
    remove_near_duplicates: bool = False
    languages: tuple[str, str] = ("", "")
    min_language_ratio: float = 0.05
    min_script_fraction: float = 0.0
    remove_copies: bool = False
    remove_mojibake: bool = False
    match_numbers: bool = False
    usual_scripts: tuple[frozenset[str], frozenset[str]] | None = None

    def __post_init__(self):
        for language in filter(None, self.languages):
            check_language(language)

    def fault(self, source: str, target: str) -> str:
        """Returns the first rule that two sides break, as `CleaningReport` calls it; '' if none.

        Args:
          source, target: canonical, see `canonicalize`; HTML entities are decoded first.
        """
        sides = source, target = unescape(source), unescape(target)
        if not all(sides):
            return "empty"
        if max(map(len, sides)) > self.max_characters:
            return "too_long"
        if self.differ_in_length(source, target):
            return "length_ratio"
        if self.remove_mojibake and any(map(is_mojibake, sides)):
            return "mojibake"
        if self.remove_copies and is_copied(source, target):
            return "copied"
        if self.match_numbers and numbers_differ(source, target):
            return "numbers"
        for language, text in zip(self.languages, sides, strict=True):
            if language and likeliness(language, text) < self.min_language_ratio:
                return "language"
        for usual, text in zip(self.usual_scripts or (), sides, strict=False):
            scripts = scripts_of(text)
            if scripts[0] and usual.isdisjoint(scripts):
                return "script"
        return ""

    def differ_in_length(self, source: str, target: str) -> bool:
        """Whether the lengths differ by more than `max_length_ratio`."""
        characters = len(source), len(target)
        if _ratio(*characters) <= self.max_length_ratio:
            return False
        return _ratio(len(source.encode()), len(target.encode())) > self.max_length_ratio


def rules_of(settings: ConfigDict) -> CleaningRules:
    """Returns the rules of `config.data`."""
    names = {field.name for field in dataclasses.fields(CleaningRules)} - {"usual_scripts"}
    values: dict[str, Any] = {name: getattr(settings, name) for name in names}
    if len(languages := tuple(values["languages"])) != 2:
        raise UserError(
            f"config.data.languages={languages}: give the codes of two languages, of source and "
            "target, such as en,de"
        )
    values["languages"] = languages
    return CleaningRules(**values)


def _ratio(a: int, b: int) -> float:
    return (max(a, b) + SHORT_SENTENCE) / (min(a, b) + SHORT_SENTENCE)


@dataclasses.dataclass
class CleaningReport:
    """How many pairs were read and kept, and the first reason why each of the others was not.

    As text it is one line. `html` counts kept pairs with HTML entities.
    """

    total: int = 0
    kept: int = 0
    empty: int = 0
    too_long: int = 0
    length_ratio: int = 0
    mojibake: int = 0
    copied: int = 0
    numbers: int = 0
    language: int = 0
    script: int = 0
    duplicate: int = 0
    near_duplicate: int = 0
    held_out: int = 0
    too_many_tokens: int = 0
    token_ratio: int = 0
    html: int = 0

    def count(self, fault: str, pairs: int = 1) -> None:
        """Counts pairs by their fault; '' is kept."""
        self.total += pairs
        name = fault or "kept"
        setattr(self, name, getattr(self, name) + pairs)

    def without(self, **dropped: int) -> "CleaningReport":
        """Returns the report after more of the kept pairs were dropped, by field."""
        return dataclasses.replace(self, **dropped, kept=self.kept - sum(dropped.values()))

    def add(self, other: "CleaningReport") -> "CleaningReport":
        """Returns the counts of both."""
        fields = dataclasses.fields(self)
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields)
        return CleaningReport(*sums)

    @property
    def dropped(self) -> dict[str, int]:
        """How many pairs were dropped, by reason, without reasons that did not occur."""
        counts = {reason: getattr(self, fault) for fault, reason in REASONS.items()}
        return {reason: count for reason, count in counts.items() if count}

    def __str__(self) -> str:
        dropped = [f"{count:,} {reason}" for reason, count in self.dropped.items()]
        line = f"kept {self.kept:,} of {self.total:,} sentence pairs"
        hints = [
            f": {hint}" for name, hint in HINTS.items() if 2 * getattr(self, name) > self.total
        ]
        if self.html:
            line += f" ({self.html:,} with HTML entities such as &#39;: decode them in the text)"
        return f"{line}; dropped {', '.join(dropped)}{''.join(hints)}" if dropped else line


def check_kept(report: CleaningReport) -> None:
    """Raises UserError, with all counts, if cleaning left nothing to train on."""
    if not report.kept:
        raise UserError(
            f"no training text is left: {report}; raise the limits named here, or see whether "
            "config.data.source names the right text"
        )
