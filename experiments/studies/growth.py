"""How time and memory of a training step grow with length, width, depth, vocabulary and batch.

    python -m experiments.studies.growth --out=runs/growth [--axes=length,width] [--seconds=80]

A small translator, `BASE`, is trained on random tokens; along each axis one of its sizes grows and
the others stay. Each point leaves a file in OUT/points, and a later start skips those that are
there. Without points to measure, it prints the table and draws OUT/growth.png.
"""

import itertools
import json
import logging
import math
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from ml_collections import ConfigDict
from rich.table import Table

from configs import base
from experiments.display.figure_files import save_figure
from experiments.display.training_curves import COLOURS, MARKER_SHAPES, light_grid, new_figure
from experiments.planning.measure import MEMORY_FRACTION, free_memory
from experiments.process import logging_to
from experiments.studies.accelerator.steps import measure_step
from experiments.studies.command import Parser, exit_code, whole
from experiments.text_io import print_table
from transformer.errors import UserError
from transformer.storage.files import write_json

logger = logging.getLogger("experiments.studies.growth")  # not that of `__main__`

# Heads are of width 32, and the inner width is four times the width.
BASE = {"length": 64, "width": 64, "depth": 1, "vocabulary": 1_000, "batch": 16}
AXES: dict[str, tuple[int, ...]] = {
    "length": tuple(2**n for n in range(6, 15)),
    "width": tuple(2**n for n in range(5, 11)),
    "depth": (1, 2, 4, 8),
    "vocabulary": tuple(1_000 * 2**n for n in range(7)),
    "batch": tuple(2**n for n in range(9)),
}
# Of the other axes only plain: their scores fit into a chunk or two, with which both forms are
# nearly the same.
FORMS = {"length": ("plain", "chunked")}
FITTED = 4  # the largest points of an axis, to which a slope is fitted
MIN_SECONDS = 1.5  # of steps, but three at least: their median is kept
MAX_BYTES = 4e9  # of a program that is run: for larger ones the system takes minutes to find pages
WIDTH, HEIGHT = 10.0, 4.4  # inches


