"""The trials of a sweep, each a complete config, checked before any of them trains."""

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments import recipe
from transformer.config import (
    check,
    check_model,
    check_scores,
    check_start,
    check_text,
    model_config,
)
from transformer.errors import UserError
from transformer.finetuning.source import check_source
from transformer.keys import assign, flatten, value_of
from transformer.model.build import build_model
from transformer.model.layers import DropoutRates
from transformer.tasks.classification import make_network
from transformer.tasks.translation import check_vocabularies

# What a compiled training step takes as arguments, so that it may differ between runs.
NUMBERS = (
    "seed",
    "optimizer.learning_rate",
    "optimizer.warmup_steps",
    "optimizer.decay_fraction",
    "optimizer.weight_decay",
    "train.label_smoothing",
)
# Numbers for which zero compiles to a different step.
RATES = (
    "train.ema_decay",
    "train.r_drop",
    *(f"model.dropout_{name}" for name in DropoutRates._fields),
)
# By task, keys that the signatures of all its scores contain.
SIGNED = {
    "translation": ("evaluate.sacrebleu_tokenizer",),
    "language_model": ("data.context", "data.documents"),
    "classification": ("data.max_tokens",),
}


@dataclasses.dataclass(frozen=True)
class PlannedTrial:
    """A trial: its number from zero, what it sets, its whole config and its run's folder."""

    number: int
    values: dict[str, Any]
    config: ConfigDict
    folder: Path

    @property
    def name(self) -> str:
        """What people call it."""
        return f"trial {self.number} ({describe(self.values)})"


def describe(values: Mapping[str, Any]) -> str:
    """Returns settings as text, each under the last part of its key."""
    return ", ".join(f"{key.split('.')[-1]}={value}" for key, value in values.items())


def plan_trials(config: ConfigDict, trials: Iterable[object], folder: Path) -> list[PlannedTrial]:
    """Returns the trials of a sweep, checked.

    Args:
      config: what all trials start from.
      trials: dotted keys and their values, for each trial.
      folder: the sweep's.

    Raises:
      UserError: there is no trial, one sets a key that is not there or a value that cannot be, or
        two are the same (each is named by its number); or their scores would not be comparable.
    """
    planned: list[PlannedTrial] = []
    seen: dict[str, int] = {}
    for number, values in enumerate(trials):
        trial = plan_trial(config, values, number, folder)
        text = json.dumps(flatten(trial.config), sort_keys=True)
        if text in seen:
            raise UserError(
                f"trial {number} of the sweep is the same as trial {seen[text]} "
                f"({describe(trial.values)}): leave one out"
            )
        seen[text] = number
        planned.append(trial)
    if not planned:
        raise UserError("the sweep has no trials: its sweep() yields nothing")
    for key in SIGNED.get(config.task, ()):
        check_signed(config.task, key, [value_of(trial.config, key) for trial in planned])
    return planned


def check_signed(task: str, key: str, values: Sequence[object]) -> None:
    """Checks that scores of trials with these values of a key are comparable.

    Raises:
      UserError: they would have different signatures, and nothing to compare after the training.
    """
    other = next((value for value in values if value != values[0]), None)
    if key in SIGNED.get(task, ()) and other is not None:
        raise UserError(
            f"config.{key} cannot differ ({values[0]} and {other}): it is part of the signature "
            "of all scores, which would not be comparable; make a sweep of each value"
        )


def set_key(config: ConfigDict, key: str, value: object) -> None:
    """Sets a key of a trial.

    Raises:
      UserError: there is no such key, a trial cannot set it, or the value is of another type.
    """
    if key.startswith("sweep."):
        raise UserError(f"config.{key} is the sweep's own: a trial cannot set it")
    if key == "task":
        raise UserError("config.task cannot differ: scores of different tasks are not comparable")
    assign(config, key, value)


