"""The mode `compare`: two systems or more on one test set, with significance tests."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ml_collections import ConfigDict

from experiments.comparison.changes import find_changes
from experiments.comparison.differences import Comparison, comparable, compare
from experiments.comparison.figures import draw_differences, draw_lengths
from experiments.comparison.outputs import TASKS
from experiments.comparison.systems import EXAMPLE, System, read_systems
from experiments.comparison.table import TITLES, copies, notes, signatures, table_rows, title_of
from experiments.comparison.training import (
    Training,
    draw_training,
    parse_levels,
    read_training,
    stopped_notes,
    training_table,
)
from experiments.display import web_page
from experiments.display.text_table import (
    latex_table,
    markdown_table,
    markdown_text,
    one_line,
)
from experiments.measures.significance import CONFIDENCE
from experiments.measures.texts import length_buckets
from experiments.options import Options
from experiments.report.numbers import Table, print_rows
from transformer import workdir
from transformer.errors import UserError
from transformer.metrics.registry import find
from transformer.storage.files import write_text

OUTPUT = "runs/comparison"
HEAD = ["measure", *TITLES]


def compare_runs(config: ConfigDict, folder: Path, options: Options) -> list[Path]:
    """Writes the comparison of `--runs` as Markdown, LaTeX and a page, and prints it.

    The files come first: standard output may be closed early, as by `| head`. Neither a config nor
    a run's folder is needed: each run has its own.

    Raises:
      UserError: see `read_systems`.
    """
    if options.runs is None:
        raise UserError(f"--runs is missing: name the systems to compare, such as {EXAMPLE}")
    levels = parse_levels(options.levels)
    task, systems = read_systems(options.runs, options.set)
    output = Path(options.output or OUTPUT).expanduser()
    workdir.make_writable(output)
    measures = comparable(TASKS[task].measures, systems)
    comparisons = [compare(measure, systems) for measure in measures]
    tables = [
        Table(title_of(find(c.measure.name, task)), [*TITLES], table_rows(task, systems, c))
        for c in comparisons
    ]
    training, more = read_training(task, systems, [c.measure.name for c in comparisons], levels)
    about = notes(task, systems, comparisons) + stopped_notes(systems) + more
    trained = [] if training is None else [training_table(systems, training)]
    signed = signatures(task, systems)
    title = "Comparison" + (f" on {options.set}" if options.set else "")
    rows = [[table.caption, *row] for table in tables for row in table.rows]
    perturbed = copies(systems)
    text = _markdown(title, rows, perturbed + trained, about, signed)
    markdown = _write(output / "comparison.md", text)
    latex = _write(output / "comparison.tex", _latex(rows, about, signed))
    page = web_page.write_page(
        output / "comparison.html",
        "comparison.html",
        title=f"{title}: {', '.join(system.name for system in systems)}",
        command=_command(),
        tables=tables + perturbed,
        trained=trained,
        notes=about,
        signatures=signed,
        changes=find_changes(task, systems),
        measure=find(TASKS[task].changes, task).title,
        noun=TASKS[task].noun,
        baseline=systems[0].name,
        runs=[(system.name, [str(run.folder) for run in system.runs]) for system in systems],
        **_draw(task, systems, comparisons, training),
    )
    for table in (*tables, *perturbed, *trained):
        print_rows(table)
    for line in (*about, *(f"{name}: {text}" for name, text in signed)):
        print(line, flush=True)
    return [markdown, latex, page]


def _markdown(
    title: str,
    rows: list[list[str]],
    others: list[Table],
    about: list[str],
    signed: list[tuple[str, str]],
) -> str:
    def cells(rows: list[list[str]]) -> list[list[str]]:
        return [[*map(markdown_text, row)] for row in rows]

    parts = [f"# {markdown_text(title)}", f"```\n{one_line(_command())}\n```"]
    parts += [markdown_table(HEAD, cells(rows), 2)]
    for table in others:
        parts += [f"{table.caption}:", markdown_table(table.head, cells(table.rows), 1)]
    parts += map(markdown_text, about)
    parts += ["\n".join(f"- {name}: `{text}`" for name, text in signed)]
    return "\n\n".join(filter(None, parts))


def _latex(rows: list[list[str]], about: list[str], signed: list[tuple[str, str]]) -> str:
    lines = [_command(), "needs \\usepackage{booktabs}", *about]
    lines += [f"signature of {name}: {text}" for name, text in signed]
    comments = "\n".join(f"% {one_line(line)}" for line in lines)
    return f"{comments}\n{latex_table(HEAD, rows, 2)}"


def _write(path: Path, text: str) -> Path:
    write_text(path, f"{text}\n")
    return path


def _command() -> str:
    return f"python {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}"


def _draw(
    task: str,
    systems: Sequence[System],
    comparisons: Sequence[Comparison],
    training: Training | None,
) -> dict[str, tuple[str, str]]:
    """The figures of the page by name, each with its caption."""
    known, main = TASKS[task], comparisons[0].measure
    buckets = length_buckets(systems[0].runs[0].outputs.lengths)
    by_length = [compare(main, systems, rows) for rows in buckets]
    interval = f"{CONFIDENCE:.0%} intervals"
    drawn = {
        "differences": (
            draw_differences(task, systems, comparisons),
            f"Difference to the baseline, {systems[0].name}, with {interval}.",
        ),
        "lengths": (
            draw_lengths(task, systems, buckets, by_length),
            f"{find(main.name, task).title} by the words of a {known.noun}, with the number of "
            f"{known.noun}s below, and the difference to the baseline with {interval}.",
        ),
    }
    if training is not None:
        caption = "Validation scores during training, a line per run. Dotted: the levels above."
        drawn["training"] = draw_training(systems, training), caption
    return {
        name: (web_page.figure_svg(figure, name, caption, web_page.COLOURS), caption)
        for name, (figure, caption) in drawn.items()
    }
