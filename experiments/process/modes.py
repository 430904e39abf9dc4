"""The table of modes of `launch.py`: their functions, tasks and flags.

A mode is an entry here and its function. Functions are named and not imported, so that a misspelt
flag is reported before jax has started.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from transformer.errors import UserError

TRAIN, PLAN, CLEAN, EVALUATE = "train", "plan", "clean", "evaluate"
BENCHMARK = "benchmark"
READ_TEXT = (TRAIN, PLAN, CLEAN, BENCHMARK)  # modes that read the training text of their config
TAG_FLAG = "source_tag"
ATTENTION_FLAGS = ("sentence", "picture", "translation", TAG_FLAG, "hide_eos", "layer", "head")
LINE_FLAGS = ("input", "output")


class Mode(NamedTuple):
    """A mode.

    Attributes:
      function: dotted path from this package; {task} is the name of the task's module. It takes
        the run, and `Options` if the mode reads flags; it returns the files that it wrote, as it
        writes them, or None.
      help: a line for --help.
      flags: the fields of `Options` that it reads.
      operation: the operation that its tasks have; '' if it is for all tasks.
      log: the stream of log messages: "stderr" if answers go to stdout.
      workdir: whether it works on a run's folder; None if it takes neither folder nor config.
    """

    name: str
    function: str
    help: str
    flags: tuple[str, ...] = ()
    operation: str = ""
    log: str = "stderr"
    workdir: bool | None = True

    def fits(self, task: type[Any]) -> bool:
        """Returns whether a task of `transformer.tasks` has this mode."""
        return not self.operation or self.operation in task.operations

    def load(self, name: str) -> Callable:
        """Returns the function for the task `name`; UserError if it lacks this mode."""
        from transformer.tasks import REGISTRY  # imports jax

        if not self.fits(task := REGISTRY[name]):
            others = [mode.name for mode in MODES.values() if mode.fits(task)]
            others.remove(TRAIN)
            raise UserError(
                f"--mode={self.name} is not for config.task={name}: use {', '.join(others)}"
            )
        path = self.function.format(task=task.__module__.split(".")[-1])
        module, _, function = path.rpartition(".")
        return getattr(importlib.import_module(module, __package__), function)


TABLE = (
    Mode(
        TRAIN,
        "..command.command.train",
        "train a run or a sweep, or resume it",
        ("trial", "seeds", "processes", "linked_checkpoints"),
        log="stdout",
    ),
    Mode(
        PLAN,
        "..benchmark.plan.plan",
        "print the memory, disk and time that a training needs, and train nothing",
        ("output",),
        workdir=False,
    ),
    Mode(
        BENCHMARK,
        "..benchmark.benchmark.benchmark",
        "measure speed, memory and start of a training, and train nothing",
        ("output", "parts", "peers", "baseline", "trace"),
        workdir=False,
    ),
    Mode(
        "fetch",
        "..modes.fetch.fetch",
        "download the public corpus that config.data.fetch names",
        workdir=False,
    ),
    Mode(
        EVALUATE,
        "..evaluate.evaluate.evaluate",
        "score a run, or all runs of a sweep, on held-out or other text",
        ("input", "references", "name", TAG_FLAG),
        log="stdout",
    ),
    Mode(
        "compare",
        "..results.compare.compare_runs",
        "compare runs on one test set, with intervals and significance tests",
        ("runs", "set", "levels", "output"),
        workdir=None,
    ),
    Mode(
        CLEAN,
        "..modes.clean.clean",
        "write the pairs that cleaning keeps and drops, and train nothing",
        operation="translate",
    ),
    Mode(
        "attention",
        "..modes.{task}.attention",
        "draw the attention of all heads over a sentence",
        ATTENTION_FLAGS,
    ),
    Mode(
        "align",
        "..heads.alignment.align",
        "score cross-attention as word alignment",
        (*LINE_FLAGS, TAG_FLAG, "links"),
        "translate",
    ),
    Mode(
        "generate",
        "..modes.language_model.generate",
        "continue each line, or a prompt",
        (*LINE_FLAGS, "prompt"),
        "generate",
    ),
    Mode(
        "translate",
        "..modes.translation.translate",
        "translate each line",
        (*LINE_FLAGS, TAG_FLAG),
        "translate",
    ),
    Mode(
        "caption",
        "..modes.captioning.caption",
        "describe the picture that each line names",
        LINE_FLAGS,
        "caption",
    ),
    Mode(
        "score",
        "..modes.translation.score",
        "write the log-probability of each line",
        (*LINE_FLAGS, TAG_FLAG),
        "score",
    ),
    Mode(
        "classify",
        "..modes.classification.classify",
        "write the class of each line",
        LINE_FLAGS,
        "classify",
    ),
    Mode(
        "serve",
        "..serve.serve.serve",
        "serve a page to type into and a JSON API, of this run and others",
        ("host", "port", "also", "server_name"),
    ),
    Mode(
        "embeddings",
        "..positions.embeddings.embeddings",
        "draw maps of the token embeddings",
        ("token",),
    ),
    Mode(
        "export",
        "..modes.export.export",
        "write a run for other people or for other programs",
        ("format", "output"),
    ),
    Mode(
        "import",
        "..modes.export.import_model",
        "make a run of a Marian or OPUS-MT model of Hugging Face's transformers",
        LINE_FLAGS,
        workdir=None,
    ),
    Mode(
        "heads",
        "..heads.importance.heads",
        "rank the attention heads by importance",
        ("input", "references", TAG_FLAG),
    ),
    Mode("positions", "..positions.plots.positions", "draw positional encodings"),
    Mode("report", "..results.report_page.report", "write the report of a run again"),
)
MODES = {mode.name: mode for mode in TABLE}


def readers(flag: str) -> list[str]:
    """Returns the names of modes that read a flag."""
    return [mode.name for mode in MODES.values() if flag in mode.flags]


def show(task: Any, variables: Any, folder: Path) -> None:
    """Prints and draws outputs of a trained model, see `show` in each task's module."""
    name = type(task).__module__.split(".")[-1]
    module = importlib.import_module(f"..modes.{name}", __package__)
    module.show(task, variables, folder)
