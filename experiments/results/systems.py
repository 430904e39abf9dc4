"""Reads, checks and compares systems on one test set, such as the settings of a sweep."""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64
from ml_collections import ConfigDict

from transformer.errors import ENDS_OF_LINES, UserError
from transformer.files import open_arrays, read_json
from transformer.runs.run import SCORES, damaged_text
from ..display.training_curves import Curve, read_curves
from . import statistics
from .statistics import Difference, Scores, Spread, score_of, text_values
from .tasks import REGISTRY, Counts, Measure, TaskMeasures, Texts, count_words, unreadable

SPLIT_ORDER = ("test", "validation", "length_generalization")  # the order of splits in tables
SEED = "seed"  # runs that differ only in this key are repetitions of one setting
LOST = ("pruned", "failed")
# Metrics of language models. Byte counts do not depend on the vocabulary, token counts do.
PERPLEXITY, BITS_PER_BYTE = "perplexity", "bits_per_byte"
PER_TOKEN = (PERPLEXITY, "nll", "accuracy")
APART = "scores are not comparable; sweep them apart"


class SweepTrial(NamedTuple):
    """One trial of a sweep."""

    number: int  # from 0, in the order of the plan
    values: dict[str, Any]  # keyed by dotted config key: {"model.positions": "split", "seed": 1}
    folder: Path
    # complete, failed, pruned, waiting or running; repeated, if a search sampled the same values
    # again; or changed, if the run was retrained with other settings or its config is unreadable
    state: str
    note: str = ""  # why the trial failed, or what changed

    @property
    def seed(self) -> Any:
        """The seed, or None if the sweep does not set a seed."""
        return self.values.get(SEED)

    @property
    def setting(self) -> dict[str, Any]:
        """The values without the seed."""
        return {key: value for key, value in self.values.items() if key != SEED}


class ScoredRun(NamedTuple):
    """A run with its scores."""

    folder: Path
    results: dict[str, Any]  # content of the results.json of the run or of an evaluation
    trial: SweepTrial | None = None  # None outside a sweep
    curves: Mapping[str, Curve] = {}  # validation curves over steps, keyed by metric
    # Texts of the test set; empty if only scores are compared.
    texts: Texts = Texts({}, {}, [])
    lengths: Int64[np.ndarray, "texts"] = np.zeros(0, np.int64)  # number of words in each input
    counts: Mapping[str, Counts] = {}  # counts of each text, keyed by metric

    def score(self, path: str) -> float | None:
        """Returns the number at a dotted path in the results, such as `test.bleu`, or None."""
        value: Any = self.results
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None


