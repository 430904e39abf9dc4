"""Training curves of a run: losses, scores and the learning rate over the steps."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer.files import parse_json, read_file
from transformer.metrics.registry import PANELS, Metric, rank, select
from . import plotting

logger = logging.getLogger(__name__)

# Steps and values of one curve, ordered by step.
Curve = tuple[list[float], list[float]]
Curves = dict[tuple[str, str], Curve]  # keyed by metric and split

PANEL_HEIGHT = 2.1  # inches
MAX_METRICS = 2**28  # maximum size of a metrics file in bytes
FEW = 40  # maximum number of points for which a curve has markers
RATE = Metric("learning_rate", "learning rate")


def panels() -> dict[str, dict[str, Metric]]:
    """Returns the metrics of each subplot, keyed by y-axis label; the learning rate is last."""
    named = {label: select(lambda m, label=label: m.panel == label) for label in PANELS}
    return {**named, RATE.title: {RATE.name: RATE}}


def drawn_metrics() -> tuple[str, ...]:
    """Returns the metric keys of all subplots."""
    return tuple(name for metrics in panels().values() for name in metrics)


def draw(metrics_file: Path, picture: Path) -> Path:
    """Plots and saves the curves of a `metrics.jsonl` (see `build_figure`); returns `picture`."""
    return plotting.save_figure(build_figure(read_curves(metrics_file), str(metrics_file)), picture)


def read_curves(metrics_file: Path, metrics: tuple[str, ...] | None = None) -> Curves:
    """Returns curves from a metrics file: those of `metrics` or, by default, of all subplots.

    Damaged lines are skipped, such as the truncated last line of a killed run. If a resumed run
    repeats a step, the later line is used. Raises ValueError if the file cannot be read.
    """
    try:
        lines = read_file(metrics_file, MAX_METRICS).splitlines()
    except OSError as error:
        raise ValueError(f"{metrics_file}: cannot read the metrics ({error.strerror})") from error
    metrics = drawn_metrics() if metrics is None else metrics
    points: dict[tuple[str, str], dict[float, float]] = {}
    for number, line in enumerate(lines, 1):
        event, wrong = parse_json(line, dict)
        step = math.nan if wrong else _number(event.get("step"))
        if math.isnan(step):
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


def build_figure(curves: Curves, source: str) -> Figure:
    """Returns a figure of the curves in vertically stacked subplots; empty subplots are omitted.

    If a split has negative log-likelihoods (nll), they replace its losses: nll has no smoothing or
    weights, and is comparable between splits. NaN leaves a gap in a curve. Raises ValueError, with
    the name `source`, if there is nothing to plot.
    """
    shown = {
        (metric, split): curve
        for (metric, split), curve in curves.items()
        if metric != "loss" or ("nll", split) not in curves
    }
    drawn = {
        label: (metrics, {name: curve for name, curve in shown.items() if name[0] in metrics})
        for label, metrics in panels().items()
        if any(metric in metrics for metric, _ in shown)
    }
    if not drawn:
        wanted = ", ".join(drawn_metrics())
        raise ValueError(f"{source}: no line with a step and one of {wanted}: nothing to draw")
    figure = plotting.new_figure(plotting.WIDTH, PANEL_HEIGHT * len(drawn) + 0.4)
    column = figure.subplots(len(drawn), sharex=True, squeeze=False)[:, 0]
    for axes, (label, (metrics, chosen)) in zip(column, drawn.items(), strict=True):
        axes.set_ylabel(label)
        _draw_panel(axes, metrics, chosen, curves)
    column[-1].set_xlabel("training step")
    plotting.count_steps(column[-1], 8)
    figure.align_ylabels(column)
    return figure


def _draw_panel(axes: Axes, metrics: Mapping[str, Metric], curves: Curves, every: Curves) -> None:
    """Plots a subplot's curves; equal best scores are compared by the losses in `every`."""
    for number, ((metric, split), (steps, values)) in enumerate(curves.items()):
        label = f"{split} {metrics[metric].title}".replace("$", r"\$")  # not typeset as a formula
        training = split == "train"
        if not training:
            losses = dict(zip(*every.get(("loss", split), ([], [])), strict=True))
            value, step = max(  # the first one of equal values
                zip(values, steps, strict=True),
                key=lambda at: rank({"loss": losses.get(at[1], math.nan), metric: at[0]}, metric),
            )
            label += f" (best {value:.2f} at step {step:,.0f})"
        style = plotting.look(number)
        if len(values) > FEW:
            style["marker"] = ""
        style |= {"linewidth": 1.0 if training else 1.3, "markersize": 3.5}
        plotting.curve(axes, steps, values, label=label, **style)
    axes.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)
    axes.legend(**plotting.LEGEND)


def _number(value: object) -> float:
    """Returns the value as a float, or NaN for null, text and non-finite numbers."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan
