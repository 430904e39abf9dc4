"""The numbers of a comparison as rows of text, and the notes that explain them."""

import itertools
import statistics
from collections.abc import Sequence

from experiments.comparison.differences import CONFIDENCE, Comparison
from experiments.comparison.outputs import TASKS
from experiments.comparison.systems import System
from experiments.display.text_table import NO_NUMBER
from experiments.measures.significance import LEVEL, RESAMPLES, holm, least_exchange_p, p_text
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
ROUNDED = 0.001  # the lowest p-value that is shown as a number


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
            row += ["baseline", NO_NUMBER, NO_NUMBER, NO_NUMBER]
        else:
            row += [
                show(found.mean, "+"),
                f"{show(found.low, '+')} to {show(found.high, '+')}",
                p_text(found.p_bootstrap),
                p_text(found.p_exchange),
            ]
            if not found.has_interval:
                row[-3:-1] = [NO_NUMBER, NO_NUMBER]
        rows.append(row)
    return rows


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
    parts = f"resamples of the {noun}s" + (" and over seeds" if several else "")
    lines.append(
        f"Interval and p bootstrap: Student's t with the standard error over {RESAMPLES:,} {parts} "
        "(Koehn 2004" + ("; the two variances add, Clark 1973)." if several else ").")
    )
    differences = [found for each in comparisons for found in each.differences if found]
    if not all(found.has_interval for found in differences):
        lines.append(
            f"{NO_NUMBER}: a difference that is the same in all resamples"
            + (" and seeds" if several else "")
            + f", such as that of a single {noun}, has no interval and no p bootstrap."
        )
    lines += _group_notes(task, systems, comparisons)
    if len(systems) > 2:
        lines.append(
            f"All p are corrected for the {len(systems) - 1} comparisons with the baseline in one "
            "measure by Holm's method: if no system differs, at most one in twenty such tables has "
            f"a p below {LEVEL}. The intervals are not corrected."
        )
    return lines


def _group_notes(
    task: str, systems: Sequence[System], comparisons: Sequence[Comparison]
) -> list[str]:
    """Notes on p randomisation, and on the samples of all p, by the numbers of seeds."""
    known, noun = TASKS[task], TASKS[task].noun
    baseline, *seeds = (len(system.runs) for system in systems)
    groups: dict[str, list[str]] = {"one": [], "several": [], "mixed": []}
    for system, n in zip(systems[1:], seeds, strict=True):
        kind = "mixed" if 1 in (n, baseline) else "several"
        groups["one" if n == baseline == 1 else kind].append(system.name)
    divided = sum(map(bool, groups.values())) > 1
    of = {kind: f" ({', '.join(names)})" if divided else "" for kind, names in groups.items()}
    lines = []
    if groups["one"]:
        tests = {comparison.measure.exact for comparison in comparisons}
        exact = "McNemar's exact test" if tests == {True} else "McNemar's exact test for fractions"
        how = f"random exchanges of the {known.made} (Riezler and Maxwell 2005)"
        which = [how] * (False in tests) + [exact] * (True in tests)
        lines.append(
            f"With one seed each{of['one']}: p randomisation comes from {'; '.join(which)}. All p "
            f"are of these trained models on other {noun}s: two seeds of one setting may differ as "
            "much. To compare settings, train several seeds (--seeds=5)."
        )
    if groups["several"]:
        lines.append(
            f"With several seeds each{of['several']}: p bootstrap is of new seeds of these "
            f"settings on other {noun}s. p randomisation is a permutation test over whole runs: it "
            f"is of new seeds on these {noun}s, and assumes nothing of their distribution."
        )
    if groups["mixed"]:
        lines.append(
            f"With one seed against several{of['mixed']}: p bootstrap is of new seeds of these "
            f"settings on other {noun}s if both vary as much over seeds as the one that has "
            "several. p randomisation is a permutation test over whole runs: it is of new seeds on "
            f"these {noun}s."
        )
    return lines + _floor_notes([system.name for system in systems[1:]], seeds, baseline)


def _floor_notes(names: Sequence[str], seeds: Sequence[int], baseline: int) -> list[str]:
    """The lowest p that a permutation test over whole runs can have, if that is worth a note."""
    of_texts = [n == baseline == 1 for n in seeds]  # exchanges of texts have no such limit
    least = [
        0.0 if texts else least_exchange_p(n, baseline)
        for n, texts in zip(seeds, of_texts, strict=True)
    ]
    floors: dict[str, list[str]] = {}
    for name, p, texts in zip(names, holm(least), of_texts, strict=True):
        if not texts and p >= ROUNDED:
            floors.setdefault(p_text(p), []).append(name)
    if not floors:
        return []
    told = [
        f"{text} ({', '.join(own)})" if any(of_texts) or len(floors) > 1 else text
        for text, own in floors.items()
    ]
    corrected = " after Holm's correction" if len(names) > 1 else ""
    line = f"With these numbers of seeds p randomisation is never below {' and '.join(told)}"
    few = {text: own for text, own in floors.items() if float(text) > LEVEL}
    if not few:
        return [f"{line}{corrected}."]
    names = ", ".join(itertools.chain(*few.values()))
    of = "" if len(few) == len(floors) else f" of {names}"
    return [f"{line}{corrected}: above {LEVEL}, so only p bootstrap can show a difference{of}."]


def signatures(task: str, systems: Sequence[System]) -> list[tuple[str, str]]:
    """Returns title and signature of each score that has one."""
    scores = systems[0].runs[0].scores
    keys = [key for key in TASKS[task].signatures if key in scores]
    return [(find(key.removesuffix("_signature"), task).title, scores[key]) for key in keys]
