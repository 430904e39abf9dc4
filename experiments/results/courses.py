"""The validation scores of a comparison's runs over the time of their training."""

import contextlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from transformer.data import held_out
from transformer.data.corpora import parts_of
from transformer.errors import UserError
from transformer.metrics.registry import Metric
from transformer.runs import workdir
from transformer.runs.json_files import read_run
from ..display.plotting import WIDTH, light_grid, new_figure
from ..display.training_curves import read_curves
from .figures import DOTTED, system_colour, system_label
from .systems import System
from .table import NONE, Table, mean_text, title_of
from .tasks import TaskMeasures

LEVELS_EXAMPLE = "--levels=38,40"
ABOUT_MINUTES = (
    "Minutes of training include compilation and evaluations. A level is reached at the first "
    "evaluation during training that has it, before checkpoints are averaged."
)


class Course(NamedTuple):
    """A run's evaluations on the validation text during training, in their order."""

    steps: list[float]  # after which each came
    minutes: list[float]  # since the start of the training
    scores: list[float]  # in the unit in which the metric is shown

    def best(self, metric: Metric) -> float:
        """Returns the best score."""
        return (max if metric.higher_is_better else min)(self.scores)


class Training(NamedTuple):
    """How the systems of a comparison were trained: a list of courses for each."""

    metric: Metric
    courses: list[list[Course]]
    levels: list[float]


def parse_levels(text: str | None) -> list[float]:
    """Returns the scores between the commas of `--levels`."""
    levels = []
    for part in filter(None, (text or "").split(",")):
        with contextlib.suppress(ValueError):
            levels.append(float(part))
            if math.isfinite(levels[-1]):
                continue
        raise UserError(f"--levels={text}: {part!r} is not a score: give numbers, {LEVELS_EXAMPLE}")
    return levels


def read_training(
    measures: TaskMeasures, systems: Sequence[System], names: Sequence[str], levels: Sequence[float]
) -> tuple[Training | None, list[str]]:
    """Returns how the systems were trained, and notes: if that is None, on why.

    Args:
      names: of the measures in which the systems are compared, the main one first.
      levels: scores, as the metric is shown; by default the one that all runs reach.
    """

    def none(reason: str) -> tuple[None, list[str]]:
        return None, [f"No scores during training are compared: {reason}."]

    metric = next((measures.metric(name) for name in names if name in measures.curves), None)
    if metric is None:
        return none("the tokens of the systems differ")
    folders = [run.folder for system in systems for run in system.runs]
    settings = _evaluation_settings(folders[0])
    for folder in folders[1:]:
        if _evaluation_settings(folder) != settings:
            return none(f"{folders[0]} and {folder} had other texts or another search")
    courses = [[_read_course(run.folder, metric) for run in system.runs] for system in systems]
    every = list(itertools.chain(*courses))
    for folder, course in zip(folders, every, strict=True):
        if not course.scores:
            return none(f"{folder} has no evaluations with their times")
    # The worst of the best scores, rounded to what all runs do reach.
    worst = (min if metric.higher_is_better else max)(course.best(metric) for course in every)
    shared = (math.floor if metric.higher_is_better else math.ceil)(10 * worst) / 10
    notes = [ABOUT_MINUTES]
    machines = {_machine(folder) for folder in folders}
    if len(machines) > 1:
        notes.append(f"The minutes are of different machines: {'; '.join(sorted(machines))}.")
    return Training(metric, courses, list(levels) or [shared]), notes


def training_table(systems: Sequence[System], training: Training) -> Table:
    """Returns the steps, minutes and best score of each system, and the minutes to each level."""
    metric, rows = training.metric, []
    sign = 1 if metric.higher_is_better else -1
    for system, courses in zip(systems, training.courses, strict=True):
        row = [
            mean_text([course.steps[-1] for course in courses], ",.0f"),
            mean_text([course.minutes[-1] for course in courses], ",.1f"),
            mean_text([course.best(metric) for course in courses], metric.format),
        ]
        for level in training.levels:
            minutes = []  # of the runs that reached it
            for course in courses:
                at = zip(course.minutes, course.scores, strict=True)
                reached = (minute for minute, score in at if sign * (score - level) >= 0)
                minutes += itertools.islice(reached, 1)
            text = mean_text(minutes, ",.1f") if minutes else NONE
            if 0 < len(minutes) < len(courses):
                count = f"({len(minutes)} of {len(courses)} seeds)"
                text = f"{text.partition(' ±')[0]} {count}"
            row.append(text)
        rows.append([system.name, str(len(courses)), *row])
    title = title_of(metric)
    head = ["system", "seeds", "steps", "minutes", f"best validation {title}"]
    head += [f"minutes to {level:g}" for level in training.levels]
    return Table(f"Validation {title} during training", head, rows)


def draw_training(systems: Sequence[System], training: Training) -> Figure:
    """Returns a figure of each run's validation score over the minutes of its training."""
    figure = new_figure(WIDTH, 3.2)
    axes = figure.subplots()
    for n, (system, courses) in enumerate(zip(systems, training.courses, strict=True)):
        for i, course in enumerate(courses):
            label = system_label(system, n) if i == 0 else None
            look = {"color": system_colour(n), "linewidth": 1}
            axes.plot(course.minutes, course.scores, label=label, **look)
    for level in training.levels:
        axes.axhline(level, color="#000000", **DOTTED)
    axes.set_xlim(left=0)
    axes.set_xlabel("minutes of training")
    axes.set_ylabel(f"validation {title_of(training.metric)}")
    light_grid(axes)
    for text in axes.legend(frameon=False, fontsize=8).get_texts():
        text.set_parse_math(False)
    return figure


def _evaluation_settings(folder: Path) -> tuple[Any, ...]:
    """The settings of the scores during training besides the model: the texts and the search."""
    config = workdir.load_config(folder)
    parts = parts_of(config.data, "validation")
    texts = [held_out.digests_of(folder, part) for part in parts]
    beam_size = config.evaluate.training_beam_size
    limits = config.decode.max_ratio, config.decode.max_extra
    penalty = (config.decode.length_penalty, config.decode.alpha) if beam_size > 1 else ()
    return texts, config.evaluate.max_sentences, beam_size, *limits, *penalty


def _read_course(folder: Path, metric: Metric) -> Course:
    """The evaluations of a run that have a score and a time."""
    try:
        curves = read_curves(folder / "metrics.jsonl", (metric.name, "seconds"))
    except ValueError:
        return Course([], [], [])
    split = next((own for name, own in curves if name == metric.name and own != "train"), "")
    steps, scores = curves.get((metric.name, split), ([], []))
    seconds = dict(zip(*curves.get(("seconds", split), ([], [])), strict=True))
    points = [
        (step, seconds[step] / 60, score * metric.scale)
        for step, score in zip(steps, scores, strict=True)
        if math.isfinite(score) and math.isfinite(seconds.get(step, math.nan))
    ]
    return Course(*map(list, zip(*points, strict=True))) if points else Course([], [], [])


def _machine(folder: Path) -> str:
    machine = read_run(folder).get("environment")
    if machine is None:
        return "unknown"
    devices = f"{machine['devices']['count']} x {machine['devices']['kind']}"
    return f"{machine['processor']}, {machine['cores']} cores, {devices}"
