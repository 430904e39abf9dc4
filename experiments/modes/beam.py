"""The `beam` mode: draws the search for a translation as a tree."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer.inference.hypotheses import Branch
from transformer.runs.loaded import LoadedRun
from transformer.runs.run import Run
from ..attention.draw import text_folder
from ..process.modes import Options

COLOURS = {"kept": "#0072b2", "finished": "#d55e00", "pruned": "#b0b0b0"}
WIDTH, HEIGHT = 1.4, 0.25  # inches of a step and of a rank


def beam(run: Run, options: Options) -> list[Path]:
    """Draws the search for the translation of a sentence; returns the figure."""
    text, loaded = options.needed("sentence"), LoadedRun(run)
    steps = loaded.beam(text, options.prefix or "", options.source_tag)
    from ..display.plotting import save_figure  # importing matplotlib takes a third of a second

    place = text_folder(run.folder, text, options.prefix)
    return [save_figure(build_figure(steps), place / "beam.svg")]


def best_path(steps: Sequence[Sequence[Branch]]) -> list[Branch]:
    """Returns the branches of the finished hypothesis with the best score."""
    ended = [(x.score, i, x) for i, step in enumerate(steps) for x in step if x.fate == "finished"]
    _, step, branch = max(ended, key=lambda each: each[:2])
    path = [branch]
    for before in reversed(steps[:step]):
        path.append([each for each in before if each.fate == "kept"][path[-1].parent])
    return path[::-1]


def build_figure(steps: Sequence[Sequence[Branch]]) -> Any:
    """Returns the tree: a column for each step, with its most probable continuation on top."""
    import matplotlib.pyplot as plt

    rows = max(map(len, steps))
    figure, axes = plt.subplots(figsize=(WIDTH * (len(steps) + 1), HEIGHT * (rows + 2)))
    best, before = set(map(id, best_path(steps))), [0]
    for step, branches in enumerate(steps):
        for rank, each in enumerate(branches):
            strong, colour = id(each) in best, COLOURS[each.fate]
            ends = (step - 0.35, step - 0.08), (before[each.parent], rank)
            axes.plot(*ends, color="#000000" if strong else colour, lw=2 if strong else 0.7)
            weight, text = "bold" if strong else "normal", f"{each.token} {each.log_prob:.1f}"
            axes.text(step - 0.06, rank, text, size=7, va="center", color=colour, weight=weight)
        before = [rank for rank, each in enumerate(branches) if each.fate == "kept"]
    axes.set(xlim=(-0.5, len(steps)), ylim=(rows + 0.5, -1), yticks=[], xlabel="step")
    axes.set_xticks(range(len(steps)), labels=map(str, range(1, len(steps) + 1)))
    axes.spines[:].set_visible(False)
    for fate, colour in COLOURS.items():
        axes.plot([], [], color=colour, label=fate)
    axes.legend(loc="lower left", ncols=3, fontsize=7, frameon=False)
    return figure