class Point(NamedTuple):
    """A value of an axis, and the form of attention."""

    axis: str
    value: int
    form: str

    def path(self, folder: Path) -> Path:
        """Returns the file of the point's numbers."""
        return folder / "points" / f"{self.axis}-{self.value}-{self.form}.json"

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the model and its batch. Long sentences come one at a time."""
        rows = {"batch": 1} if self.axis == "length" else {}
        return {**BASE, **rows, self.axis: self.value}

    def config(self) -> ConfigDict:
        """Returns the config of the training."""
        sizes, config = self.sizes, base.get_config()
        width, depth = sizes["width"], sizes["depth"]
        config.model.update({"d_model": width, "d_ff": 4 * width, "num_heads": width // 32})
        config.model.update({"num_encoder_layers": depth, "num_decoder_layers": depth})
        config.model.attention_implementation = self.form
        config.tokenizer.vocab_size = sizes["vocabulary"]
        config.data.batch_tokens = sizes["batch"] * sizes["length"]
        config.data.batch_multiple = 1
        return config

    def measure(self) -> dict[str, Any]:
        """Returns `measure_step` of the point; without times if the memory is too small for it."""
        max_bytes = min(MAX_BYTES, MEMORY_FRACTION * free_memory())
        return measure_step(self.config(), self.sizes["length"], 1, MIN_SECONDS, max_bytes)


def points(axes: Iterable[str]) -> list[Point]:
    """Returns the points of some axes, the quick ones of each first."""
    return [
        Point(axis, value, form)
        for axis in axes
        for value, form in itertools.product(AXES[axis], FORMS.get(axis, ("plain",)))
    ]


class Curve(NamedTuple):
    """Seconds or bytes of an axis; NaN if nothing was measured."""

    values: Sequence[int]
    numbers: Sequence[float]

    @property
    def slope(self) -> float:
        """The exponent of growth: of log number over log value, at the largest values measured."""
        known = [pair for pair in zip(*self, strict=True) if math.isfinite(pair[1])]
        x, y = np.log(np.array(known[-FITTED:], np.float64)).T
        return float(np.polyfit(x, y, 1)[0])


def read_curves(folder: Path, axis: str, quantity: str) -> dict[str, Curve]:
    """Returns the curve of each form along an axis.

    Args:
      quantity: "step_ms" or "program_bytes".
    """
    curves = {}
    for form in FORMS.get(axis, ("plain",)):
        paths = (Point(axis, value, form).path(folder) for value in AXES[axis])
        records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        numbers = [record.get(quantity, math.nan) for record in records]
        curves[form] = Curve(AXES[axis], numbers)
    return curves


# Quantity -> (its label, its unit).
QUANTITIES = {"step_ms": ("ms per step", 1.0), "program_bytes": ("MB of memory", 1e6)}


def build_figure(folder: Path) -> Figure:
    """Returns a column of two panels for each axis: time above, memory below, both logarithmic."""
    figure = new_figure(WIDTH, HEIGHT)
    panels = figure.subplots(len(QUANTITIES), len(AXES), squeeze=False)
    for (quantity, (label, unit)), row in zip(QUANTITIES.items(), panels, strict=True):
        for axis, axes in zip(AXES, row, strict=True):
            _draw(axes, read_curves(folder, axis, quantity), unit)
        row[0].set_ylabel(label)
    for axis, axes in zip(AXES, panels[-1], strict=True):
        axes.set_xlabel(axis)
    return figure


def _draw(axes: Axes, curves: dict[str, Curve], unit: float) -> None:
    """The points of each form, and the line of its slope through the largest of them."""
    for (form, curve), colour, marker in zip(curves.items(), COLOURS, MARKER_SHAPES, strict=False):
        values, numbers = np.array(curve.values), np.array(curve.numbers) / unit
        label = f"{form}: slope {curve.slope:.2f}"
        axes.plot(values, numbers, marker, color=colour, markersize=3.5, label=label)
        known = np.flatnonzero(np.isfinite(numbers))[-FITTED:]
        middle = np.exp(np.log(numbers[known]).mean())
        centre = np.exp(np.log(values[known]).mean())
        line = middle * (values[known] / centre) ** curve.slope
        axes.plot(values[known], line, color=colour, linewidth=0.9)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(NullFormatter())  # powers of ten have room, others have not
    axes.legend(frameon=False, fontsize=6.5, loc="upper left", handletextpad=0.1)
    light_grid(axes)
    axes.margins(y=0.25)


def build_table(folder: Path) -> Table:
    """Returns a row for each axis and form: the range, time and memory at both ends, slopes."""
    table = Table(title="Growth of a training step")
    for column in ("axis", "form", "from", "to", "ms", "slope", "MB", "slope"):
        table.add_column(column, justify="left" if column in ("axis", "form") else "right")
    for axis in AXES:
        of_quantities = [read_curves(folder, axis, quantity) for quantity in QUANTITIES]
        for form in of_quantities[0]:
            cells = []
            for curves, (_, unit) in zip(of_quantities, QUANTITIES.values(), strict=True):
                cells += [_range(curves[form], unit), f"{curves[form].slope:.2f}"]
            ends = f"{AXES[axis][0]:,}", f"{AXES[axis][-1]:,}"
            table.add_row(axis, form, *ends, *cells)
    return table


def _range(curve: Curve, unit: float) -> str:
    """The first and the last number of a curve, with the value of the last if larger ones lack."""
    known = [pair for pair in zip(*curve, strict=True) if math.isfinite(pair[1])]
    (_, first), (value, last) = known[0], known[-1]
    at = "" if value == curve.values[-1] else f" (at {value:,})"
    return f"{first / unit:,.1f} … {last / unit:,.0f}{at}"


def run(arguments: Sequence[str]) -> None:
    """Measures the points that are missing, then prints and draws all.

    Raises:
      UserError: a flag is wrong.
    """
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/growth"), help="folder to fill")
    parser.add_argument("--axes", default=",".join(AXES), help="by default all")
    parser.add_argument(
        "--seconds", type=whole(1, 86_400), default=86_400, help="after which no point is begun"
    )
    flags = parser.parse_args(arguments)
    chosen = flags.axes.split(",")
    for axis in chosen:
        if axis not in AXES:
            raise UserError(f"--axes has {axis!r}: choose from {','.join(AXES)}")
    deadline = time.monotonic() + flags.seconds
    (flags.out / "points").mkdir(parents=True, exist_ok=True)
    with logging_to("stdout"):
        for point in points(chosen):
            if point.path(flags.out).exists():
                continue
            if time.monotonic() > deadline:
                break
            found = point.measure()
            write_json(point.path(flags.out), found)
            logger.info(f"{point}: {found.get('step_ms')} ms, {found['program_bytes']:,} bytes")
    if missing := [point for point in points(AXES) if not point.path(flags.out).exists()]:
        print(f"{len(missing)} points are missing: repeat the command")
        return
    print_table(build_table(flags.out), keys=2)
    print(save_figure(build_figure(flags.out), flags.out / "growth.png"))


if __name__ == "__main__":
    sys.exit(exit_code(run, sys.argv[1:]))
