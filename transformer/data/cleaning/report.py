"""How many pairs of a text cleaning kept, and why it dropped the others."""

import dataclasses

from transformer.errors import UserError

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


@dataclasses.dataclass
class CleaningReport:
    """How many pairs were read and kept, and the first reason why each of the others was not.

    As text it is one line. `too_many_tokens` and `token_ratio` count kept pairs that the encoder
    drops, and `held_out` those that are found in the held-out text of any corpus, see `without`;
    `html` counts kept pairs with HTML entities.
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
