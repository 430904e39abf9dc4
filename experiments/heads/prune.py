"""The `prune` mode: writes a run with fewer heads in each attention.

The heads that remain are those whose ablation increases the loss most (`loss`), those with the
largest gradients (`importance`), or random ones (`random`, the control).

Source: Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?", section 4.
"""

import dataclasses
import itertools
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.bridges.formats import BUNDLE, CHOICE
from transformer.config import assign
from transformer.data.held_out import HELD_OUT_FOLDER
from transformer.errors import UserError
from transformer.files import partial_folder
from transformer.inference.interventions import places, select
from transformer.model.classifier import Classifier
from transformer.model.config import ModelConfig, check_choice, check_range
from transformer.model.positions.registry import acts_in, split_names, used_encodings
from transformer.runs.run import Run, RunProgress, TrainedRun
from transformer.runs.weights import Weights
from transformer.training.progress import line_progress
from ..process.modes import Options
from .effects import HEADS, measure_effects, open_task, work

RANKINGS = ("loss", "importance", "random")
OF_HEADS = {"query", "key", "value", "output", "head_gate"}  # linear maps of an attention


def prune(run: Run, options: Options) -> list[Path]:
    """Writes a run with `--heads` heads in each attention to the new folder `--output`."""
    if not (options.output and options.heads):
        raise UserError("--mode=prune needs --heads, and --output, the folder of the new run")
    check_choice("--ranking", ranking := options.ranking or "loss", RANKINGS)
    trained, task = open_task(run, options)
    model: Any = trained.predictor.model
    check_range("--heads", options.heads, 1, model.config.num_heads)
    check(model.config)
    named, names = places(model), select([HEADS], model)
    if ranking == "random":
        values = np.random.default_rng(run.config.seed).random(len(names)).tolist()
    else:
        with line_progress(work(task, len(names)), hidden=False, what="text") as advance:
            effects = measure_effects(task, trained.variables, names, "zero", advance)
        values = effects.column(ranking)
    removed, ranked = [], zip(values, names, strict=True)
    for _, heads in itertools.groupby(ranked, lambda each: named[each[1]][:2]):
        removed += [name for _, name in sorted(heads, reverse=True)[options.heads :]]
    return [write_pruned(run, trained, removed, Path(options.output))]


def write_pruned(run: Run, trained: TrainedRun[Any], removed: Iterable[str], output: Path) -> Path:
    """Writes a run without some heads to a new folder, and returns the folder.

    Args:
      removed: names of the outputs of heads (see `inference.interventions`), the same number in
        each attention.
    """
    if os.path.lexists(output):
        raise UserError(f"{output} is there already: name a new folder")
    model = trained.predictor.model
    named, gone = places(model), {*removed}
    remaining: dict[Any, list[int]] = {}
    for name, (key, layer, head) in named.items():
        if head is not None and name.endswith(".output"):
            heads = remaining.setdefault((*key[:2], layer), [])
            heads += [] if name in gone else [head]
    counts = {len(heads) for heads in remaining.values()}
    if len(counts) > 1 or 0 in counts:
        raise UserError("each attention must have the same number of heads, and at least one")
    check(model.config)
    config = run.config.copy_and_resolve_references()
    assign(config, "model.num_heads", counts.pop())
    assign(config, "model.head_size", model.config.head_width)
    params = trained.variables["params"]
    if isinstance(model, Classifier):
        params = {**params, "encoder": without_heads(params["encoder"], remaining, model.config)}
    else:
        params = without_heads(params, remaining, model.config)
    with partial_folder(output) as place:
        Run(place, config).claim()
        for pattern in {*BUNDLE} - {"config.json", "variants.json", "results.json", CHOICE}:
            for path in run.folder.glob(pattern):
                shutil.copy(path, place)
        if (run.folder / HELD_OUT_FOLDER).is_dir():
            shutil.copytree(run.folder / HELD_OUT_FOLDER, place / HELD_OUT_FOLDER)
        progress = dataclasses.asdict(RunProgress(trained.predictor.fingerprint()))
        Weights(place, config).store(params, progress)
        place.rename(output)
    return output


def check(config: ModelConfig) -> None:
    """Raises UserError if heads of the model share parameters, or depend on their number."""
    names = [name for each in used_encodings(config).values() for name in split_names(each)]
    shared = {
        "model.talking_heads=True": config.talking_heads,
        f"model.num_kv_heads={config.num_kv_heads}": config.key_value_heads != config.num_heads,
        **{f"the encoding '{name}'": acts_in(name, ["bias"]) for name in names},
    }
    if reasons := [reason for reason, is_there in shared.items() if is_there]:
        raise UserError(f"heads cannot be removed from a model with {reasons[0]}")


def without_heads(
    params: Mapping[str, Any],
    remaining: Mapping[tuple[str, str, int], Sequence[int]],
    config: ModelConfig,
) -> dict[str, Any]:
    """Returns the parameters of a Transformer with the remaining heads of each attention alone.

    Args:
      remaining: (stack, module, layer) -> heads; layers and heads are counted from zero.
    """
    pruned = {**params}
    for (stack, module, layer), heads in remaining.items():
        name = stack if config.scan_layers else f"{stack}_{layer}"
        of_layers = [h for (*names, _), h in remaining.items() if names == [stack, module]]
        by_layer = of_layers if config.scan_layers and not config.share_layers else heads
        layers = {**params[name], **pruned[name]}
        pruned[name] = {**layers, module: _slice(params[name][module], by_layer, config)}
    return pruned


def _slice(params: Mapping[str, Any], heads: Any, config: ModelConfig) -> dict[str, Any]:
    """Returns the parameters of an attention module with these heads alone.

    Args:
      heads: the indices of heads [h], or for stacked layers [layers, h].
    """
    index, width = np.asarray(heads), config.head_width
    dimensions = (index[..., None] * width + np.arange(width)).reshape(*index.shape[:-1], -1)

    def take(array: Any, at: Any, axis: int) -> Any:
        others = [1] * (np.ndim(array) - index.ndim + 1)  # of one layer
        others[axis] = -1
        return np.take_along_axis(np.asarray(array), at.reshape(*index.shape[:-1], *others), axis)

    pruned = {**params, **({"sink": take(params["sink"], index, -1)} if "sink" in params else {})}
    for name in OF_HEADS & params.keys():
        at, linear = index if name == "head_gate" else dimensions, params[name]
        axes = {"kernel": -2} if name == "output" else {"kernel": -1, "bias": -1}
        parts = {part: take(linear[part], at, axes[part]) for part in axes.keys() & linear.keys()}
        pruned[name] = {**linear, **parts}
    return pruned
