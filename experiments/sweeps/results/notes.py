"""The notes below a sweep's table: the method and the limits of each number."""

from experiments.measures.significance import LEVEL, needed_deviations
from experiments.sweeps.results.outcomes import CONFIDENCE, Comparison, Sweep


def notes(sweep: Sweep) -> list[str]:
    """A sentence or two about each number of the table."""
    measures = sweep.measures
    texts = f"these {measures.split} {measures.texts.noun}s" if measures.texts else "this text"
    lines = [
        "Each row is a setting, and n is its number of complete seeds. ± is the sample standard "
        f"deviation over seeds; the {CONFIDENCE:.0%} interval is that of the mean over seeds, by "
        f"Student's t. Both show how much the score varies between training runs, on {texts}."
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
    if repeats := sorted(o.trial.number for setting in sweep.settings for o in setting.repeats):
        numbers = ", ".join(map(str, repeats))
        lines.append(
            f"Trials that repeat an earlier one with the same seed are left out: {numbers}. They "
            "are the same training again; results.csv has their scores."
        )
    if any(setting.lost for setting in sweep.settings):
        lines.append(
            "In brackets: means over the remaining seeds of settings with pruned or failed seeds. "
            "Those are mostly the worse ones, so such a mean is too good: the setting is not "
            "compared, and sorts last."
        )
    if sweep.baseline is not None and sweep.baseline.lost:
        lines.append("Nothing is compared: the baseline has seeds that were pruned or failed.")
    if found := [comparison for comparison in sweep.comparisons if comparison]:
        interval = (
            f" The {CONFIDENCE:.0%} interval is that of this mean, by Student's t."
            if measures.texts is None
            else ""
        )
        lines.append(
            f"difference: {measures.main.title} minus the baseline's, the mean over the seeds that "
            f"both have.{interval}"
        )
        lines += _test_notes(sweep, found)
    shown = {measure.path for measure in sweep.scores if sweep.has(measure.path)}
    lines += [text for path, text in measures.about.items() if path in shown]
    lines.append(
        f"{measures.unit}/s, minutes, parameters and GFLOP/token are means over seeds; minutes are "
        "of training, evaluations included. A column is there if any run has its number."
    )
    return lines


def _test_notes(sweep: Sweep, found: list[Comparison]) -> list[str]:
    """Explanations of the significance tests and their limits."""
    texts, lines = sweep.measures.texts, []
    if numbers := sorted({c.difference.n for c in found if c.over_seeds}):
        needed = ", ".join(f"{needed_deviations(n):.1f} with {n} seeds" for n in numbers)
        lines.append(
            "p: two-sided paired t-test over the seeds that both have. It shows whether new "
            "training runs would give a difference of the same sign, and assumes normally "
            f"distributed differences. Before correction, p < {LEVEL} needs a mean difference of "
            f"this many standard deviations: {needed}. A larger p does not mean that the settings "
            "are equal, only that there are too few seeds to show a difference."
        )
    ones = [c for c in found if not c.over_seeds]
    if ones and texts is None:
        lines.append(
            "With one seed there is no p: a run saves only sums over its whole text, which cannot "
            "be resampled. Train several seeds."
        )
    elif texts and (signed := [c.signature for c in ones if c.signature]):
        which = f"p of {texts.noun}s" if numbers else "p"
        lines.append(
            f"{which}, with one seed: two-sided {texts.test_name.format(signature=signed[0])}. It "
            f"shows whether these two trained models differ on other {texts.noun}s; it says "
            "nothing about other seeds: two seeds of one setting may differ as much. Train several "
            "seeds to compare settings."
        )
    if (tested := sum(c.p_value is not None for c in found)) > 1:
        lines.append(
            f"All p are corrected for the {tested} comparisons of this table by Holm's method: if "
            "the settings are equal, at most one in twenty such tables has a p < 0.05. "
            "results.csv also has p before the correction (p_raw)."
        )
    return lines