@dataclasses.dataclass(frozen=True)
class System:
    """Runs that differ only in their seed: runs pooled by --runs, or one setting of a sweep."""

    name: str
    runs: list[ScoredRun]  # complete runs, one per seed
    # Table cells keyed by column: the swept config values without the seed, or the system's name.
    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Incomplete trials of the same setting with other seeds.
    others: list[SweepTrial] = dataclasses.field(default_factory=list)

    @property
    def lost(self) -> list[SweepTrial]:
        """The trials that were pruned or failed, which mostly have worse scores."""
        return [trial for trial in self.others if trial.state in LOST]

    def over_seeds(self, path: str) -> Spread | None:
        """Returns the spread of a result over seeds, or None if a run lacks this result."""
        numbers = [number for run in self.runs if (number := run.score(path)) is not None]
        return statistics.spread(numbers) if len(numbers) == len(self.runs) else None

    def curve(self, metric: str) -> tuple[list[float], Float[np.ndarray, "seeds steps"]]:
        """Returns the steps that every run has, and the validation scores at these steps.

        At other steps, the mean would jump because a seed is missing.
        """
        curves = [dict(zip(*run.curves.get(metric, ([], [])), strict=True)) for run in self.runs]
        steps = sorted(set(curves[0]).intersection(*curves[1:]))
        return steps, np.array([[curve[step] for step in steps] for curve in curves])


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Systems on one test set, and their differences from a baseline in each of `metrics`."""

    systems: list[System]  # in a sweep, settings with a complete trial, in order of appearance
    baseline: System | None  # the system that the others are compared with
    measures: TaskMeasures  # measures on the split that all runs have
    metrics: Sequence[str]  # the main metric first
    trials: Sequence[SweepTrial] = ()  # all trials of a sweep, else empty
    vocabularies: str = ""  # names of two language models whose vocabularies differ

    @property
    def runs(self) -> list[ScoredRun]:
        """The runs of all systems, grouped by system."""
        return [run for system in self.systems for run in system.runs]

    @functools.cached_property
    def scores(self) -> list[Measure]:
        """The measures shown in tables, main measure first. The results may lack some of them."""
        if not self.trials:
            return [self.measures.measure(name) for name in self.metrics]
        further = self.measures.further([run.results for run in self.runs])
        measures = [self.measures.main, *further]
        return [each for each in measures if not self.vocabularies or each.name not in PER_TOKEN]

    def has(self, path: str) -> bool:
        """Returns whether any system has a number at this path in the results of all its runs."""
        return any(system.over_seeds(path) for system in self.systems)

    @functools.cached_property
    def differences(self) -> dict[str, list[Difference | None]]:
        """The differences from the baseline, keyed by metric; see `compare`."""
        return {name: self.compare(name) for name in self.metrics}

    @property
    def main_differences(self) -> list[Difference | None]:
        """The differences in the main metric."""
        return self.differences[self.metrics[0]]

    def compare(self, metric: str) -> list[Difference | None]:
        """Returns the difference between each system and the baseline.

        The difference is None for the baseline, and if the system or the baseline has lost (pruned
        or failed) seeds, since the mean over the remaining seeds is biased.
        """
        base, systems = self.baseline, self.systems
        if base is None or base.lost:
            return [None] * len(systems)
        is_compared = [system is not base and not system.lost for system in systems]
        compared = itertools.compress(systems, is_compared)
        baseline, *others = [self._scores(each, metric) for each in (base, *compared)]
        differences = iter(statistics.compare_scores(baseline, others))
        return [next(differences) if each else None for each in is_compared]

    def _scores(self, system: System, metric: str) -> Scores:
        """Returns the scores of a system's runs."""
        if metric in system.runs[0].counts:
            counts, of_sums = [r.counts[metric] for r in system.runs], self.measures.of_sums[metric]
            values = np.stack([text_values(each, of_sums) for each in counts])
            return Scores([score_of(each, of_sums) for each in counts], values)
        path = self.measures.measure(metric).path
        return Scores([score for run in system.runs if (score := run.score(path)) is not None])


# -- reading


def read_results(place: Path) -> dict[str, Any]:
    """Returns the results in a run's folder; raises UserError if they are damaged."""
    path, fix = place / "results.json", "--mode=evaluate writes it again"
    results = read_json(path, {"test?": dict}, fix)
    if name := damaged_text(place, results):
        raise UserError(f"{place / name} is not what was written: {fix}")
    return results


def read_texts(
    run: ScoredRun, place: Path, measures: TaskMeasures, data: ConfigDict | None
) -> ScoredRun:
    """Returns the run with its texts and per-text counts, read from the folder `place`.

    Source tags of `config.data` are removed, since they are not part of the test set.
    """
    try:
        with open_arrays(place / SCORES) as arrays:
            counts = dict(arrays)
    except ValueError as error:
        raise unreadable(place / SCORES, error) from None
    texts = measures.read(place, data)
    inputs, *_ = texts.shown.values()
    return run._replace(texts=texts, lengths=count_words(inputs), counts=counts)


def _names(first: ScoredRun, other: ScoredRun) -> str:
    """Returns the names of two runs for messages: trial numbers in a sweep, or else folders."""
    if first.trial and other.trial:
        return f"trials {first.trial.number} and {other.trial.number}"
    return f"{first.folder} and {other.folder}"


def check_same_texts(first: ScoredRun, other: ScoredRun, fix: str) -> None:
    """Raises UserError with the first differing line if the test sets of two runs differ."""
    ours, theirs = first.texts.given, other.texts.given
    for name in ours | theirs:
        pairs = itertools.zip_longest(ours.get(name, ()), theirs.get(name, ()))
        for number, (line, their) in enumerate(pairs, 1):
            if line != their:
                both = _names(first, other)
                raise UserError(f"{both} have different test sets ({name}, line {number}): {fix}")


def find_unlike(
    runs: Sequence[ScoredRun], splits: Sequence[str], ignored: Collection[str] = ()
) -> dict[str, tuple[str, str]]:
    """Returns, for each metric, two runs with different signatures, and both signatures."""
    first: dict[tuple[str, str], tuple[ScoredRun, str]] = {}
    unlike: dict[str, tuple[str, str]] = {}
    for run, split in itertools.product(runs, splits):
        for key, signature in (run.results.get(split) or {}).items():
            name, end, _ = key.partition("_signature")
            if not end or name in ignored:
                continue
            before, other = first.setdefault((split, name), (run, signature))
            if signature != other:
                both = f"{split} {name}: {other!r} and {signature!r}"
                unlike.setdefault(name, (_names(before, run), both))
    return unlike


