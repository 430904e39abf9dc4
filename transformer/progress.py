"""What a person sees while a run trains or translates: a bar on a terminal, lines elsewhere."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clu import parameter_overview
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


@contextlib.contextmanager
def line_progress(
    total: int | None, hidden: bool, what: str = "line"
) -> Iterator[Callable[[int], None]]:
    """Shows how many lines of a text are done, where stderr is a terminal.

    Args:
      total: lines of the text; None where nobody knows.
      hidden: show nothing on a terminal either, where the results show how far they are.
      what: is counted.

    Yields:
      What to call with the number of lines that were done since the last call.
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
    """Shows step, loss, speed and the time left.

    Args:
      total: steps of the whole run.
      start: steps done before.
      say: prints a line where there is no terminal.
      unit: what is counted a second.
    """

    def __init__(self, total: int, start: int, say: Callable[[str], None], unit: str):
        self._unit = unit
        self._say = say
        self._total = total
        self._start = start
        self._terminal = sys.stderr.isatty()
        self._bar = RichProgress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not self._terminal,
        )
        self._task = self._bar.add_task("train", total=total, completed=start, text="compiling")

    def __enter__(self) -> "Progress":
        self._bar.start()
        if not self._terminal and self._start < self._total:
            self._say("compiling ...")
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def update(self, step: int, values: dict[str, float]) -> None:
        """Shows the numbers of a log interval."""
        speed = f"{values['tokens_per_second']:,.0f} {self._unit}/s"
        text = f"loss {values['loss']:.3f}  {speed}"
        self._bar.update(self._task, completed=step, text=text)
        if not self._terminal:
            self._say(
                f"step {step}/{self._total}  {text}  rate {values['learning_rate']:.2e}  "
                f"{values['seconds']:.0f} s"
            )

    def note(self, step: int, scores: dict[str, float]) -> None:
        """Shows an evaluation, above the bar."""
        shown = ("loss", "perplexity", "accuracy", "bleu", "chrf", "exact_match")
        text = "  ".join(f"{name} {scores[name]:.4g}" for name in shown if name in scores)
        say = self._bar.console.print if self._terminal else self._say
        say(f"validation at step {step}: {text}")


def parameter_table(params: Mapping[str, Any]) -> str:
    """Returns the number of parameters of each part of a model and of all, a line each.

    The layers of a stack, `name_0`, `name_1` and so on, are one line that says how many they are.
    """
    stacks: dict[str, list[int]] = {}
    for name, part in params.items():
        counts = stacks.setdefault(re.sub(r"_\d+$", "", name), [])
        counts.append(int(parameter_overview.count_parameters({name: part})))
    rows = [
        (f"{name} ({len(counts)})" if len(counts) > 1 else name, f"{sum(counts):,}")
        for name, counts in stacks.items()
    ]
    rows.append(("all parameters", f"{sum(map(sum, stacks.values())):,}"))
    left, right = (max(map(len, column)) for column in zip(*rows, strict=True))
    return "\n".join(f"{name:<{left}}  {count:>{right}}" for name, count in rows)
