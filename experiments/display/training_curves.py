"""The training curves of a run: loss, scores and learning rate over the steps."""

import dataclasses
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from experiments.display.figure_files import save_figure
from transformer.metrics.registry import PANELS, Metric, rank, select
from transformer.storage.reading import parse_json, read_file

logger = logging.getLogger(__name__)

# Steps and values of one curve, in the order of the steps.
Curve = tuple[list[float], list[float]]
Curves = dict[tuple[str, str], Curve]  # by metric and split

WIDTH, PANEL_HEIGHT, DOTS_PER_INCH = 6.5, 2.1, 200  # inches: the text width of a page
# Okabe and Ito's colours are distinguishable for the colour-blind and in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKER_SHAPES = "osD^vP"
MAX_METRICS = 2**28  # bytes of a metrics file
FEW = 40  # points that still show as single marks


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel: the metrics it draws, by key, and the name of its y axis with the unit."""

    metrics: dict[str, Metric]
    label: str
    names_best: bool = True  # whether the legend names the best evaluation


RATE = Metric("learning_rate", "learning rate")
AS_MINIMISED = "train loss as minimised (smoothed or weighted)"
SAME = 1e-4  # relative difference up to which losses count as the same
# Marks of minutes on the axis of steps: their maximum number, and minimum distance as a fraction of
# the axis.
MAX_MARKS, MARKS_APART = 9, 0.09


def panels() -> list[Panel]:
    """The panels of the registry's metrics, and that of the learning rate."""
    found = [Panel(select(lambda m, label=label: m.panel == label), label) for label in PANELS]
    return [*found, Panel({RATE.name: RATE}, RATE.title, names_best=False)]


def drawn_metrics() -> tuple[str, ...]:
    """The keys of all panels."""
    return tuple(name for panel in panels() for name in panel.metrics)


def draw(metrics_file: Path, picture: Path) -> Path:
    """A figure of the run's losses, scores, accuracies and learning rate, one above the other.

    The axis below counts steps and the one above minutes, if the lines tell `seconds`.
    The curves of a panel are comparable: of the loss they are the negative log-likelihoods (nll),
    without smoothing or weights. The number that training minimises is drawn too, dashed, if it is
    another. A panel without data is left out. A value that is null or not finite leaves a gap in
    its curve. Lines that are not a JSON object with a step are passed over: a killed run leaves its
    last line half written, and the run that resumes appends to it. If a resumed run comes to a step
    again, the later line holds.

    Args:
      metrics_file: a run's `metrics.jsonl`, one object a line: `{"step", "split", "nll", ...}`.
      picture: where to write; its suffix (`.png`, `.pdf`, `.svg`) is the format. Its folder is
        made if missing.

    Returns:
      `picture`.

    Raises:
      ValueError: the file cannot be read, or holds nothing to draw.
    """
    curves = read_curves(Path(metrics_file))
    clock = read_curves(Path(metrics_file), ("seconds",)).get(("seconds", "train"))
    figure = build_figure(curves, str(metrics_file), clock)
    return save_figure(figure, Path(picture))


def read_curves(
    metrics_file: Path, metrics: tuple[str, ...] | None = None
) -> dict[tuple[str, str], Curve]:
    """The curves of a metrics file by (metric, split), in the order in which they first appear.

    Args:
      metrics_file: see `draw`, also for the lines that are passed over.
      metrics: the keys to read; by default those of the panels.

    Returns:
      Steps and values of each curve, sorted by step; NaN if the file has null or no number.

    Raises:
      ValueError: the file cannot be read.
    """
    try:
        lines = read_file(metrics_file, MAX_METRICS).split(b"\n")
    except OSError as error:
        raise ValueError(f"{metrics_file}: cannot read the metrics ({error.strerror})") from error
    metrics = drawn_metrics() if metrics is None else metrics
    points: dict[tuple[str, str], dict[float, float]] = {}
    for number, line in enumerate(lines, 1):
        event, wrong = parse_json(line, dict)
        step = math.nan if wrong else _number(event.get("step"))
        if math.isnan(step):
            if line:
                logger.warning(f"{metrics_file}, line {number}, is damaged: it is left out")
            continue
        split = str(event.get("split", "train"))
        for metric in metrics:
            if metric in event:
                points.setdefault((metric, split), {})[step] = _number(event[metric])
    return {
        name: (sorted(curve), [curve[step] for step in sorted(curve)])
        for name, curve in points.items()
        if not all(map(math.isnan, curve.values()))
    }


def build_figure(
    curves: dict[tuple[str, str], Curve], source: str, clock: Curve | None = None
) -> Figure:
    """The figure of these curves, a panel for each of `panels` that has any.

    Args:
      curves: steps and values by (metric, split).
      source: the file that messages name.
      clock: steps and the run's seconds at each, for the axis of minutes.

    Returns:
      A figure outside pyplot, with an Agg canvas.

    Raises:
      ValueError: there is nothing to draw.
    """
    curves, every = _without_repeats(curves), curves
    drawn = [panel for panel in panels() if any(metric in panel.metrics for metric, _ in curves)]
    if not drawn:
        wanted = ", ".join(drawn_metrics())
        raise ValueError(f"{source}: no line with a step and one of {wanted}: nothing to draw")
    figure = new_figure(WIDTH, PANEL_HEIGHT * len(drawn) + 0.4)
    column = figure.subplots(len(drawn), sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(column, drawn, strict=True):
        chosen = {name: curve for name, curve in curves.items() if name[0] in panel.metrics}
        _draw_panel(axes, panel, chosen, every)
    column[-1].set_xlabel("training step")
    column[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    column[-1].xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))
    if clock and clock[1][-1] > 0:
        _add_minutes(column[0], clock)
    figure.align_ylabels(column)
    return figure


