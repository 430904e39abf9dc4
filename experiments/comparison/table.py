"""The numbers of a comparison as rows of text, and the notes that explain them."""

import statistics
from collections.abc import Sequence

from experiments.comparison.differences import Comparison
from experiments.comparison.outputs import TASKS
from experiments.comparison.systems import System
from experiments.display.text_table import NO_NUMBER
from experiments.measures.significance import CONFIDENCE, p_text, test_notes
from experiments.report.numbers import Table
from transformer.metrics.registry import Metric, find

TITLES = (
    "system",
    "seeds",
    "score",
    "difference",
    f"{CONFIDENCE:.0%} interval",
    "p",
)


def title_of(metric: Metric) -> str:
    """The title of a measure, its unit, and whether lower is better."""
    about = [metric.unit] * bool(metric.unit)
    about += ["lower is better"] * (not metric.higher_is_better)
    return f"{metric.title} ({', '.join(about)})" if about else metric.title


def table_rows(task: str, systems: Sequence[System], comparison: Comparison) -> list[list[str]]:
    """Returns a row of `TITLES` for each system, the baseline first."""
    metric = find(comparison.measure.name, task)

    def show(number: float, sign: str = "") -> str:
        return format(number * metric.scale, sign + metric.format)

    rows = []
    for system, scores, found in zip(
        systems, comparison.scores, comparison.differences, strict=True
    ):
        text = show(statistics.fmean(scores))
        if len(scores) > 1:
            text += f" ± {show(statistics.stdev(scores))}"
        row = [system.name, str(len(scores)), text]
        if found is None:
            row += ["baseline", NO_NUMBER, NO_NUMBER]
        else:
            row += [
                show(found.mean, "+"),
                f"{show(found.low, '+')} to {show(found.high, '+')}",
                p_text(found.corrected),
            ]
            if not found.has_interval:
                row[-2:] = [NO_NUMBER, NO_NUMBER]
        rows.append(row)
    return rows


def copies(systems: Sequence[System]) -> list[Table]:
    """Returns a table of the perturbed copies that all runs have: mean BLEU and its ratio."""
    runs = [run.copies for system in systems for run in system.runs]
    shared = [key for key in runs[0] if all(key in each for each in runs)]
    caption = "BLEU of perturbed copies of the test set (ratio to the same sentences as they were)"

    def mean(system: System, key: tuple[str, int], name: str) -> str:
        values = [run.copies[key][name] for run in system.runs if name in run.copies[key]]
        return format(statistics.fmean(values), find(name).format) if values else NO_NUMBER

    rows = [
        [s.name, *(f"{mean(s, key, 'bleu')} ({mean(s, key, 'clean_ratio')})" for key in shared)]
        for s in systems
    ]
    return [Table(caption, ["system", *(name for name, _ in shared)], rows)] if shared else []


def notes(task: str, systems: Sequence[System], comparisons: Sequence[Comparison]) -> list[str]:
    """Returns a sentence or two about each number: its method and its limits."""
    known, noun = TASKS[task], TASKS[task].noun
    first = systems[0].runs[0].outputs
    several = any(len(system.runs) > 1 for system in systems)
    lines = [
        f"{len(first.texts):,} {noun}s. The difference is that to the baseline, {systems[0].name}"
        + (": of mean scores over seeds, whose standard deviation follows ±." if several else ".")
    ]
    if not known.measures[0].of_all_texts:
        lines.append(
            f"A run keeps the {known.made} of some {noun}s of its test set, each read without the "
            "text before it: the scores are of these, and differ from those of the whole text."
        )
    differences = [found for each in comparisons for found in each.differences if found]
    return lines + test_notes(differences, noun, len(systems) - 1)


def signatures(task: str, systems: Sequence[System]) -> list[tuple[str, str]]:
    """Returns title and signature of each score that has one."""
    scores = systems[0].runs[0].scores
    keys = [key for key in TASKS[task].signatures if key in scores]
    return [(find(key.removesuffix("_signature"), task).title, scores[key]) for key in keys]
