"""Systems and their runs, in a sweep or a comparison: their spread, and their differences."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.display.training_curves import Curve
from experiments.results import statistics
from experiments.results.statistics import Difference, Scores, Spread, scores_of_counts
from experiments.results.tasks import Measure, TaskMeasures
from experiments.results.texts import Outputs

SPLITS = ("test", "validation", "length_generalization")  # in the order of tables
SEED = "seed"  # runs that differ in nothing else repeat one setting
LOST = ("pruned", "failed")
# Of language models: with another vocabulary, they are means over other tokens.
PER_TOKEN = ("perplexity", "nll", "accuracy")


class Trial(NamedTuple):
    """One run of a sweep."""

    number: int  # from 0, in the order of the plan
    values: dict[str, Any]  # by dotted config key: {"model.positions": "split", "seed": 1}
    folder: Path
    # complete, failed, pruned, waiting, running, or changed, if its run was trained again with
    # other settings or its config cannot be read
    state: str
    note: str = ""  # why it failed, or what changed

    @property
    def seed(self) -> Any:
        """The seed; None if the sweep sets none."""
        return self.values.get(SEED)

    @property
    def setting(self) -> dict[str, Any]:
        """The values without the seed."""
        return {key: value for key, value in self.values.items() if key != SEED}


class Run(NamedTuple):
    """A run that is scored."""

    folder: Path
    results: dict[str, Any]  # its results.json, or that of an evaluation
    outputs: Outputs | None  # for the texts of the test set; None if scores alone are compared
    trial: Trial | None = None  # of a sweep
    curves: Mapping[str, Curve] = {}  # of validation, by metric, over steps

    @property
    def texts(self) -> Outputs:
        """Its outputs, of a task that keeps them for all texts."""
        assert self.outputs is not None, f"{self.folder} has no outputs"
        return self.outputs

    def score(self, path: str) -> float | None:
        """Returns the number at a dotted path of the results, as `test.bleu`; None if not there."""
        value: Any = self.results
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None


@dataclasses.dataclass(frozen=True)
class System:
    """Runs that differ in nothing but their seed: a setting of a sweep, or part of a comparison."""

    name: str
    runs: list[Run]  # those that are complete, one of each seed
    values: dict[str, Any] = dataclasses.field(default_factory=dict)  # without the seed
    others: list[Trial] = dataclasses.field(default_factory=list)  # of other seeds, not complete
    # Complete trials with the seed of an earlier one, as a search draws them: the same training
    # again, which says nothing of the spread over seeds.
    repeats: list[Run] = dataclasses.field(default_factory=list)

    def has_seed(self, seed: Any) -> bool:
        """Whether a trial with this seed is complete."""
        return any(run.trial is not None and run.trial.seed == seed for run in self.runs)

    @property
    def lost(self) -> list[Trial]:
        """The trials that were pruned or failed.

        It is mostly the worse seeds that end so: the mean of the remaining ones is too good.
        """
        return [trial for trial in self.others if trial.state in LOST]

    def over_seeds(self, path: str) -> Spread | None:
        """Returns the spread of a number of the results; None unless every run has it."""
        numbers = [number for run in self.runs if (number := run.score(path)) is not None]
        return statistics.spread(numbers) if len(numbers) == len(self.runs) else None

    def curve(self, metric: str) -> tuple[list[float], Float[np.ndarray, "seeds steps"]]:
        """Returns steps, and values of validation, at the steps that every run has.

        At others their mean would jump for no reason but an absent seed.
        """
        curves = [dict(zip(*run.curves.get(metric, ([], [])), strict=True)) for run in self.runs]
        steps = sorted(set(curves[0]).intersection(*curves[1:]))
        return steps, np.array([[curve[step] for step in steps] for curve in curves])


def names_of(first: Run, other: Run) -> str:
    """Returns what two runs are called in messages: their numbers in a sweep, or their folders."""
    if first.trial and other.trial:
        return f"trials {first.trial.number} and {other.trial.number}"
    return f"{first.folder} and {other.folder}"


class Comparison(NamedTuple):
    """The scores of the runs of each system, and the differences to the first, the baseline."""

    metric: str
    scores: list[list[float]]
    differences: list[Difference | None]  # None is the baseline's


def compare(
    measures: TaskMeasures, systems: Sequence[System], metric: str, rows: Any = slice(None)
) -> Comparison:
    """Compares systems with the first of them on the texts in these rows, by default on all."""
    baseline, *others = [scores_of(measures, system, metric, rows) for system in systems]
    differences = statistics.compare_scores(baseline, others)
    return Comparison(metric, [own.runs for own in (baseline, *others)], [None, *differences])


def scores_of(
    measures: TaskMeasures, system: System, metric: str, rows: Any = slice(None)
) -> Scores:
    """Returns the scores of a system's runs on the texts in these rows."""
    counts = [run.texts.counts(metric)[rows] for run in system.runs]
    return scores_of_counts(counts, measures.of_sums[metric])


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The trials of a sweep, and what compares of them."""

    trials: list[Trial]  # all of them
    systems: list[System]  # settings with a complete trial, in order of first appearance
    baseline: System | None  # that the others are compared with
    measures: TaskMeasures  # of the split that all runs have
    vocabularies: str = ""  # two runs with different ones, of language models

    @functools.cached_property
    def keys(self) -> list[str]:
        """The swept keys in order of first appearance, without the seed."""
        return list(dict.fromkeys(key for trial in self.trials for key in trial.setting))

    @property
    def runs(self) -> list[Run]:
        """Those of all systems, one after another."""
        return [run for system in self.systems for run in system.runs]

    @functools.cached_property
    def scores(self) -> list[Measure]:
        """The measures that compare, the main one first; some may have no number here."""
        results = [run.results for run in self.runs]
        further = (measure.expand(results) for measure in self.measures.further)
        measures = [self.measures.main, *itertools.chain(*further)]
        return [each for each in measures if not self.vocabularies or each.name not in PER_TOKEN]

    def has(self, path: str) -> bool:
        """Whether a system has a number at a path of the results."""
        return any(system.over_seeds(path) for system in self.systems)

    @functools.cached_property
    def varied(self) -> list[str]:
        """The keys in which settings differ; all keys if there is but one setting."""
        first, *others = (system.values for system in self.systems)
        differing = [key for key in self.keys if any(o.get(key) != first.get(key) for o in others)]
        return differing or self.keys

    @functools.cached_property
    def comparisons(self) -> list[Difference | None]:
        """The difference of each system to the baseline in the main measure.

        None for the baseline, and if a system or the baseline has seeds that were pruned or failed:
        the remaining ones are not what the setting does.
        """
        base, systems = self.baseline, self.systems
        if base is None or base.lost:
            return [None] * len(systems)
        compared = [s for s in systems if s is not base and not s.lost]
        scores = [self._main_scores(system) for system in (base, *compared)]
        differences = iter(statistics.compare_scores(scores[0], scores[1:]))
        return [next(differences) if any(s is own for own in compared) else None for s in systems]

    def _main_scores(self, system: System) -> Scores:
        measures = self.measures
        if measures.all_texts:
            return scores_of(measures, system, measures.main_metric)
        path = measures.main.path
        return Scores([score for run in system.runs if (score := run.score(path)) is not None])
