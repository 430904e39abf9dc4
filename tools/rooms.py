"""The rooms of the code: their lines, and what each part of it may import."""

from typing import NamedTuple


class Room(NamedTuple):
    """A part of the code, with the lines that are its goal and those that lint allows."""

    paths: str  # separated by blanks; the longest that fits a file is its own
    budget: int
    limit: int


ROOMS = {
    "model": Room("transformer/model transformer/losses.py transformer/products.py", 4_600, 4_600),
    "data": Room("transformer/data", 6_600, 6_960),
    "training": Room(
        "transformer/optim transformer/devices transformer/finetuning transformer/train.py "
        "transformer/train_step.py transformer/run.py "
        "transformer/progress.py transformer/signals.py",
        2_700,
        2_400,
    ),
    "tasks": Room("transformer/tasks", 1_900, 1_950),
    "inference": Room("transformer/inference transformer/decoding", 2_700, 2_670),
    "runs": Room(
        "transformer/runs transformer/files.py transformer/variants.py",
        1_500,
        2_320,
    ),
    "metrics": Room("transformer/metrics transformer/analysis", 1_200, 1_250),
    "config": Room("transformer", 600, 600),
    "command": Room("experiments experiments/command", 1_600, 1_930),
    "results": Room(
        "experiments/sweep experiments/results experiments/compare experiments/evaluate "
        "experiments/report",
        4_300,
        5_045,
    ),
    "pictures": Room(
        "experiments/attention experiments/heads experiments/positions experiments/embeddings "
        "experiments/display",
        3_400,
        3_400,
    ),
    "services": Room(
        "experiments/tasks experiments/serving experiments/fetch.py experiments/benchmark "
        "experiments/planning",
        4_200,
        4_330,
    ),
    "studies": Room("studies", 900, 440),
}

# What a part may import of ours besides itself; the longest name that fits a module is its part.
# Within these bounds no two folders import one another, see `circles`.
BASE = ("transformer.errors", "transformer.files", "transformer.variants")
ALLOWED = {
    "transformer": (),
    "transformer.files": ("transformer.errors",),
    "transformer.variants": ("transformer.errors", "transformer.files"),
    "transformer.runs": (
        *BASE,
        "configs",
        "transformer.analysis",
        "transformer.config",
        "transformer.data",
        "transformer.inference",
        "transformer.keys",
        "transformer.metrics",
        "transformer.model.parameters",
        "transformer.tasks",
    ),
    "transformer.products": (),
    "transformer.model": (*BASE, "transformer.products"),
    "transformer.model.config": BASE,  # and no registry, so that every part of a model can read it
    "transformer.data": BASE,
    "transformer.losses": ("transformer.products",),
    "transformer.decoding": BASE,
    "transformer.optim": BASE,
    "transformer.metrics": ("transformer.losses",),
    "transformer.progress": ("transformer.metrics.registry",),
    "transformer.analysis": BASE,
    "transformer.train_step": (
        *BASE,
        "transformer.losses",
        "transformer.metrics",
        "transformer.model.parameters",
        "transformer.optim",
    ),
    "transformer.inference": (
        *BASE,
        "transformer.analysis",
        "transformer.data",
        "transformer.decoding",
        "transformer.losses",
        "transformer.model",
    ),
    "transformer.tasks": (
        *BASE,
        "transformer.analysis",
        "transformer.data",
        "transformer.decoding",
        "transformer.inference",
        "transformer.losses",
        "transformer.metrics",
        "transformer.model",
    ),
    # The run that another one starts from is opened as by every mode.
    "transformer.finetuning": (
        *BASE,
        "transformer.keys",
        "transformer.config",
        "transformer.inference",
        "transformer.model.parameters",
        "transformer.runs",
        "transformer.tasks",
    ),
    "transformer.run": (
        *BASE,
        "transformer.analysis.snapshots",
        "transformer.finetuning",
        "transformer.metrics",
        "transformer.model.parameters",
        "transformer.model.stack",
        "transformer.optim",
        "transformer.runs",
        "transformer.tasks",
        "transformer.train_step",
    ),
    "transformer.devices.placement": (
        "transformer.data.plan",
        "transformer.losses",
        "transformer.devices.programs",
        "transformer.tasks.base",
        "transformer.train_step",
    ),
    "transformer.devices.programs": ("transformer.signals",),
    "transformer.train": (
        *BASE,
        "transformer.data.plan",
        "transformer.metrics",
        "transformer.devices.placement",
        "transformer.devices.programs",
        "transformer.progress",
        "transformer.run",
        "transformer.signals",
        "transformer.tasks",
        "transformer.train_step",
    ),
    "transformer.keys": (*BASE, "configs", "transformer.model.config"),
    "transformer.config": (
        *BASE,
        "transformer.keys",
        "configs",
        "transformer.data",
        "transformer.decoding",
        "transformer.metrics",
        "transformer.model",
        "transformer.optim",
        "transformer.tasks",
    ),
    "experiments": ("transformer", "configs"),
    "studies": ("experiments", "transformer", "configs"),
    "launch": ("experiments.command.main",),
    "configs": (),
}

# Modules apart from their one importer that are no doors, and why.
AT_HOME = {
    "experiments.command.main": "the command of the installed package, with what it runs",
    "transformer.metrics.text": "the scores of texts lie with the other metrics",
    "transformer.decoding.sampling": "sampling and search know no model and lie in one folder",
    "transformer.model.recurrent.model": "a door; `build` also checks names behind it",
}
# Messages of the library that have a whole command to type and its flags, or flags to paste into
# it: how many. All others name arguments and keys, since Python and a server have no flags.
COMMANDS = {
    "transformer/data/files/locate.py": 2,
    "transformer/data/files/table.py": 1,
    "transformer/data/parallel/encode.py": 1,
    "transformer/variants.py": 1,
    "transformer/runs/trials.py": 1,
}
