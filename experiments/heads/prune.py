"""The `prune` mode: writes a run with fewer heads in each attention.

The heads that remain are those whose ablation increases the loss most (`loss`), those with the
largest gradients (`importance`), or random ones (`random`, the control).
"""

from pathlib import Path
from typing import Any

import numpy as np

from transformer.errors import UserError
from transformer.inference import interventions
from transformer.model.config import check_choice, check_range
from transformer.runs.pruned import check
from transformer.runs.pruned import prune as prune_run
from transformer.runs.run import Run
from transformer.training.progress import line_progress
from ..process.modes import Options
from .effects import HEADS, measure_effects, open_task, work

RANKINGS = ("loss", "importance", "random")


def prune(run: Run, options: Options) -> list[Path]:
    """Writes a run with `--heads` heads in each attention to the new folder `--output`."""
    if not (options.output and options.heads):
        raise UserError("--mode=prune needs --heads, and --output, the folder of the new run")
    check_choice("--ranking", ranking := options.ranking or "loss", RANKINGS)
    trained, task = open_task(run, options)
    model: Any = trained.predictor.model
    check_range("--heads", options.heads, 1, model.config.num_heads)
    check(model.config)
    named, names = interventions.places(model), interventions.select([HEADS], model)
    if ranking == "random":
        values = np.random.default_rng(run.config.seed).random(len(names)).tolist()
    else:
        with line_progress(work(task, len(names)), hidden=False, what="text") as advance:
            effects = measure_effects(task, trained.variables, names, "zero", advance)
        values = effects.column(ranking)
    by_attention: dict[Any, list[tuple[float, str]]] = {}
    for name, value in zip(names, values, strict=True):
        by_attention.setdefault(named[name][:2], []).append((value, name))
    ordered = [sorted(heads, reverse=True)[options.heads :] for heads in by_attention.values()]
    removed = [name for heads in ordered for _, name in heads]
    return [prune_run(run, trained, removed, Path(options.output))]
