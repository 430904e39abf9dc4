"""The texts that changed most between a system and the baseline, with their differences marked."""

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.display.web_page import shortened
from experiments.results.statistics import ROUNDING
from experiments.results.systems import System
from experiments.results.tasks import TaskMeasures

SHOWN = 10  # texts of each direction
MAX_RUNS = 3  # runs of a system whose outputs are shown
MAX_LENGTH = 600  # characters of a text
WORDS = re.compile(r"\w+|[^\w\s]|\s+")


class Part(NamedTuple):
    """A part of a text, and whether the other system lacks it."""

    text: str
    differs: bool


class Line(NamedTuple):
    """A line of an example: its name, and its parts."""

    name: str
    parts: list[Part]


class Change(NamedTuple):
    """A text by its number, from one, and by how much its score is higher than the baseline's."""

    number: int
    difference: str
    lines: list[Line]


class Changes(NamedTuple):
    """The texts of a system that changed most, from the largest change on."""

    system: str
    better: list[Change]
    worse: list[Change]


def find_changes(measures: TaskMeasures, systems: Sequence[System]) -> list[Changes]:
    """Returns the changes of each system but the baseline, which is the first."""
    name = measures.changes
    metric, of_sums = measures.metric(name), measures.of_sums[name]
    sign = 1 if metric.higher_is_better else -1
    # The score of each text, the mean over a system's runs.
    before, *others = (
        np.mean([of_sums(run.texts.counts(name)) for run in system.runs], 0) for system in systems
    )
    changes = []
    for system, after in zip(systems[1:], others, strict=True):
        gained = sign * (after - before)
        order = np.argsort(-gained, kind="stable")

        def change(i: int, system: System = system, gained: np.ndarray = gained) -> Change:
            amount = format(sign * gained[i] * metric.scale, f"+{metric.format}")
            return Change(i + 1, f"{amount} {metric.title}", _lines(systems[0], system, i))

        better = [change(int(i)) for i in order[:SHOWN] if gained[i] > ROUNDING]
        worse = [change(int(i)) for i in order[::-1][:SHOWN] if gained[i] < -ROUNDING]
        changes.append(Changes(system.name, better, worse))
    return changes


def _lines(baseline: System, system: System, i: int) -> list[Line]:
    """The inputs of all runs for a text, and the outputs of runs of both systems, in pairs."""
    lines = [
        Line(name, [Part(shortened(texts[i], MAX_LENGTH), differs=False)])
        for name, texts in baseline.runs[0].texts.shown.items()
    ]
    for runs in list(zip(baseline.runs, system.runs, strict=False))[:MAX_RUNS]:
        marked = mark(*(shortened(run.texts.texts[i], MAX_LENGTH) for run in runs))
        for side, run, parts in zip((baseline, system), runs, marked, strict=True):
            name, folder = side.name, run.folder.name
            if len(side.runs) > 1:
                name = folder if folder.startswith(name) else f"{name}, {folder}"
            lines.append(Line(name, parts))
    return lines


def mark(before: str, after: str) -> tuple[list[Part], list[Part]]:
    """Returns the parts of two texts, of which those that the other lacks are marked.

    Words and single signs are compared; joined, the parts are the texts.
    """
    words = WORDS.findall(before), WORDS.findall(after)
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    parts: tuple[list[Part], list[Part]] = [], []
    for kind, *ends in matcher.get_opcodes():
        for own, side, start, end in zip(parts, words, ends[::2], ends[1::2], strict=True):
            if text := "".join(side[start:end]):
                own.append(Part(text, differs=kind != "equal"))
    return parts
