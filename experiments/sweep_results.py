"""What the points of a sweep scored: their spread over seeds, and how they differ."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats

from experiments.training_curves import Curve

SEED = "seed"  # runs that differ in nothing else repeat one setting
RESAMPLES = 1000
CONFIDENCE = 0.95
MOST_BUCKETS = 5


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
      number: from 0, in the order of the plan.
      values: what it sets, by dotted config key: `{"model.positions": "split", "seed": 1}`.
      folder: its run's folder.
      state: complete, failed, pruned, waiting or running.
      note: why it failed.
    """

    number: int
    values: dict[str, Any]
    folder: Path
    state: str
    note: str = ""

    @property
    def seed(self) -> Any:
        """The seed; None where the sweep sets none."""
        return self.values.get(SEED)

    @property
    def setting(self) -> dict[str, Any]:
        """The values without the seed."""
        return {key: value for key, value in self.values.items() if key != SEED}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a complete point left.

    Attributes:
      point: the point.
      results: its `results.json`.
      counts: int64 [sentences, 10] of the test set, see `count_ngrams`.
      exact: bool [sentences]: the translation is the reference, letter by letter.
      curves: of validation, by metric, over steps.
    """

    point: Point
    results: dict[str, Any]
    counts: np.ndarray
    exact: np.ndarray
    curves: dict[str, Curve]

    def score(self, path: str) -> float | None:
        """The number at a dotted path of the results, as `test.bleu`; None where there is none."""
        value: Any = self.results
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None


@dataclasses.dataclass(frozen=True)
class Spread:
    """A mean of n numbers, and how far they lie apart; NaN for what one number cannot tell.

    Attributes:
      mean: in the unit of the numbers, as the others.
      deviation: of the sample, its squares over n - 1.
      interval: half the width of the 95% confidence interval of the mean, by Student's t.
    """

    n: int
    mean: float
    deviation: float
    interval: float


@dataclasses.dataclass(frozen=True)
class Setting:
    """The complete points whose values are equal but for the seed."""

    values: dict[str, Any]
    outcomes: list[Outcome]

    def over_seeds(self, path: str) -> Spread | None:
        """The spread of the number at a path of the results; None unless every seed has it."""
        numbers = [outcome.score(path) for outcome in self.outcomes]
        known = [number for number in numbers if number is not None]
        return spread(known) if len(known) == len(numbers) else None

    def curve(self, metric: str) -> tuple[list[float], np.ndarray]:
        """Steps, and values [seeds, steps] of validation, at the steps that every seed has.

        Where only some seeds have a step, their mean would jump for no reason but their absence.
        """
        curves = [
            dict(zip(*outcome.curves.get(metric, ([], [])), strict=True))
            for outcome in self.outcomes
        ]
        steps = sorted(set(curves[0]).intersection(*curves[1:]))
        return steps, np.array([[curve[step] for step in steps] for curve in curves])


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A setting beside the baseline, over the seeds that both have.

    Attributes:
      difference: in BLEU, the mean over these seeds; positive where the setting is better.
      p_value: see `paired_bootstrap`.
      seeds: how many.
      signature: sacreBLEU's, of the test.
    """

    difference: float
    p_value: float
    seeds: int
    signature: str


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The points of a sweep, and what compares of them.

    Attributes:
      points: all of them.
      settings: those with a complete point, in order of first appearance.
      baseline: the one that the others are compared with, or None.
      lengths: int64 [sentences]: words of each source sentence of the test set.
    """

    points: list[Point]
    settings: list[Setting]
    baseline: Setting | None
    lengths: np.ndarray

    @functools.cached_property
    def keys(self) -> list[str]:
        """The swept keys in order of first appearance, without the seed."""
        return list(dict.fromkeys(key for point in self.points for key in point.setting))

    @functools.cached_property
    def varied(self) -> list[str]:
        """The keys in which settings differ; all keys where there is but one setting."""
        first, *others = (setting.values for setting in self.settings)
        differing = [key for key in self.keys if any(o.get(key) != first.get(key) for o in others)]
        return differing or self.keys

    @functools.cached_property
    def comparisons(self) -> list[Comparison | None]:
        """Of each setting; None for the baseline, and where it has no seed of the setting's."""
        others = [None if setting is self.baseline else setting for setting in self.settings]
        return [compare(s, self.baseline) if s and self.baseline else None for s in others]


