"""The use of the library; `experiments.train(config, workdir)` trains a run from Python."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.command.training import train

__all__ = ["train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("experiments.command.training"), name)
