"""Rooms (areas of the codebase) with line limits, and the imports allowed in each part."""

from typing import NamedTuple


class Room(NamedTuple):
    """A part of the codebase with a target line count (`budget`) and a limit that lint enforces."""

    paths: str  # separated by spaces; a file belongs to the longest matching path
    budget: int
    limit: int


ROOMS = {
    "model": Room("transformer/model", 4_600, 4_320),
    "data": Room("transformer/data", 6_600, 9_610),
    "training": Room(
        "transformer/optim transformer/training transformer/mesh.py transformer/signals.py",
        2_700,
        2_491,
    ),
    "tasks": Room("transformer/tasks", 1_900, 2_287),
    "inference": Room("transformer/inference transformer/decoding", 2_700, 4_014),
    "operations": Room("transformer/operations.py", 700, 399),
    "runs": Room(
        "transformer/runs transformer/files.py transformer/variants.py",
        1_500,
        2_172,
    ),
    "bridges": Room("transformer/bridges", 1_500, 1_472),
    "metrics": Room("transformer/metrics transformer/analysis", 1_200, 1_215),
    "config": Room("transformer", 600, 816),
    "command": Room("experiments experiments/command experiments/process", 1_600, 1_837),
    "results": Room(
        "experiments/sweep experiments/results experiments/evaluate",
        4_300,
        4_084,
    ),
    "pictures": Room(
        "experiments/attention experiments/heads experiments/positions experiments/display",
        3_400,
        3_168,
    ),
    "services": Room(
        "experiments/modes experiments/serve experiments/benchmark",
        4_200,
        3_800,
    ),
    "studies": Room("studies", 900, 139),
}

# The core, for readers of the paper: it imports only itself, CORE_OURS and CORE_LIBRARIES.
CORE = (
    "transformer.data.batches",
    "transformer.data.buckets",
    "transformer.decoding",
    "transformer.model",
    "transformer.optim",
    "transformer.training.step",
)
# Variants that are not in the paper; `build` registers them.
OUTSIDE = tuple(
    f"transformer.model.{name}" for name in ("build", "classifier", "recurrent", "vision")
)
CORE_OURS = ("transformer.errors", "transformer.variants")
CORE_LIBRARIES = {"jax", "flax", "optax", "numpy", "jaxtyping"}

# Modules of this repository that each part may import, besides its own modules. A module belongs to
# the part with the longest matching name. Folders must not import each other; see `circles`.
BASE = ("transformer.errors", "transformer.files", "transformer.variants")
ALLOWED = {
    "transformer": (),
    "transformer.files": ("transformer.errors",),
    "transformer.variants": ("transformer.errors", "transformer.files"),
    "transformer.runs": (
        *BASE,
        "transformer.analysis",
        "transformer.bridges",
        "transformer.checks",
        "transformer.config",
        "transformer.data",
        "transformer.inference",
        "transformer.metrics",
        "transformer.operations",
        "transformer.optim.parameters",
        "transformer.tasks",
    ),
    "transformer.operations": (*BASE, "transformer.data", "transformer.inference"),
    "transformer.model": BASE,
    "transformer.model.matmul": (),
    "transformer.model.config": BASE,  # no registry, so that every part of a model can import it
    "transformer.data": (*BASE, "transformer.config", "transformer.model.vision.inputs"),
    "transformer.mesh": ("transformer.errors",),
    "transformer.model.losses": ("transformer.model.matmul",),
    "transformer.decoding": BASE,
    "transformer.optim": (*BASE, "transformer.model.config"),
    "transformer.bridges": (
        *BASE,
        "transformer.data",
        "transformer.inference",
        "transformer.metrics",
        "transformer.model",
        "transformer.optim.parameters",
    ),
    "transformer.metrics": ("transformer.model.losses",),
    "transformer.training.progress": ("transformer.metrics.registry",),
    "transformer.analysis": BASE,
    "transformer.training.step": (
        *BASE,
        "transformer.model.losses",
        "transformer.optim",
    ),
    "transformer.inference": (
        *BASE,
        "transformer.analysis",
        "transformer.data",
        "transformer.decoding",
        "transformer.model.losses",
        "transformer.model",
    ),
    "transformer.tasks": (
        *BASE,
        "transformer.analysis",
        "transformer.data",
        "transformer.decoding",
        "transformer.inference",
        "transformer.model.losses",
        "transformer.metrics",
        "transformer.model",
    ),
    "transformer.training": (
        *BASE,
        "transformer.analysis.snapshots",
        "transformer.config",
        "transformer.data.buckets",
        "transformer.data.files.text",
        "transformer.inference",
        "transformer.metrics",
        "transformer.model.classifier",
        "transformer.model.losses",
        "transformer.optim.parameters",
        "transformer.model.stack",
        "transformer.optim",
        "transformer.runs",
        "transformer.signals",
        "transformer.tasks",
    ),
    "transformer.training.placement": (
        "transformer.errors",
        "transformer.model.losses",
        "transformer.data.buckets",
        "transformer.mesh",
        "transformer.tasks.base",
        "transformer.training.programs",
        "transformer.training.step",
    ),
    "transformer.training.programs": ("transformer.signals",),
    "transformer.config": (*BASE, "transformer.model.config", "transformer.optim"),
    "transformer.checks": (
        *BASE,
        "transformer.config",
        "transformer.data",
        "transformer.decoding",
        "transformer.mesh",
        "transformer.metrics",
        "transformer.model",
        "transformer.optim",
        "transformer.tasks",
    ),
    "experiments": ("transformer",),
    "studies": ("experiments", "transformer", "configs"),
    "launch": ("experiments.command.main",),
    "configs": ("transformer.config",),
}

# Exceptions to `structure.strangers`, with the reason for each.
AT_HOME = {
    "experiments.command.main": "the command of the installed package, with what it runs",
    "experiments.attention.class_figures": "the maps of attention pooling, with its figures",
    "transformer.metrics.text": "the scores of texts lie with the other metrics",
    "transformer.decoding.sampling": "sampling and search know no model and lie in one folder",
    "transformer.inference.pictures": "the classifiers of texts and of pictures lie in one folder",
    "transformer.model.recurrent.model": "a door; `build` also checks names behind it",
}
# The number of library messages that contain a complete command, or flags to paste into one. All
# other messages name arguments and keys, since Python users and the server have no flags.
COMMANDS = {
    "transformer/data/files/locate.py": 1,
    "transformer/data/labelled.py": 1,
    "transformer/variants.py": 1,
}
