"""The texts that changed most between a system and the baseline, with their differences marked."""

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.comparison.outputs import TASKS
from experiments.comparison.systems import System
from experiments.display.web_page import shortened
from experiments.measures.significance import ROUNDING
from transformer.metrics.registry import find

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


def find_changes(task: str, systems: Sequence[System]) -> list[Changes]:
    """Returns the changes of each system but the baseline, which is the first."""
    baseline = systems[0]
    metric = find(TASKS[task].changes, task)
    sign = 1 if metric.higher_is_better else -1
    before, found = _text_scores(task, baseline), []
    for system in systems[1:]:
        gained = sign * (_text_scores(task, system) - before)
        order = np.argsort(-gained, kind="stable")
        better = [int(i) for i in order[:SHOWN] if gained[i] > ROUNDING]
        worse = [int(i) for i in order[::-1][:SHOWN] if gained[i] < -ROUNDING]

        def change(i: int, system: System = system, gained: np.ndarray = gained) -> Change:
            amount = format(sign * gained[i] * metric.scale, f"+{metric.format}")
            lines = _lines(baseline, system, i)
            return Change(i + 1, f"{amount} {metric.title}", lines)

        found.append(Changes(system.name, [*map(change, better)], [*map(change, worse)]))
    return found


def _text_scores(task: str, system: System) -> Float[np.ndarray, "N"]:
    """The score of each text, the mean over a system's runs."""
    measure = next(m for m in TASKS[task].measures if m.name == TASKS[task].changes)
    counts = [run.outputs.counts[measure.name] for run in system.runs]
    return np.mean([measure.of_sums(own) for own in counts], 0)


def _lines(baseline: System, system: System, i: int) -> list[Line]:
    """The inputs of all runs for a text, and the outputs of runs of both systems, in pairs."""
    given = baseline.runs[0].outputs.shown.items()
    lines = [
        Line(name, [Part(shortened(texts[i], MAX_LENGTH), differs=False)]) for name, texts in given
    ]
    pairs = list(zip(baseline.runs, system.runs, strict=False))[:MAX_RUNS]
    for theirs, ours in pairs:
        texts = [shortened(run.outputs.texts[i], MAX_LENGTH) for run in (theirs, ours)]
        for side, run, parts in zip((baseline, system), (theirs, ours), mark(*texts), strict=True):
            name = side.name
            if len(side.runs) > 1:
                own = run.folder.name
                name = own if own.startswith(side.name) else f"{side.name}, {own}"
            lines.append(Line(name, parts))
    return lines


def mark(before: str, after: str) -> tuple[list[Part], list[Part]]:
    """Returns the parts of two texts, of which those that the other lacks are marked.

    Words and single signs are compared; joined, the parts are the texts.
    """
    words = WORDS.findall(before), WORDS.findall(after)
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    parts: tuple[list[Part], list[Part]] = [], []
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        for own, side, (first, last) in zip(
            parts, words, ((start, end), (other_start, other_end)), strict=True
        ):
            if text := "".join(side[first:last]):
                own.append(Part(text, differs=kind != "equal"))
    return parts
