"""The mode `compare`: two or more systems on one test set, with significance tests."""

import difflib
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer.errors import UserError
from transformer.files import write_text
from transformer.runs.run import Run
from ..display.web_page import shortened
from ..process.modes import Options
from . import courses, figures, table
from .pages import describe
from .runs import RUNS_EXAMPLE, list_stopped, read_systems
from .statistics import ROUNDING
from .systems import Comparison, System

OUTPUT = "runs/comparison"
MAX_CHANGES = 10  # texts shown in each direction
MAX_RUNS = 3  # runs of a system whose outputs are shown
MAX_TEXT_LENGTH = 600  # characters of a text shown
WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]|\s+")


def compare_runs(run: Run, options: Options) -> list[Path]:
    """Writes the comparison of `--runs` as Markdown and a page, and prints it.

    The files are written first, since standard output may be closed early, as by `| head`. The
    command needs no config and no run folder of its own: each compared run has both.
    """
    if options.runs is None:
        raise UserError(f"--runs is missing: name the systems to compare, such as {RUNS_EXAMPLE}")
    levels = courses.parse_levels(options.levels)
    output = Path(options.output or OUTPUT).expanduser()
    comparison = read_systems(options.runs, options.set)
    output.mkdir(parents=True, exist_ok=True)
    comparison, more = courses.add_curves(comparison)
    title = "Comparison" + (f" on {options.set}" if options.set else "")
    command = f"python {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}"
    results = describe(comparison, title, command)
    if stopped := list_stopped(Run(each.folder) for each in comparison.runs):
        more.insert(0, f"Scored before the end of the training: {', '.join(stopped)}.")
    tables = [*results.tables, *table.copies_tables(comparison.systems)]
    if comparison.runs[0].curves:
        levels = levels or [courses.default_level(comparison)]
        tables.append(courses.training_table(comparison, levels))
    results = results._replace(tables=tables, notes=[*results.notes, *more])
    measures = comparison.measures
    page = results.to_page(
        figures.draw(comparison, levels),
        changes=find_changes(comparison),
        measure=measures.metric(measures.changes).title,
        noun=measures.noun,
        baseline=comparison.systems[0].name,
    )
    files = {"comparison.md": table.to_markdown(*results), "comparison.html": page}
    for name, text in files.items():
        write_text(output / name, text)
    for each in tables:
        table.print_rows(each)
    lines = (f"{name}: {text}" for name, text in results.signatures.items())
    for line in (*results.notes, *lines):
        print(line, flush=True)
    return [output / name for name in files]


# -- the texts that changed


class TextPart(NamedTuple):
    """A part of a text, and whether the other system lacks it."""

    text: str
    differs: bool


class TextChange(NamedTuple):
    """A text by its number, from one, and the difference of its score to the baseline's."""

    number: int
    difference: str
    lines: list[tuple[str, list[TextPart]]]  # (name of the line, its parts)


class Changes(NamedTuple):
    """The texts on which a system differs most from the baseline, largest change first."""

    system: str
    better: list[TextChange]
    worse: list[TextChange]


def find_changes(comparison: Comparison) -> list[Changes]:
    """Returns the changes of each system except the baseline, which comes first."""
    measures, systems = comparison.measures, comparison.systems
    name = measures.changes
    metric, of_sums = measures.metric(name), measures.of_sums[name]
    sign = 1 if metric.higher_is_better else -1
    # Scores of each text, averaged over a system's runs.
    before, *others = (
        np.mean([of_sums(run.counts[name]) for run in system.runs], 0) for system in systems
    )
    changes = []
    for system, after in zip(systems[1:], others, strict=True):
        gains = sign * (after - before)
        listed: list[list[TextChange]] = []
        for direction in (1, -1):
            order = np.argsort(-gains, kind="stable")[::direction][:MAX_CHANGES].tolist()
            listed.append(
                [
                    TextChange(
                        i + 1,
                        f"{sign * gains[i] * metric.scale:+{metric.format}} {metric.title}",
                        _lines(systems[0], system, i),
                    )
                    for i in order
                    if direction * gains[i] > ROUNDING
                ]
            )
        changes.append(Changes(system.name, *listed))
    return changes


def _lines(baseline: System, system: System, i: int) -> list[tuple[str, list[TextPart]]]:
    """Returns the inputs of all runs for text i, and the paired outputs of runs of both systems."""
    lines = [
        (name, [TextPart(shortened(texts[i], MAX_TEXT_LENGTH), differs=False)])
        for name, texts in baseline.runs[0].texts.shown.items()
        if texts[i]
    ]
    for runs in list(zip(baseline.runs, system.runs, strict=False))[:MAX_RUNS]:
        marked = mark(*(shortened(run.texts.outputs[i], MAX_TEXT_LENGTH) for run in runs))
        for side, run, parts in zip((baseline, system), runs, marked, strict=True):
            seed = f", {run.folder.name}" if len(side.runs) > 1 else ""
            lines.append((side.name + seed, parts))
    return lines


def mark(before: str, after: str) -> tuple[list[TextPart], list[TextPart]]:
    """Returns two texts in parts, each marked if the other text lacks it.

    Words and single symbols are compared; joined, the parts give the texts.
    """
    words = WORD_OR_SIGN.findall(before), WORD_OR_SIGN.findall(after)
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    parts: tuple[list[TextPart], list[TextPart]] = [], []
    for kind, *ends in matcher.get_opcodes():
        for side, texts, start, end in zip(parts, words, ends[::2], ends[1::2], strict=True):
            if text := "".join(texts[start:end]):
                side.append(TextPart(text, differs=kind != "equal"))
    return parts