def _without_repeats(curves: dict[tuple[str, str], Curve]) -> dict[tuple[str, str], Curve]:
    """The curves without losses if there is nll; training's comes last if it is another."""
    kept = {
        (metric, split): curve
        for (metric, split), curve in curves.items()
        if metric != "loss" or ("nll", split) not in curves
    }
    own, loss = curves.get(("nll", "train")), curves.get(("loss", "train"))
    if own and loss and not _same(own, loss):
        kept["loss", "train"] = loss
    return kept


def _same(one: Curve, other: Curve) -> bool:
    steps = one[0] == other[0]
    return steps and np.allclose(one[1], other[1], rtol=SAME, atol=0, equal_nan=True)


def _add_minutes(axes: Axes, clock: Curve):
    """Puts an axis of minutes above, read off the clock and its mean pace outside of it."""
    steps, minutes = np.array([0.0, *clock[0]]), np.array([0.0, *clock[1]]) / 60
    # Where the clock stood still, a tiny slope keeps the way back from minutes to steps defined.
    minutes = np.maximum.accumulate(minutes) + 1e-9 * steps
    pace = minutes[-1] / steps[-1]

    def to_minutes(x):
        return np.interp(x, steps, minutes) + pace * (
            np.minimum(x, 0) + np.maximum(x - steps[-1], 0)
        )

    def to_steps(y):
        outside = np.minimum(y, 0) + np.maximum(y - minutes[-1], 0)
        return np.interp(y, minutes, steps) + outside / pace

    above = axes.secondary_xaxis("top", functions=(to_minutes, to_steps))
    above.set_xlabel("minutes")
    left, right = axes.get_xlim()
    marks = _round_marks(
        *to_minutes(np.array([left, right])), place=lambda y: (to_steps(y) - left) / (right - left)
    )
    above.set_xticks(marks, labels=[f"{mark:,.10g}" for mark in marks])


def _round_marks(first: float, last: float, place: Callable[[float], float]) -> list[float]:
    """Round numbers between two, the roundest first, as many as there is room for.

    Time does not pass evenly over the steps: a step that compiles takes minutes.

    Args:
      place: of a number on the axis, from 0 to 1.
    """
    marks: dict[float, float] = {}
    size = 10.0 ** math.floor(math.log10(max(last - first, 1e-9)))
    for unit in (size, size / 2, size / 5, size / 10, size / 20):
        for count in range(math.ceil(max(first, 0) / unit), math.floor(last / unit) + 1):
            mark = round(count * unit, 12)
            own = place(mark)
            apart = all(abs(own - other) >= MARKS_APART for other in marks.values())
            if apart and len(marks) < MAX_MARKS:
                marks[mark] = own
    return sorted(marks)


def _draw_panel(axes: Axes, panel: Panel, curves: Curves, every: Curves):
    # The rate that training used stands alone and is named by its axis.
    alone = len(curves) == 1 and not panel.names_best
    for number, ((metric, split), (steps, values)) in enumerate(curves.items()):
        shown = panel.metrics[metric]
        label = f"{split} {shown.title}".replace("$", r"\$")  # it is not a formula
        training, minimised = split == "train", (metric, split) == ("loss", "train")
        if minimised and ("nll", split) in curves:
            label = AS_MINIMISED
        if panel.names_best and not training:
            losses = dict(zip(*every.get(("loss", split), ([], [])), strict=True))
            value, step = max(  # of equal ones the first
                zip(values, steps, strict=True),
                key=lambda at: rank({"loss": losses.get(at[1], math.nan), metric: at[0]}, metric),
            )
            label += f" (best {value:.2f} at step {step:,.0f})"
        marked = _marked(values)
        axes.plot(
            steps,
            values,
            label=None if alone else label,
            color=COLOURS[number % len(COLOURS)],
            linewidth=1.0 if training else 1.3,
            linestyle="dashed" if label == AS_MINIMISED else "solid",
            marker=MARKER_SHAPES[number % len(MARKER_SHAPES)] if marked else None,
            markersize=3.5,
            markevery=marked,
        )
    axes.set_ylabel(panel.label)
    axes.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)
    light_grid(axes)
    if not alone:
        axes.legend(frameon=False, fontsize=8)


def new_figure(
    width: float, height: float, layout: Literal["constrained", "compressed"] | None = "constrained"
) -> Figure:
    """Returns an empty figure outside pyplot, with an Agg canvas; its sides are in inches."""
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def light_grid(axes: Axes) -> None:
    """Draws a grid below the curves, and no frame above and to the right of them."""
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _marked(values: list[float]) -> list[int]:
    """The points that get a mark: all if they are few, else those that gaps leave alone."""
    gap = [True, *map(math.isnan, values), True]
    return [i for i in range(len(values)) if len(values) <= FEW or (gap[i] and gap[i + 2])]


def _number(value: object) -> float:
    """The value as a float; NaN for null, text, truth values and numbers that are not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan
