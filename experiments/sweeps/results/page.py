"""The results of a sweep: tables, pictures, and an offline page."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure
from rich.table import Table

from experiments.display.plotting import save_figure
from experiments.display.text_table import one_line
from experiments.display.web_page import figure_svg
from experiments.sweeps.results.figures import INK, MAX_TOLD_APART, build_figures
from experiments.sweeps.results.notes import notes
from experiments.sweeps.results.outcomes import Sweep, Trial
from experiments.sweeps.results.reading import read_sweep
from experiments.sweeps.results.table import build_table, missing, signatures, to_csv, to_markdown
from experiments.text_io import print_table
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
STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1c; --paper: #fff; --line: #d5d5d8; --mark: #eef4fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e8; --paper: #161618; --line: #3a3a3f; --mark: #1e2a36; }
}
body { color: var(--ink); background: var(--paper); font: 1rem/1.5 system-ui, sans-serif;
  margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
/* Only the table may be wider than text is read well. */
h1, pre, .notes, figure { max-width: 72rem; margin-left: auto; margin-right: auto; }
h1 { font-size: 1.5rem; line-height: 1.25; }
pre { white-space: pre-wrap; border-left: 3px solid var(--line); padding-left: .75rem; }
pre span { display: inline-block; max-width: 100%; }  /* no line ends at a hyphen of a flag */
/* What is too wide moves within its box; a shadow at its right edge says that there is more. */
.wide { overflow-x: auto; max-width: 100%; background:
  linear-gradient(to left, var(--paper) 30%, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat scroll; }
.wide:focus-visible { outline: 2px solid; }
table { margin: 0 auto; border-collapse: collapse; font-size: .875rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; white-space: normal; overflow-wrap: normal; }
th.name, td.name { text-align: left; }
td.name { white-space: normal; overflow-wrap: break-word; max-width: min(20rem, 40vw); }
tr > :first-child { position: sticky; left: 0; background: var(--paper); }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid; }
th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
tr.baseline td { background: var(--mark); font-weight: 600; }
figure { margin-top: 1.5rem; margin-bottom: 1.5rem; }
svg { display: block; width: 100%; min-width: 30rem; max-width: 52rem; height: auto; }
figcaption, .notes { font-size: .875rem; }
code { font-size: .8rem; }
"""
# A first click sorts numbers from the highest and names from A; empty cells stay below.
SCRIPT = """
document.querySelectorAll("th button").forEach((button, column) => {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const rows = [...body.rows], key = row => row.cells[column].dataset.order;
    const numeric = rows.every(row => key(row) === "" || !isNaN(key(row)));
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric;
    const compare = (a, b) => numeric ? a - b : a.localeCompare(b);
    rows.sort((a, b) => (key(a) === "") - (key(b) === "")
      || (down ? -1 : 1) * compare(key(a), key(b)));
    head.parentElement.querySelectorAll("th").forEach(th => th.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  });
});
"""
# The browser itself is told to fetch nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


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
      task: the name of the trials' task.
      trials: all of the sweep, whatever their state; the complete ones are compared.
      folder: where to write; made if missing. Files of the same names are replaced.
      title: of the sweep.
      command: what started it, for the reader to repeat.
      baseline: number of the trial with whose setting the others are compared; None for none.

    Returns:
      `index.html`, `results.md`, `results.csv` and the pictures `scores.png`, `curves.png`,
      `lengths.png` and `heatmap.png`, as far as there is something to draw; see `build_figures`.

    Raises:
      UserError: see `read_sweep`. Nothing is written then.
    """
    sweep = read_sweep(task, trials, baseline)
    figures = build_figures(sweep)
    texts = {
        "index.html": build_page(sweep, figures, title, command),
        "results.md": to_markdown(sweep, title, command),
        "results.csv": to_csv(sweep),
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in texts.items():
        paths.append(folder / name)
        write_text(paths[-1], text)
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        save_figure(figure, paths[-1], facecolor="white")
    _print_table(sweep, title)
    return paths


def _print_table(sweep: Sweep, title: str) -> None:
    """Prints the columns of the table up to the further scores."""
    table, names = build_table(sweep), max(1, len(sweep.keys))
    further = [measure.title for measure in sweep.scores[1:]]
    count = next((i for i, name in enumerate(table.titles) if name in further), None)
    shown = Table(*table.titles[:count], title=one_line(title))
    for column in shown.columns[names:]:
        column.justify = "right"
    for row in table.rows:
        shown.add_row(*(cell.text for cell in row[:count]))
    print_table(shown, names)
    print(f"results.md has all {len(table.titles)} columns, notes and signatures", flush=True)


def build_page(sweep: Sweep, figures: dict[str, Figure], title: str, command: str) -> str:
    """The page as HTML: table, notes and figures in one file that refers to nothing outside it."""
    told = [f"<p>{escape(line)}</p>" for line in notes(sweep)]
    for name, text in signatures(sweep).items():
        told.append(f"<p>{escape(name)}: <code>{escape(text)}</code></p>")
    if lines := missing(sweep):
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        told.append(f"<p>Not in the table:</p>\n<ul>{items}</ul>")
    arguments = " ".join(f"<span>{escape(argument)}</span>" for argument in command.split(" "))
    drawn = []
    for name, figure in figures.items():
        caption = _caption(name, sweep)
        svg = figure_svg(figure, name, caption, {INK: "currentColor"})
        drawn.append(
            f'<figure>\n<div class="wide">{svg}</div>\n'
            f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
        )
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            f"<h1>{escape(title)}</h1>\n<pre><code>{arguments}</code></pre>",
            '<div class="wide" role="region" aria-label="results of all settings" tabindex="0">',
            f"{_to_table(sweep)}\n</div>",
            f'<div class="notes">\n{"".join(told)}\n</div>',
            *drawn,
            f"<script>{SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )


def _caption(name: str, sweep: Sweep) -> str:
    measures = sweep.measures
    worse = "lower" if measures.higher_is_better else "higher"
    many = len(sweep.settings) > MAX_TOLD_APART
    lost = any(setting.lost for setting in sweep.settings)
    return CAPTIONS[name].format(
        split=measures.split,
        main=measures.main.title,
        curves=measures.curves_note,
        length=measures.texts and measures.texts.length,
        noun=measures.texts and measures.texts.noun,
        others=f" Grey: settings with {worse} scores." if many else "",
        whole=", of settings without pruned or failed seeds" if lost else "",
        baseline=" The dotted line is the baseline." if sweep.baseline else "",
    )


def _to_table(sweep: Sweep) -> str:
    table = build_table(sweep)
    names = max(1, len(sweep.keys))  # columns of text, to the left

    def side(column):
        return ' class="name"' if column < names else ""

    head = "".join(
        f'<th scope="col"{side(i)}><button>{escape(title)}</button></th>'
        for i, title in enumerate(table.titles)
    )
    rows = []
    for setting, row in zip(sweep.settings, table.rows, strict=True):
        marked = ' class="baseline"' if setting is sweep.baseline else ""
        cells = "".join(
            f'<td{side(i)} data-order="{escape(str(cell.order))}">{escape(cell.text)}</td>'
            for i, cell in enumerate(row)
        )
        rows.append(f"<tr{marked}>{cells}</tr>")
    body = "\n".join(rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