def plan_trial(config: ConfigDict, values: object, number: int, folder: Path) -> PlannedTrial:
    """Returns one trial, checked, of what a config file says that it sets.

    Raises:
      UserError: see `plan_trials`.
    """
    try:
        if not isinstance(values, Mapping):
            raise UserError(f"{values!r} is not a dict of dotted keys and values")
        own = ConfigDict(config.to_dict())
        for key, value in values.items():
            set_key(own, key, value)
        recipe.apply(own, values)
        own.sweep.storage = ""  # it may hold a password, and says nothing of the run
        check(own)
        check_model(own)
        check_start(own)
        check_scores(own)
        check_text(own)
        if own.task == "translation":
            check_vocabularies(own, own.tokenizer.joint)
        check_source(own, trial_folder(folder, number))
    except UserError as error:
        raise UserError(f"trial {number} of the sweep: {error}") from None
    return PlannedTrial(number, dict(values), own.lock(), trial_folder(folder, number))


def trial_folder(folder: Path, number: int) -> Path:
    """Returns the folder of a trial's run within the sweep's."""
    return folder / "trials" / f"{number:03d}"


def at_number(trial: PlannedTrial, number: int) -> PlannedTrial:
    """Returns the trial under another number."""
    folder = trial_folder(trial.folder.parents[1], number)
    return dataclasses.replace(trial, number=number, folder=folder)


def state_bytes(config: ConfigDict) -> int:
    """Returns the bytes of a run's parameters, their gradient and averages, at most.

    The vocabulary may turn out smaller than `tokenizer.vocab_size`, and of a classifier's classes
    two are counted.
    """
    tokens, mask = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool)
    if config.task == "classification":
        init = make_network(config, config.tokenizer.vocab_size, 2).init
    else:
        model = build_model(model_config(config))
        init = functools.partial(model.init, method=_forward)
    shapes = jax.eval_shape(init, jax.random.key(0), tokens, mask)
    # And Adam's two, and the sum of the gradients of an update's batches.
    copies = 4 + bool(config.train.ema_decay) + (config.optimizer.gradient_accumulation_steps > 1)
    return copies * sum(4 * math.prod(x.shape) for x in jax.tree.leaves(shapes))


def _forward(model: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """Uses every part that the model has."""
    memory = model.encode(tokens, mask) if model.config.has_encoder else None
    return model.logits(model.decode(tokens, memory, mask, mask))


def structure(config: ConfigDict) -> str:
    """Returns what must be equal for two runs to share one compiled program, as text."""
    flat = {key: value for key, value in flatten(config).items() if key not in NUMBERS}
    flat |= {key: bool(flat[key]) for key in RATES}
    del flat["name"]
    return json.dumps(flat, sort_keys=True)


def is_vmapped(settings: ConfigDict, models: Iterable[ConfigDict], on_accelerator: bool) -> bool:
    """Returns whether runs of one structure are trained as one vmapped program.

    Pruning compares a run with those before it, so they come in turn. JAX cannot vmap cuDNN's
    attention over lengths that all runs share.

    Args:
      settings: `config.sweep`.
      models: `config.model` of the trials that are known.

    Raises:
      UserError: `sweep.parallel` asks for it, and a model cannot be vmapped.
    """
    flash = any(model.attention_implementation == "flash" for model in models)
    if flash and settings.parallel == "vmap":
        raise UserError(
            "config.sweep.parallel='vmap' has no model.attention_implementation='flash': set "
            "config.sweep.parallel=sequential, or config.model.attention_implementation=chunked"
        )
    asked = settings.parallel == "vmap" or (settings.parallel == "auto" and on_accelerator)
    return asked and not settings.prune and not flash


def group_trials(trials: Sequence[PlannedTrial], largest: int) -> list[list[PlannedTrial]]:
    """Returns the trials in groups of one structure, of at most `largest` trials."""
    groups: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        groups.setdefault(structure(trial.config), []).append(trial)
    return [
        group[start : start + largest]
        for group in groups.values()
        for start in range(0, len(group), largest)
    ]
