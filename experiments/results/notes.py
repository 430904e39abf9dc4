"""The notes below the tables of a sweep and of a comparison: the method and limits of a number."""

from collections.abc import Sequence

from .statistics import CONFIDENCE, LEVEL, POWER, TESTS, Difference, test_of
from .systems import Comparison, Sweep, System
from .tasks import TaskMeasures


def sweep_notes(sweep: Sweep) -> list[str]:
    """Returns a sentence or two about each number of a sweep's table."""
    measures = sweep.measures
    texts = f"these {measures.split} {measures.noun}s" if measures.all_texts else "this text"
    lines = [
        "Each row is a setting, and n is its number of complete seeds. ± is the sample standard "
        f"deviation over seeds: how much the score varies between training runs, on {texts}. The "
        f"{CONFIDENCE:.0%} interval is that of the mean over seeds, by Student's t; its ends are "
        "cut at 0, and at 100 if that is the highest possible score; equal scores have none."
    ]
    if measures.split != measures.splits[0]:
        lines.append(
            f"Scores are of the {measures.split} set, because not all runs have scores of a "
            f"{measures.splits[0]} set."
        )
    if sweep.vocabularies:
        lines.append(
            f"Settings are compared by {measures.main.title}. Perplexity, nll and accuracy are "
            f"left out: they are means over tokens, and {sweep.vocabularies} have different "
            "vocabularies. results.csv has them, with their signatures."
        )
    if repeats := [run.trial.number for s in sweep.systems for run in s.repeats if run.trial]:
        numbers = ", ".join(map(str, sorted(repeats)))
        lines.append(
            f"Trials that repeat an earlier one with the same seed are left out: {numbers}. They "
            "are the same training again; results.csv has their scores."
        )
    if any(system.lost for system in sweep.systems):
        lines.append(
            "In brackets: means over the remaining seeds of settings with pruned or failed seeds. "
            "Those are mostly the worse ones, so such a mean is too good: the setting is not "
            "compared, and sorts last."
        )
    if sweep.baseline is not None and sweep.baseline.lost:
        lines.append("Nothing is compared: the baseline has seeds that were pruned or failed.")
    lines += _difference_notes(sweep)
    paths = {measure.path for measure in sweep.scores if sweep.has(measure.path)}
    lines += [text for path, text in measures.about.items() if path in paths]
    lines.append(
        f"{measures.unit}/s, minutes, parameters and GFLOP/token are means over seeds; minutes are "
        "of training, evaluations included. A column is there if any run has its number."
    )
    return lines


def _difference_notes(sweep: Sweep) -> list[str]:
    """Sentences about the differences to the baseline, if there are any."""
    measures, compared = sweep.measures, [each for each in sweep.comparisons if each]
    if not compared:
        return []
    lines = [f"difference: {measures.main.title} minus the baseline's, of the means over seeds."]
    lines += _test_notes(compared, measures.noun if measures.all_texts else "text", len(compared))
    if not measures.all_texts and any(max(each.seeds) == 1 for each in compared):
        lines.append(
            "With one seed there is no p: a run saves only sums over its whole text, which "
            "cannot be resampled. Train several seeds."
        )
    if len(compared) > 1 and any(each.has_interval for each in compared):
        lines.append("results.csv also has p before the correction (p_raw).")
    return lines


def comparison_notes(
    measures: TaskMeasures, systems: Sequence[System], comparisons: Sequence[Comparison]
) -> list[str]:
    """Returns a sentence or two about each number of a comparison."""
    noun = measures.noun
    several = any(len(system.runs) > 1 for system in systems)
    lines = [
        f"{len(systems[0].runs[0].lengths):,} {noun}s. The difference is that to the baseline, "
        + systems[0].name
        + (": of mean scores over seeds, whose standard deviation follows ±." if several else ".")
    ]
    if not measures.all_texts:
        lines.append(
            f"A run keeps the {measures.made} of some {noun}s of its test set, each read without "
            "the text before it: the scores are of these, and differ from those of the whole text."
        )
    differences = [each for own in comparisons for each in own.differences if each]
    return lines + _test_notes(differences, noun, len(systems) - 1)


def _test_notes(differences: Sequence[Difference], noun: str, systems: int) -> list[str]:
    """Sentences that say what intervals and p-values are of, and how they were corrected.

    `systems` are compared with the baseline in each measure, over texts that are called `noun`.
    """
    tested = [each for each in differences if each.has_interval]
    several = any(max(each.seeds) > 1 for each in tested)
    over_texts, tests = any(each.texts for each in tested), {test_of(each.seeds) for each in tested}
    pooled = "pooled over both systems" if tests <= {"t"} else "pooled by Student's t alone"
    seeds = f"that over seeds ({pooled})" if several else ""
    texts = f"that over {noun}s" + (" (less what is in both)" if several else "")
    lines = []
    if tested:
        variance = " plus ".join(filter(None, (seeds, texts if over_texts else "")))
        by = " and ".join(text for test, text in TESTS.items() if test in tests)
        lines.append(f"Interval and p: two-sided, by {by}. The variance is {variance}.")
    if several:
        where = f"on other {noun}s" if over_texts else "on this text"
        lines.append(
            f"With several seeds they are of new seeds of these settings, {where}; pooled, systems "
            "are taken to vary as much with the seed. Two seeds each show large differences alone: "
            "a larger p does not mean that systems are equal."
        )
    if any(max(each.seeds) == 1 for each in tested):
        lines.append(
            f"With one seed each they are of these two trained models, on other {noun}s: two seeds "
            "of one setting may differ as much. To compare settings, train several (--seeds=5)."
        )
    if len(tested) < len(differences):
        lines.append(
            "Without interval and p: a difference whose variance is 0 or cannot be estimated, such "
            f"as that of equal scores in all seeds, or of one seed each on one {noun}."
        )
    if systems > 1 and tested:
        lines.append(
            f"All p are corrected for the {systems} comparisons with the baseline in each measure, "
            "by Holm's method: if no system differs, a measure has a p below "
            f"{LEVEL} in at most about one of twenty such tables. The intervals are not corrected."
        )
    if tested:
        lines.append(
            f"detectable: a system that truly differs by so much has a p below {LEVEL} in "
            f"{POWER:.0%} of such tables. Smaller differences may exist unseen."
        )
    return lines
