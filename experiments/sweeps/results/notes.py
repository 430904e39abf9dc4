"""The notes below a sweep's table: the method and the limits of each number."""

from experiments.measures.significance import CONFIDENCE, Difference, test_notes
from experiments.sweeps.results.outcomes import Sweep


def notes(sweep: Sweep) -> list[str]:
    """A sentence or two about each number of the table."""
    measures = sweep.measures
    texts = f"these {measures.split} {measures.texts.noun}s" if measures.texts else "this text"
    lines = [
        "Each row is a setting, and n is its number of complete seeds. ± is the sample standard "
        f"deviation over seeds: how much the score varies between training runs, on {texts}. The "
        f"{CONFIDENCE:.0%} interval is that of the mean over seeds, by Student's t; its ends are "
        "cut at 0, and at 100 if that is the highest possible score."
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
        title = measures.main.title
        lines.append(f"difference: {title} minus the baseline's, of the means over seeds.")
        lines += _test_notes(sweep, found)
    shown = {measure.path for measure in sweep.scores if sweep.has(measure.path)}
    lines += [text for path, text in measures.about.items() if path in shown]
    lines.append(
        f"{measures.unit}/s, minutes, parameters and GFLOP/token are means over seeds; minutes are "
        "of training, evaluations included. A column is there if any run has its number."
    )
    return lines


def _test_notes(sweep: Sweep, found: list[Difference]) -> list[str]:
    """Explanations of the significance tests and their limits."""
    texts = sweep.measures.texts
    lines = test_notes(found, texts.noun if texts else "text", len(found))
    if texts is None and any(max(each.seeds) == 1 for each in found):
        lines.append(
            "With one seed there is no p: a run saves only sums over its whole text, which cannot "
            "be resampled. Train several seeds."
        )
    if len(found) > 1 and any(each.has_interval for each in found):
        lines.append("results.csv also has p before the correction (p_raw).")
    return lines
