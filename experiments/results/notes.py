"""Notes below the tables of a sweep or comparison, on the method and limits of each number."""

from transformer.metrics.registry import SWEEPS, metrics_of
from .statistics import CONFIDENCE, LEVEL, POWER, TESTS, test_of
from .systems import Comparison


def write_notes(comparison: Comparison) -> list[str]:
    """Returns sentences that explain the numbers in the tables."""
    measures, baseline = comparison.measures, comparison.baseline
    texts = "this text"
    if lengths := len(comparison.runs[0].lengths):
        texts = f"these {lengths:,} {measures.split} {measures.noun}s"
    lines = [
        f"Each row is a setting with n complete seeds, scored on {texts}. ± is the sample standard "
        f"deviation over seeds. The {CONFIDENCE:.0%} interval is that of the mean over seeds, by "
        "Student's t, cut at 0 and at the highest possible score; equal scores have none."
    ]
    if not measures.all_texts and lengths:
        lines.append(
            f"A run keeps the {measures.made} of some {measures.noun}s of its test set, each read "
            "without the text before it: the scores are of these, not of the whole text."
        )
    if measures.split != measures.splits[0]:
        lines.append(
            f"Scores are of the {measures.split} set, because not all runs have scores of a "
            f"{measures.splits[0]} set."
        )
    if comparison.vocabularies:
        lines.append(
            f"Settings are compared by {measures.main.title}. Perplexity, nll and accuracy, which "
            f"are means over tokens, are only in results.csv: {comparison.vocabularies} have "
            "different vocabularies."
        )
    if any(system.lost for system in comparison.systems):
        lines.append(
            "In brackets: means over the remaining seeds of settings with pruned or failed seeds, "
            "mostly the worse ones. Such a mean is too good: the setting is not compared, and "
            "sorts last."
        )
    if baseline is not None and baseline.lost:
        lines.append("Nothing is compared: the baseline has seeds that were pruned or failed.")
    lines += _difference_notes(comparison)
    paths = {measure.path for measure in comparison.scores if comparison.has(measure.path)}
    metrics = metrics_of(measures.scored, SWEEPS).values()
    lines += [m.about for m in metrics if m.about and f"{measures.split}.{m.name}" in paths]
    if comparison.trials:
        lines.append("Costs are means over seeds; minutes are of training, evaluations included.")
    return lines


def _difference_notes(comparison: Comparison) -> list[str]:
    """Returns sentences about the differences from the baseline, if there are any."""
    compared = [each for row in comparison.differences.values() for each in row if each]
    if not compared or comparison.baseline is None:
        return []
    systems = len(compared) // len(comparison.metrics)
    has_texts = len(comparison.runs[0].lengths) > 0
    noun = comparison.measures.noun if has_texts else "text"
    tested = [each for each in compared if each.has_interval]
    several = any(max(each.seeds) > 1 for each in tested)
    over_texts, tests = any(each.texts for each in tested), {test_of(each.seeds) for each in tested}
    lines = [f"difference: to {comparison.baseline.name}, the baseline, of the means over seeds."]
    if tested:
        by = " and ".join(text for test, text in TESTS.items() if test in tests)
        parts = " and ".join(["seeds"] * several + [f"{noun}s"] * over_texts)
        lines.append(f"Interval and p: two-sided, by {by}, with the variance over {parts}.")
    if several:
        where = f"on other {noun}s" if over_texts else "on this text"
        lines.append(
            f"With several seeds they are of new seeds of these settings, {where}. Two seeds each "
            "show large differences alone: a larger p does not mean that systems are equal."
        )
    if any(max(each.seeds) == 1 for each in tested):
        lines.append(
            f"With one seed each they are of these two trained models, on other {noun}s: two seeds "
            "of one setting may differ as much. To compare settings, train several (--seeds=5)."
        )
    if len(tested) < len(compared):
        lines.append(
            "Without interval and p: a difference whose variance is 0 or cannot be estimated, as "
            f"of equal scores in all seeds, or of one seed each on one {noun}."
        )
    if systems > 1 and tested:
        lines.append(
            f"p is corrected for the {systems} comparisons with the baseline in each measure, by "
            f"Holm's method: if no system differs, about one of twenty tables has a p below {LEVEL}"
            ". The intervals are not corrected."
        )
    if tested:
        lines.append(
            f"detectable: a system that truly differs by this much has a p below {LEVEL} in "
            f"{POWER:.0%} of such tables. Smaller differences may exist."
        )
    if not has_texts and any(max(each.seeds) == 1 for each in compared):
        lines.append(
            "With one seed there is no p: a run saves only sums over its whole text, which "
            "cannot be resampled. Train several seeds."
        )
    return lines
