"""The numbers of a comparison as rows of text, and the notes that say what they are."""

import statistics
from collections.abc import Sequence

from experiments.comparison.differences import CONFIDENCE, Comparison
from experiments.comparison.outputs import TASKS
from experiments.comparison.systems import System
from experiments.measures.significance import LEVEL, RESAMPLES, p_text
from transformer.metrics.registry import Metric, find

TITLES = (
    "system",
    "seeds",
    "score",
    "difference",
    f"{CONFIDENCE:.0%} interval",
    "p bootstrap",
    "p randomisation",
)
NONE = "-"


def title_of(metric: Metric) -> str:
    """The title of a measure, and whether lower is better."""
    return metric.label + ("" if metric.higher_is_better else " (lower is better)")


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
            row += ["baseline", NONE, NONE, NONE]
        else:
            row += [
                show(found.mean, "+"),
                f"{show(found.low, '+')} to {show(found.high, '+')}",
                p_text(found.p_bootstrap),
                p_text(found.p_exchange),
            ]
        rows.append(row)
    return rows


def notes(task: str, systems: Sequence[System], comparisons: Sequence[Comparison]) -> list[str]:
    """Returns a sentence or two about each number: its method and its limits."""
    known, noun = TASKS[task], TASKS[task].noun
    first = systems[0].runs[0].outputs
    seeds = [len(system.runs) for system in systems]
    several, one = max(seeds) > 1, any(n == seeds[0] == 1 for n in seeds[1:])
    lines = [
        f"{len(first.texts):,} {noun}s. The difference is that to the baseline, {systems[0].name}"
        + (": of mean scores over seeds, whose standard deviation follows ±." if several else ".")
    ]
    if not known.measures[0].of_all_texts:
        lines.append(
            f"A run keeps the {known.made} of some {noun}s of its test set, each read without the "
            "text before it: the scores are of these, and differ from those of the whole text."
        )
    parts = f"resamples of the {noun}s" + (" and over seeds" if several else "")
    lines.append(
        f"Interval and p bootstrap: Student's t with the standard error over {RESAMPLES:,} {parts} "
        "(Koehn 2004" + ("; the two variances add, Clark 1973)." if several else ").")
    )
    if one:
        tests = {m.measure.exact for m in comparisons}
        exact = "McNemar's exact test" if tests == {True} else "McNemar's exact test for fractions"
        how = f"random exchanges of the {known.made} (Riezler and Maxwell 2005)"
        which = [how] * (False in tests) + [exact] * (True in tests)
        lines.append(
            f"p randomisation, with one seed each: {'; '.join(which)}. With one seed each, all p "
            f"are of these trained models on other {noun}s: two seeds of one setting may differ as "
            "much. To compare settings, train several seeds (--seeds=5)."
        )
    if several:
        lines.append(
            "p randomisation, with several seeds: exchanges of whole runs. It assumes nothing of "
            "their distribution, and is never below 0.33 with two seeds each, 0.1 with three, 0.03 "
            "with four and 0.008 with five. All p are of new seeds of these settings."
        )
    if len(systems) > 2:
        lines.append(
            f"All p are corrected for the {len(systems) - 1} comparisons with the baseline in one "
            f"measure by Holm's method: if no system differs, one in twenty such tables has a "
            f"p below {LEVEL}."
        )
    return lines


def signatures(task: str, systems: Sequence[System]) -> list[tuple[str, str]]:
    """Returns title and signature of each score that has one."""
    scores = systems[0].runs[0].scores
    keys = [key for key in TASKS[task].signatures if key in scores]
    return [(find(key.removesuffix("_signature"), task).title, scores[key]) for key in keys]