def spread(numbers: Sequence[float]) -> Spread:
    """Mean, standard deviation and 95% interval of at least one number; see `Spread`."""
    n, mean = len(numbers), float(np.mean(numbers))
    if n == 1:
        return Spread(n, mean, math.nan, math.nan)
    deviation = float(np.std(numbers, ddof=1))
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1))
    return Spread(n, mean, deviation, quantile * deviation / math.sqrt(n))


def count_ngrams(
    translations: Sequence[str], references: Sequence[str], tokenizer: str = "13a"
) -> np.ndarray:
    """All that BLEU counts, by sentence: sums of rows make the BLEU of any corpus of them.

    Args:
      tokenizer: sacreBLEU's.

    Returns:
      int64 [sentences, 10]: words of the translation and of the reference; n-grams, n = 1 to 4,
      that the reference has too; n-grams of the translation.
    """
    metric = sacrebleu.BLEU(tokenize=tokenizer, effective_order=True)
    scores = map(metric.sentence_score, translations, ([text] for text in references))
    return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], np.int64)


def bleu(counts: np.ndarray) -> float:
    """BLEU, 0 to 100, of the corpus whose sentences have these counts [sentences, 10]."""
    words, reference_words, *ngrams = counts.sum(0).tolist()
    score = sacrebleu.BLEU.compute_bleu(ngrams[:4], ngrams[4:], words, reference_words, "exp")
    return score.score


def compare(setting: Setting, baseline: Setting) -> Comparison | None:
    """A setting beside the baseline, over the seeds of both; None where they share none.

    The test sets of these seeds are one corpus, and a resample takes a sentence with the
    translations of all seeds. Were each translation drawn by itself, more seeds would pass for
    more sentences: three equal runs would make any difference significant.
    """
    theirs = {outcome.point.seed: outcome for outcome in baseline.outcomes}
    pairs = [(o, theirs[o.point.seed]) for o in setting.outcomes if o.point.seed in theirs]
    if not pairs:
        return None
    difference = np.mean([a.results["test"]["bleu"] - b.results["test"]["bleu"] for a, b in pairs])
    ours, others = (sum(outcome.counts for outcome in side) for side in zip(*pairs, strict=True))
    p_value, signature = paired_bootstrap(ours, others)
    return Comparison(float(difference), p_value, len(pairs), signature)


def paired_bootstrap(counts: np.ndarray, baseline: np.ndarray) -> tuple[float, str]:
    """The p-value of a difference in BLEU on one test set, and the signature of the test.

    Equal counts give 1, where sacreBLEU gives its least, 1/1001: none of its resampled
    differences is larger than none at all.

    Args:
      counts: int64 [sentences, 10], see `count_ngrams`; the baseline's is of the same sentences.

    Source: Koehn 2004, as `sacrebleu --paired-bs` has it.
    """
    systems = [("baseline", baseline.tolist()), ("setting", counts.tolist())]
    test = PairedTest(systems, {"BLEU": _Counted()}, None, "bs", RESAMPLES)
    signatures, scores = test()
    p_value = 1.0 if np.array_equal(counts, baseline) else scores["BLEU"][1].p_value
    return p_value, f"bs:{RESAMPLES}|seed:{signatures['BLEU'].info['seed']}"


class _Counted(sacrebleu.BLEU):
    """BLEU that is handed counts in place of sentences, so that each is counted but once."""

    def __init__(self):
        super().__init__(tokenize="none")
        self.num_refs = 1

    def _extract_corpus_statistics(self, hypotheses, references):
        return hypotheses


def length_buckets(lengths: np.ndarray) -> list[np.ndarray]:
    """The rows of sentences of like length, up to five times about equally many.

    Sentences of one length stay together, so fewer lengths make fewer buckets.

    Args:
      lengths: int64 [sentences], in words.

    Returns:
      Row numbers of each bucket, the shortest sentences first; none is empty.
    """
    shares = np.arange(1, MOST_BUCKETS) / MOST_BUCKETS
    longest = np.unique(np.quantile(lengths, shares, method="lower"))
    longest = longest[longest < lengths.max()]  # of every bucket but the last
    bucket = np.searchsorted(longest, lengths)
    return [np.flatnonzero(bucket == number) for number in range(len(longest) + 1)]
