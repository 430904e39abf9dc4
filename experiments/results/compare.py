"""The mode `compare`: two systems or more on one test set, with significance tests."""

import difflib
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer.errors import UserError
from transformer.files import write_text
from transformer.runs.run import Run
from ..display import web_page
from ..display.web_page import shortened
from ..process.options import Options
from . import courses, figures, table
from .notes import comparison_notes
from .runs import RUNS_EXAMPLE, comparable, list_stopped, read_systems
from .statistics import CONFIDENCE, ROUNDING
from .systems import Comparison, System, compare
from .table import Table
from .tasks import TaskMeasures
from .texts import length_buckets

OUTPUT = "runs/comparison"
MAX_CHANGES = 10  # texts of each direction that are shown
MAX_RUNS = 3  # runs of a system whose outputs are shown
MAX_TEXT_LENGTH = 600  # characters of a text
WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]|\s+")


def compare_runs(run: Run, options: Options) -> list[Path]:
    """Writes the comparison of `--runs` as Markdown and a page, and prints it.

    The files come first: standard output may be closed early, as by `| head`. Neither a config nor
    a run's folder is needed: each run has its own.
    """
    if options.runs is None:
        raise UserError(f"--runs is missing: name the systems to compare, such as {RUNS_EXAMPLE}")
    levels = courses.parse_levels(options.levels)
    measures, systems = read_systems(options.runs, options.set)
    output = Path(options.output or OUTPUT).expanduser()
    output.mkdir(parents=True, exist_ok=True)
    comparisons = [compare(measures, systems, name) for name in comparable(measures, systems)]
    tables = [table.comparison_table(measures, systems, each) for each in comparisons]
    names = [each.metric for each in comparisons]
    course, more = courses.read_training(measures, systems, names, levels)
    notes = comparison_notes(measures, systems, comparisons)
    if stopped := list_stopped(Run(each.folder) for system in systems for each in system.runs):
        notes.append(f"Scored before the end of the training: {', '.join(stopped)}.")
    notes += more
    perturbed = table.copies_tables(systems)
    trained = [courses.training_table(systems, course)] if course else []
    scores = systems[0].runs[0].results["test"]
    signed = [name for name in measures.of_sums if f"{name}_signature" in scores]
    signatures = {measures.metric(name).title: scores[f"{name}_signature"] for name in signed}
    title = "Comparison" + (f" on {options.set}" if options.set else "")
    command = f"python {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}"
    rows = [[each.caption, *row] for each in tables for row in each.rows]
    whole = Table("", ["measure", *table.COMPARISON_TITLES], rows, 2)
    every = [whole, *perturbed, *trained]
    text = table.to_markdown(title, table.one_line(command), every, notes, signatures)
    write_text(output / "comparison.md", text)
    page = web_page.write_page(
        output / "comparison.html",
        "comparison.html",
        title=f"{title}: {', '.join(system.name for system in systems)}",
        command=command,
        tables=tables + perturbed,
        trained=trained,
        notes=notes,
        signatures=signatures,
        changes=find_changes(measures, systems),
        measure=measures.metric(measures.changes).title,
        noun=measures.noun,
        baseline=systems[0].name,
        runs=[(system.name, [str(run.folder) for run in system.runs]) for system in systems],
        **_draw(measures, systems, comparisons, course),
    )
    for each in (*tables, *perturbed, *trained):
        table.print_rows(each)
    for line in (*notes, *(f"{name}: {text}" for name, text in signatures.items())):
        print(line, flush=True)
    return [output / "comparison.md", page]


def _draw(
    measures: TaskMeasures,
    systems: Sequence[System],
    comparisons: Sequence[Comparison],
    course: courses.Training | None,
) -> dict[str, tuple[str, str]]:
    """The figures of the page by name, each with its caption."""
    noun, main = measures.noun, comparisons[0].metric
    buckets = length_buckets(systems[0].runs[0].lengths)
    by_length = [compare(measures, systems, main, rows) for rows in buckets]
    interval = f"{CONFIDENCE:.0%} intervals"
    drawn = {
        "differences": (
            figures.draw_differences(measures, systems, comparisons),
            f"Difference to the baseline, {systems[0].name}, with {interval}.",
        ),
        "lengths": (
            figures.draw_lengths(measures, systems, buckets, by_length),
            f"{measures.metric(main).title} by the words of a {noun}, with the number of "
            f"{noun}s below, and the difference to the baseline with {interval}.",
        ),
    }
    if course is not None:
        caption = "Validation scores during training, a line per run. Dotted: the levels above."
        drawn["training"] = courses.draw_training(systems, course), caption
    return {
        name: (web_page.figure_svg(figure, name, caption, web_page.THEME_COLOURS), caption)
        for name, (figure, caption) in drawn.items()
    }


# -- the texts that changed


class TextPart(NamedTuple):
    """A part of a text, and whether the other system lacks it."""

    text: str
    differs: bool


class TextChange(NamedTuple):
    """A text by its number, from one, and by how much its score is higher than the baseline's."""

    number: int
    difference: str
    lines: list[tuple[str, list[TextPart]]]  # by their names


class Changes(NamedTuple):
    """The texts of a system that changed most, from the largest change on."""

    system: str
    better: list[TextChange]
    worse: list[TextChange]


def find_changes(measures: TaskMeasures, systems: Sequence[System]) -> list[Changes]:
    """Returns the changes of each system but the baseline, which is the first."""
    name = measures.changes
    metric, of_sums = measures.metric(name), measures.of_sums[name]
    sign = 1 if metric.higher_is_better else -1
    # The score of each text, the mean over a system's runs.
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
    """The inputs of all runs for a text, and the outputs of runs of both systems, in pairs."""
    lines = [
        (name, [TextPart(shortened(texts[i], MAX_TEXT_LENGTH), differs=False)])
        for name, texts in baseline.runs[0].texts.shown.items()
        if texts[i]
    ]
    for runs in list(zip(baseline.runs, system.runs, strict=False))[:MAX_RUNS]:
        marked = mark(*(shortened(run.texts.outputs[i], MAX_TEXT_LENGTH) for run in runs))
        for side, run, parts in zip((baseline, system), runs, marked, strict=True):
            name, folder = side.name, run.folder.name
            if len(side.runs) > 1:
                name = folder if folder.startswith(name) else f"{name}, {folder}"
            lines.append((name, parts))
    return lines


def mark(before: str, after: str) -> tuple[list[TextPart], list[TextPart]]:
    """Returns the parts of two texts, of which those that the other lacks are marked.

    Words and single signs are compared; joined, the parts are the texts.
    """
    words = WORD_OR_SIGN.findall(before), WORD_OR_SIGN.findall(after)
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    parts: tuple[list[TextPart], list[TextPart]] = [], []
    for kind, *ends in matcher.get_opcodes():
        for side, texts, start, end in zip(parts, words, ends[::2], ends[1::2], strict=True):
            if text := "".join(texts[start:end]):
                side.append(TextPart(text, differs=kind != "equal"))
    return parts
