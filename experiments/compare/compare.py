"""The mode `compare`: two systems or more on one test set, with significance tests."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ml_collections import ConfigDict

from experiments.compare import training
from experiments.compare.changes import find_changes
from experiments.compare.runs import EXAMPLE, comparable, read_systems
from experiments.display import web_page
from experiments.evaluate.evaluate import stopped_runs
from experiments.options import Options
from experiments.results import figures, table
from experiments.results.notes import comparison_notes
from experiments.results.statistics import CONFIDENCE
from experiments.results.systems import Comparison, System, compare
from experiments.results.table import Table
from experiments.results.tasks import TaskMeasures
from experiments.results.texts import length_buckets
from transformer import workdir
from transformer.errors import UserError
from transformer.storage.files import write_text

OUTPUT = "runs/comparison"


def compare_runs(config: ConfigDict, folder: Path, options: Options) -> list[Path]:
    """Writes the comparison of `--runs` as Markdown and a page, and prints it.

    The files come first: standard output may be closed early, as by `| head`. Neither a config nor
    a run's folder is needed: each run has its own.
    """
    if options.runs is None:
        raise UserError(f"--runs is missing: name the systems to compare, such as {EXAMPLE}")
    levels = training.parse_levels(options.levels)
    measures, systems = read_systems(options.runs, options.set)
    output = Path(options.output or OUTPUT).expanduser()
    workdir.make_writable(output)
    comparisons = [compare(measures, systems, name) for name in comparable(measures, systems)]
    tables = [table.comparison_table(measures, systems, each) for each in comparisons]
    names = [each.metric for each in comparisons]
    course, more = training.read_training(measures, systems, names, levels)
    notes = comparison_notes(measures, systems, comparisons)
    if stopped := stopped_runs(run.folder for system in systems for run in system.runs):
        notes.append(f"Scored before the end of the training: {', '.join(stopped)}.")
    notes += more
    perturbed = table.copies_tables(systems)
    trained = [training.training_table(systems, course)] if course else []
    signatures = table.comparison_signatures(measures, systems)
    title = "Comparison" + (f" on {options.set}" if options.set else "")
    command = f"python {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}"
    rows = [[each.caption, *row] for each in tables for row in each.rows]
    whole = Table("", ["measure", *table.TITLES], rows, 2)
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
    course: training.Training | None,
) -> dict[str, tuple[str, str]]:
    """The figures of the page by name, each with its caption."""
    noun, main = measures.noun, comparisons[0].metric
    buckets = length_buckets(systems[0].runs[0].texts.lengths)
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
        drawn["training"] = training.draw_training(systems, course), caption
    return {
        name: (web_page.figure_svg(figure, name, caption, web_page.COLOURS), caption)
        for name, (figure, caption) in drawn.items()
    }