def value_text(value: Any) -> str:
    """Returns a config value as one line of text; an empty string is shown as quotes."""
    text = f"{value:g}" if isinstance(value, float) else str(value) or '""'
    return ENDS_OF_LINES.sub(lambda end: repr(end[0])[1:-1], text)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Returns the last part of each dotted key, or the whole key if two keys share it."""
    last = {key: key.split(".")[-1] for key in keys}
    return {k: n if list(last.values()).count(n) == 1 else k for k, n in last.items()}


def read_sweep(task: str, trials: Sequence[SweepTrial], baseline: int | None = None) -> Comparison:
    """Reads the complete trials of a sweep, and checks that their scores are comparable.

    Args:
      baseline: the number of a trial whose setting is the baseline.
    """
    complete = [trial for trial in trials if trial.state == "complete"]
    if not complete:
        raise UserError("no trial is complete yet: there is nothing to compare")
    runs = [ScoredRun(trial.folder, read_results(trial.folder), trial) for trial in complete]
    measures = REGISTRY[task]
    common = (s for s in measures.splits if all(isinstance(r.results.get(s), dict) for r in runs))
    measures = dataclasses.replace(measures, split=next(common, measures.splits[-1]))
    # Losses are compared only for language models.
    losses = () if measures.main_metric == PERPLEXITY else (PERPLEXITY, BITS_PER_BYTE)
    if unlike := find_unlike(runs, SPLIT_ORDER, losses):
        others = [both for name, both in unlike.items() if name != PERPLEXITY]
        if others or measures.main_metric != PERPLEXITY:
            names, signatures = (others or [*unlike.values()])[0]
            raise UserError(f"{names} have different signatures of {signatures}: such {APART}")
        only = (BITS_PER_BYTE,)  # the vocabularies of the language models differ
        measures = dataclasses.replace(
            measures, main_metric=BITS_PER_BYTE, panels=only, curves=only
        )
    for i, run in enumerate(runs):
        run = run._replace(curves=validation_curves(run.folder, measures.curves))
        if measures.all_texts:
            run = read_texts(run, run.folder, measures, None)
            if i > 0:
                check_same_texts(runs[0], run, f"their {APART}")
                run = run._replace(texts=Texts({}, {}, []))  # all texts may not fit in memory
        runs[i] = run
    systems = _settings(runs, trials)
    marked = [trial.setting for trial in trials if trial.number == baseline]
    base = next((system for system in systems if [system.values] == marked), None)
    vocabularies, _ = unlike.get(PERPLEXITY, ("", ""))
    return Comparison(systems, base, measures, [measures.main_metric], trials, vocabularies)


def _settings(runs: Sequence[ScoredRun], trials: Sequence[SweepTrial]) -> list[System]:
    """Returns a system for each setting that has complete trials."""
    read = {run.trial.number: run for run in runs if run.trial}
    settings: dict[str, list[SweepTrial]] = {}
    for trial in trials:  # a value may be a list, which is not hashable
        settings.setdefault(repr(sorted(trial.setting.items())), []).append(trial)
    systems: list[System] = []
    for same in settings.values():
        if complete := [read[trial.number] for trial in same if trial.number in read]:
            seeds = [run.trial.seed for run in complete if run.trial]
            others = [t for t in same if t.state != "complete" and t.seed not in seeds]
            systems.append(System("", complete, same[0].setting, others))
    keys = list(dict.fromkeys(key for system in systems for key in system.values))
    first = systems[0].values
    varied = [k for k in keys if any(s.values.get(k) != first.get(k) for s in systems)] or keys
    names = short_names(varied).items()  # of the keys that differ: `positions=split, num_heads=8`
    for i, each in enumerate(systems):
        parts = [f"{name}={value_text(each.values[k])}" for k, name in names if k in each.values]
        systems[i] = dataclasses.replace(each, name=", ".join(parts) or "as configured")
    return systems


def validation_curves(folder: Path, names: Sequence[str]) -> dict[str, Curve]:
    """Returns a run's validation curves, or an empty dict if the metrics file is missing."""
    try:
        curves = read_curves(folder / "metrics.jsonl", tuple(names))
    except ValueError:
        return {}
    return {name: curve for (name, split), curve in curves.items() if split != "train"}
