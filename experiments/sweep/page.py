"""The files of a sweep's results: tables, pictures, and an offline page of both."""

from collections.abc import Sequence
from pathlib import Path

from experiments.display.plotting import save_figure
from experiments.display.web_page import figure_svg, render
from experiments.results import table as tables
from experiments.results.figures import INK, MAX_TOLD_APART, sweep_figures
from experiments.results.notes import sweep_notes
from experiments.results.reading import read_sweep
from experiments.results.systems import Sweep, Trial
from transformer.storage.files import write_text

CAPTIONS = {
    "scores": "Scores on the {split} set: a mark is the mean over seeds, its bar one standard "
    "deviation to each side, and the dots below it are the seeds.{baseline}",
    "curves": "Validation while training{curves}: the mean over seeds, in a band of one standard "
    "deviation to each side, at steps that every seed of a setting has.{others}",
    "lengths": "The test set by {length}, with the number of {noun}s below: the mean over seeds, "
    "in a band of one standard deviation to each side.{others}",
    "heatmap": "Mean {main} over seeds by the two numbers that were swept{whole}.",
}


def write_results(
    task: str,
    trials: Sequence[Trial],
    folder: Path,
    title: str,
    command: str,
    baseline: int | None,
) -> list[Path]:
    """Writes what a sweep found: tables, pictures and a page of both; prints the main columns.

    Args:
      trials: all of the sweep, whatever their state; the complete ones are compared.
      command: what started it, for the reader to repeat.
      baseline: number of the trial with whose setting the others are compared; None for none.

    Returns:
      `index.html`, `results.md`, `results.csv` and the pictures, see `sweep_figures`.
    """
    sweep = read_sweep(task, trials, baseline)
    table, figures, notes = tables.build_table(sweep), sweep_figures(sweep), sweep_notes(sweep)
    signatures, absent = tables.sweep_signatures(sweep), tables.missing(sweep)
    captions = {name: _caption(name, sweep) for name in figures}
    page = render(
        "sweep.html",
        title=title,
        command=command,
        table=table,
        notes=notes,
        signatures=signatures,
        missing=absent,
        figures=[
            (figure_svg(figure, name, captions[name], {INK: "currentColor"}), captions[name])
            for name, figure in figures.items()
        ],
    )
    texts = {
        "index.html": page,
        "results.md": tables.to_markdown(title, command, [table], notes, signatures, absent),
        "results.csv": tables.to_csv(sweep),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    for name, figure in figures.items():
        save_figure(figure, folder / f"{name}.png", facecolor="white")
    further = [measure.title for measure in sweep.scores[1:]]
    count = next((i for i, name in enumerate(table.head) if name in further), len(table.head))
    short = table._replace(caption=tables.one_line(title), head=table.head[:count])
    tables.print_rows(short._replace(rows=[row[:count] for row in table.rows]))
    print(f"results.md has all {len(table.head)} columns, notes and signatures", flush=True)
    return [folder / name for name in (*texts, *(f"{name}.png" for name in figures))]


def _caption(name: str, sweep: Sweep) -> str:
    measures = sweep.measures
    worse = "lower" if measures.higher_is_better else "higher"
    many = len(sweep.systems) > MAX_TOLD_APART
    return CAPTIONS[name].format(
        split=measures.split,
        main=measures.main.title,
        curves=measures.curves_note,
        length=measures.length,
        noun=measures.noun,
        others=f" Grey: settings with {worse} scores." if many else "",
        whole=", of settings without pruned or failed seeds"
        if any(system.lost for system in sweep.systems)
        else "",
        baseline=" The dotted line is the baseline." if sweep.baseline else "",
    )
