"""The scores of a sweep's trials: spread over seeds, and differences between settings."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.display.training_curves import Curve
from experiments.measures.registry import Measure, TaskMeasures
from experiments.measures.significance import (
    CONFIDENCE,
    Difference,
    Scores,
    compare_scores,
    scores_of_counts,
)
from experiments.measures.texts import Texts

SEED = "seed"  # runs that differ in nothing else repeat one setting
LOST = ("pruned", "failed")
# Of language models: with another vocabulary, they are means over other tokens.
PER_TOKEN = ("perplexity", "nll", "accuracy")


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of a sweep.

    Attributes:
      number: from 0, in the order of the plan.
      values: what it sets, by dotted config key: `{"model.positions": "split", "seed": 1}`.
      folder: its run's folder.
      state: complete, failed, pruned, waiting, running, or changed, if its run was trained again
        with other settings or its config cannot be read.
      note: why it failed, or what changed.
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
    """What a complete trial left.

    Attributes:
      trial: the trial.
      results: its `results.json`.
      texts: what it made of each text of the test set; None where its task keeps none.
      curves: of validation, by metric, over steps.
    """

    trial: Trial
    results: dict[str, Any]
    texts: Texts | None
    curves: dict[str, Curve]

    @property
    def own_texts(self) -> Texts:
        """Its texts, of a task that keeps them."""
        assert self.texts is not None, "this task keeps no texts"
        return self.texts

    def main_score(self, path: str) -> float:
        """The number at a path that every run has."""
        found = self.score(path)
        assert found is not None, f"trial {self.trial.number} lacks {path}"
        return found

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
    """The trials whose values are equal but for the seed, of which at least one is complete.

    Attributes:
      outcomes: of the complete ones, one of each seed.
      others: those of other seeds, which are not complete.
      repeats: outcomes of complete trials with the seed of an earlier one, as a search draws them:
        the same training again, which says nothing of the spread over seeds.
    """

    values: dict[str, Any]
    outcomes: list[Outcome]
    others: list[Trial] = dataclasses.field(default_factory=list)
    repeats: list[Outcome] = dataclasses.field(default_factory=list)

    def has_seed(self, seed: Any) -> bool:
        """Whether a trial with this seed is complete."""
        return any(outcome.trial.seed == seed for outcome in self.outcomes)

    @property
    def lost(self) -> list[Trial]:
        """The trials that were pruned or failed.

        It is mostly the worse seeds that end so: the mean of those that are left is too good.
        """
        return [trial for trial in self.others if trial.state in LOST]

    def over_seeds(self, path: str) -> Spread | None:
        """The spread of the number at a path of the results; None unless every seed has it."""
        numbers = [outcome.score(path) for outcome in self.outcomes]
        known = [number for number in numbers if number is not None]
        return spread(known) if len(known) == len(numbers) else None

    def main_spread(self, path: str) -> Spread:
        """The spread of a number that every run has."""
        found = self.over_seeds(path)
        assert found is not None, f"a run lacks {path}"
        return found

    def curve(self, metric: str) -> tuple[list[float], Float[np.ndarray, "seeds steps"]]:
        """Steps, and values of validation, at the steps that every seed has.

        Where only some seeds have a step, their mean would jump for no reason but their absence.
        """
        curves = [
            dict(zip(*outcome.curves.get(metric, ([], [])), strict=True))
            for outcome in self.outcomes
        ]
        steps = sorted(set(curves[0]).intersection(*curves[1:]))
        return steps, np.array([[curve[step] for step in steps] for curve in curves])


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The trials of a sweep, and what compares of them.

    Attributes:
      trials: all of them.
      settings: those with a complete trial, in order of first appearance.
      baseline: the one that the others are compared with, or None.
      measures: the task's, of the split that all runs have.
      vocabularies: two trials with different ones, of language models; empty if there are none.
    """

    trials: list[Trial]
    settings: list[Setting]
    baseline: Setting | None
    measures: TaskMeasures
    vocabularies: str = ""

    @functools.cached_property
    def keys(self) -> list[str]:
        """The swept keys in order of first appearance, without the seed."""
        return list(dict.fromkeys(key for trial in self.trials for key in trial.setting))

    @functools.cached_property
    def outcomes(self) -> list[Outcome]:
        """Those of all settings, one setting's after another's."""
        return [outcome for setting in self.settings for outcome in setting.outcomes]

    @functools.cached_property
    def scores(self) -> list[Measure]:
        """The measures that compare, the main one first; some may have no number here."""
        results = [outcome.results for outcome in self.outcomes]
        further = (measure.expand(results) for measure in self.measures.further)
        found = [self.measures.main, *itertools.chain(*further)]
        return [each for each in found if not self.vocabularies or each.name not in PER_TOKEN]

    def has(self, path: str) -> bool:
        """Whether a setting has a number at a path of the results."""
        return any(setting.over_seeds(path) for setting in self.settings)

    @functools.cached_property
    def varied(self) -> list[str]:
        """The keys in which settings differ; all keys where there is but one setting."""
        first, *others = (setting.values for setting in self.settings)
        differing = [key for key in self.keys if any(o.get(key) != first.get(key) for o in others)]
        return differing or self.keys

    @functools.cached_property
    def comparisons(self) -> list[Difference | None]:
        """The difference of each setting to the baseline in the main measure.

        None for the baseline, and where a setting or the baseline has seeds that were pruned or
        failed: what is left of it is not what the setting does.
        """
        base, settings = self.baseline, self.settings
        if base is None or base.lost:
            return [None] * len(settings)
        compared = [i for i, s in enumerate(settings) if s is not base and not s.lost]
        scores = [self._main_scores(settings[i]) for i in compared]
        differences = dict(
            zip(compared, compare_scores(self._main_scores(base), scores), strict=True)
        )
        return [differences.get(i) for i in range(len(settings))]

    def _main_scores(self, setting: Setting) -> Scores:
        texts, path = self.measures.texts, self.measures.main.path
        if texts is None:
            return Scores([outcome.main_score(path) for outcome in setting.outcomes])
        return scores_of_counts([o.own_texts.counts for o in setting.outcomes], texts.of_sums)


def spread(numbers: Sequence[float]) -> Spread:
    """Mean, standard deviation and 95% interval of at least one number; see `Spread`."""
    n, mean = len(numbers), float(np.mean(numbers))
    if n == 1:
        return Spread(n, mean, math.nan, math.nan)
    from scipy import stats  # which takes half a second

    deviation = float(np.std(numbers, ddof=1))
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1))
    return Spread(n, mean, deviation, quantile * deviation / math.sqrt(n))
