"""Progress display for training and translation: a bar on a terminal, log lines elsewhere."""

import contextlib
import datetime
import logging
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clu import parameter_overview
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from transformer.metrics import registry

logger = logging.getLogger(__name__)

REFRESH = 0.1  # minimum time in seconds between two updates of the bar
SILENCE = 30.0  # maximum time in seconds between two log lines without a terminal
COMPILING = "compiling"


@contextlib.contextmanager
def line_progress(
    total: int | None, hidden: bool, what: str = "line"
) -> Iterator[Callable[[int], None]]:
    """Shows progress on stderr, if it is a terminal; yields a function that adds processed lines.

    Args:
      total: number of lines, or None if it is unknown.
      hidden: whether to hide the progress even on a terminal, because the results show it.
      what: name of the counted items.
    """
    bar = RichProgress(
        TextColumn(what),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=hidden or not sys.stderr.isatty(),
        redirect_stdout=False,
    )
    task = bar.add_task("lines", total=total)
    with bar:
        yield lambda count: bar.advance(task, count)


class Progress:
    """Shows the step, loss, speed and remaining time as a bar on a terminal, or else as log lines.

    Args:
      total: total number of steps of the run.
      start: number of steps that were completed earlier.
      unit: the unit of the throughput; see `Task.unit`.
      limit: number of seconds after which the run ends at the latest.
    """

    def __init__(self, total: int, start: int, unit: str, limit: float = math.inf):
        self._unit, self._total = unit, total
        # The bar prints log messages on the terminal, and so would keep them out of a log file.
        self._terminal = sys.stderr.isatty() and sys.stdout.isatty()
        self._bar = RichProgress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[text]}", table_column=Column(no_wrap=True, overflow="crop")),
            console=Console(stderr=True),
            disable=not self._terminal,
        )
        self._task = self._bar.add_task("train", total=total, completed=start, text="")
        self._first = self._step = start
        self._begin = self._shown = self._since = time.monotonic()
        self._end = self._begin + limit
        self._parts: tuple[str, ...] = ()  # metrics of the last log interval, most important first
        self._busy = ""
        self._compiled = False

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def step(self, step: int) -> None:
        """Shows the number of completed steps; cheap enough to be called after each step."""
        self._step, now = step, time.monotonic()
        if now - self._shown >= (REFRESH if self._terminal else SILENCE):
            self._show(now, self._parts if self._terminal else ())

    def update(self, step: int, values: dict[str, float]) -> None:
        """Shows the metrics of a log interval."""
        speed = f"{values['tokens_per_second']:,.0f} {self._unit}/s"
        each = f"{values['seconds_per_step']:.3g} s/step"
        self._step, self._parts = step, (f"loss {values['loss']:.3f}", speed, each)
        more = f"rate {values['learning_rate']:.2e}", f"{values['seconds']:.0f} s"
        self._show(time.monotonic(), self._parts + (() if self._terminal else more))

    def note(self, step: int, scores: dict[str, float]) -> None:
        """Shows the scores of an evaluation above the bar."""
        shown = registry.select(lambda metric: registry.PROGRESS in metric.shown)
        text = "  ".join(f"{name} {scores[name]:.4g}" for name in shown if name in scores)
        say = self._bar.console.print if self._terminal else logger.info
        say(f"validation at step {step}: {text}")

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Shows the current activity while the run does something other than training steps."""
        self._busy, self._since = what, time.monotonic()
        if self._terminal:
            self._show(self._since, (what,))
        elif what == COMPILING and not self._compiled:
            logger.info(f"{COMPILING} ...")
            self._shown = self._since
        try:
            yield
        finally:
            now = time.monotonic()
            if what == COMPILING:  # excluded from the estimate of the remaining time
                self._begin += now - self._since
                self._compiled = True
            if self._terminal:
                self._show(now, self._parts)

    def tick(self) -> None:
        """Shows the duration of the current activity; should be called about once a second."""
        now = time.monotonic()
        if self._terminal or now - self._shown >= SILENCE:
            self._show(now, (f"{self._busy}, {now - self._since:.0f} s",))

    def _show(self, now: float, parts: tuple[str, ...]) -> None:
        self._shown = now
        if self._step > self._first:
            each = (now - self._begin) / (self._step - self._first)
            seconds = round(max(0, min(each * (self._total - self._step), self._end - now)))
            parts = *parts, f"{datetime.timedelta(seconds=seconds)} left"
        shown = "".join(f"  {part}" for part in parts)
        if self._terminal:
            self._bar.update(self._task, completed=self._step, text=shown)
        else:
            logger.info(f"step {self._step}/{self._total}{shown}")


def parameter_counts(params: Mapping[str, Any]) -> dict[str, int]:
    """Returns the number of parameters in each part of a model.

    The layers of a stack, such as `name_0` and `name_1`, count as one part, `name (2)`.
    """
    stacks: dict[str, list[int]] = {}
    for name, part in params.items():
        counts = stacks.setdefault(re.sub(r"_\d+$", "", name), [])
        counts.append(int(parameter_overview.count_parameters({name: part})))
    return {
        f"{name} ({len(counts)})" if len(counts) > 1 else name: sum(counts)
        for name, counts in stacks.items()
    }


def mean_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean of each value over the runs, all of which have the same keys."""
    return {name: statistics.fmean(each[name] for each in runs) for name in runs[0]}
