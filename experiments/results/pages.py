"""The results of a sweep or comparison as Markdown and as a page: tables, notes and figures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..display import web_page
from .figures import Captioned
from .statistics import CONFIDENCE, LEVEL, POWER, TESTS, Difference, test_of
from .systems import Comparison
from .table import Table, build_tables, list_missing, list_signatures


class Results(NamedTuple):
    """The results of a comparison as text."""

    title: str
    command: str  # the command that reproduces the results
    tables: Sequence[Table]
    notes: Sequence[str]
    signatures: Mapping[str, str]  # by the titles of scores
    missing: Sequence[str]  # a line for each trial that is missing from the table

    def to_page(self, figures: Mapping[str, Captioned], **more: Any) -> str:
        """Returns a page with the results and figures.

        Args:
          more: `progress`, a line with which the page reloads itself; `changes`, the texts that
            changed, with `measure`, `noun` and `baseline`, see `results.html`.
        """
        drawn = [
            (web_page.figure_svg(figure, name, caption), caption)
            for name, (figure, caption) in figures.items()
        ]
        values = {"progress": "", "changes": (), **self._asdict(), **more}
        return web_page.render("results.html", figures=drawn, **values)


def describe(comparison: Comparison, title: str, command: str) -> Results:
    """Returns the results of a comparison as text."""
    return Results(
        title,
        command,
        build_tables(comparison),
        write_notes(comparison),
        list_signatures(comparison),
        list_missing(comparison.trials),
    )


# -- the notes below the tables: method and limits of each number


def write_notes(comparison: Comparison) -> list[str]:
    """Returns a sentence or two about each number in the tables."""
    measures, baseline = comparison.measures, comparison.baseline
    texts = "this text"
    if lengths := len(comparison.runs[0].lengths):
        texts = f"these {lengths:,} {measures.split} {measures.noun}s"
    lines = [
        "Each row is a setting, and n is its number of complete seeds. ± is the sample standard "
        f"deviation over seeds: how much the score varies between training runs, on {texts}. The "
        f"{CONFIDENCE:.0%} interval is that of the mean over seeds, by Student's t; its ends are "
        "cut at 0, and at 100 if that is the highest possible score; equal scores have none."
    ]
    if not measures.all_texts and lengths:
        lines.append(
            f"A run keeps the {measures.made} of some {measures.noun}s of its test set, each read "
            "without the text before it: the scores are of these, and differ from those of the "
            "whole text."
        )
    if measures.split != measures.splits[0]:
        lines.append(
            f"Scores are of the {measures.split} set, because not all runs have scores of a "
            f"{measures.splits[0]} set."
        )
    lines += _sweep_notes(comparison)
    if baseline is not None and baseline.lost:
        lines.append("Nothing is compared: the baseline has seeds that were pruned or failed.")
    lines += _difference_notes(comparison)
    paths = {measure.path for measure in comparison.scores if comparison.has(measure.path)}
    lines += [text for path, text in measures.about.items() if path in paths]
    if comparison.trials:
        lines.append(
            f"{measures.unit}/s, minutes, parameters and GFLOP/token are means over seeds; minutes "
            "are of training, evaluations included. A column is there if any run has its number."
        )
    return lines


def _sweep_notes(sweep: Comparison) -> Iterable[str]:
    """Yields sentences about missing trials and scores that are not compared."""
    if sweep.vocabularies:
        yield (
            f"Settings are compared by {sweep.measures.main.title}. Perplexity, nll and accuracy "
            f"are left out: they are means over tokens, and {sweep.vocabularies} have different "
            "vocabularies. results.csv has them, with their signatures."
        )
    if repeats := [run.trial.number for s in sweep.systems for run in s.repeats if run.trial]:
        numbers = ", ".join(map(str, sorted(repeats)))
        yield (
            f"Trials that repeat an earlier one with the same seed are left out: {numbers}. They "
            "are the same training again; results.csv has their scores."
        )
    if any(system.lost for system in sweep.systems):
        yield (
            "In brackets: means over the remaining seeds of settings with pruned or failed seeds. "
            "Those are mostly the worse ones, so such a mean is too good: the setting is not "
            "compared, and sorts last."
        )


def _difference_notes(comparison: Comparison) -> list[str]:
    """Returns sentences about the differences to the baseline, if there are any."""
    measures = comparison.measures
    compared = [each for row in comparison.differences.values() for each in row if each]
    if not compared or comparison.baseline is None:
        return []
    count = len(compared) // len(comparison.metrics)
    noun = measures.noun if len(comparison.runs[0].lengths) else ""
    lines = [f"difference: to {comparison.baseline.name}, the baseline, of the means over seeds."]
    lines += _test_notes(compared, noun or "text", count)
    if not noun and any(max(each.seeds) == 1 for each in compared):
        lines.append(
            "With one seed there is no p: a run saves only sums over its whole text, which "
            "cannot be resampled. Train several seeds."
        )
    if comparison.trials and count > 1 and any(each.has_interval for each in compared):
        lines.append("results.csv also has p before the correction (p_raw).")
    return lines


def _test_notes(differences: Sequence[Difference], noun: str, systems: int) -> list[str]:
    """Returns sentences on what intervals and p-values cover, and how they were corrected.

    `systems` are compared with the baseline in each measure, over texts that are called `noun`.
    """
    tested = [each for each in differences if each.has_interval]
    several = any(max(each.seeds) > 1 for each in tested)
    over_texts, tests = any(each.texts for each in tested), {test_of(each.seeds) for each in tested}
    lines = []
    if tested:
        by = " and ".join(text for test, text in TESTS.items() if test in tests)
        parts = " and ".join(["seeds"] * several + [f"{noun}s"] * over_texts)
        lines.append(f"Interval and p: two-sided, by {by}, with the variance over {parts}.")
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
