"""A run's folder: the config that made it, and what a finished run left there."""

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.checkpoint import Checkpoints
from transformer.errors import UserError
from transformer.tasks.translation import fingerprint, load_tokenizers, make_translator
from transformer.tasks.translator import Translator
from transformer.train import write_json

# What may change when a run goes on: how long, how it is scored and where its text lies.
FREE_KEYS = (
    "name",
    "decode.",
    "evaluate.",
    "data.path",
    "data.cache_dir",
    "data.prefetch",
    "data.tfds_dir",
    "train.steps",
    "train.epochs",
    "train.minutes",
    "train.log_every",
    "train.keep_last",
    "train.patience",
)


def flatten(config: ConfigDict) -> dict[str, Any]:
    """Returns {dotted key: value}; tuples as lists, as JSON has them."""
    flat = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            flat |= {f"{name}.{key}": inner for key, inner in flatten(value).items()}
        else:
            flat[name] = list(value) if isinstance(value, tuple | list) else value
    return flat


def override(config: ConfigDict, key: str, text: str) -> None:
    """Sets a key to what the text says, in the type that the key has.

    Raises:
      UserError: there is no such key (the nearest is named), or the text is of another type.
    """
    flat = flatten(config)
    if key not in flat:
        near = difflib.get_close_matches(key, flat, 1, 0.5)
        # A name may be right and its group forgotten.
        near = [k for k in flat if k.split(".")[-1] == key.split(".")[-1]][:1] or near
        hint = f": did you mean config.{near[0]}?" if near else ": configs/base.py lists all keys"
        raise UserError(f"config.{key} is no key{hint}")
    value = flat[key]
    try:
        parsed = _parse(text, value)
    except ValueError:
        kind = "list" if isinstance(value, list) else type(value).__name__
        raise UserError(f"config.{key}={text!r} must be of type {kind}, as {value!r} is") from None
    *groups, name = key.split(".")
    for group in groups:
        config = config[group]
    config[name] = parsed


def _parse(text: str, like: Any) -> Any:
    if isinstance(like, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if isinstance(like, list):
        parts = [part.strip().strip("'\"") for part in text.strip("()[]").split(",")]
        return tuple(_parse(part, like[0]) for part in parts if part)
    return type(like)(text)


def claim(folder: Path, config: ConfigDict) -> None:
    """Makes the folder a run of this config, or checks that it is one.

    Raises:
      UserError: the folder holds a run of another config, whose differing keys are named.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    if path.exists():
        theirs, ours = flatten(load_config(folder)), flatten(config)
        differing = [
            f"{key} (there {theirs.get(key, 'absent')!r}, here {ours.get(key, 'absent')!r})"
            for key in sorted(theirs.keys() | ours.keys())
            if theirs.get(key) != ours.get(key) and not key.startswith(FREE_KEYS)
        ]
        if differing:
            raise UserError(
                f"{folder} holds a run of another config: {'; '.join(differing)}. Use another "
                "--workdir, or the config of this one"
            )
    write_json(path, config.to_dict())


def load_config(folder: Path) -> ConfigDict:
    """Returns the config that made a run.

    Raises:
      UserError: the folder is no run, or its config cannot be read.
    """
    path = folder / "config.json"
    if not path.exists():
        raise UserError(f"{folder} holds no run (no config.json): train first, or check --workdir")
    try:
        return ConfigDict(json.loads(path.read_text()))
    except ValueError as error:
        raise UserError(f"{path} is not readable JSON ({error}): put back the original") from None


def load_translator(
    folder: Path, config: ConfigDict, warn
) -> tuple[Translator, Any, Sequence[int], dict]:
    """Returns a run's translator, its parameters, the steps they come from and the progress then.

    Raises:
      UserError: tokenizer or checkpoint is missing, or they do not belong together.
    """
    tokenizers = load_tokenizers(folder)
    translator = make_translator(config, *tokenizers, warn)
    if not (folder / "checkpoints").is_dir():
        raise UserError(f"{folder} has no checkpoint yet: train until the first evaluation")
    checkpoints = Checkpoints(folder / "checkpoints", read_only=True)
    try:
        loaded = checkpoints.restore_params(
            config.evaluate.checkpoint, config.evaluate.average, warn, fingerprint(*tokenizers)
        )
    finally:
        checkpoints.close()
    return translator, *loaded


def load_results(folder: Path) -> dict[str, Any] | None:
    """Returns the scores of a finished run, or None where it has none yet."""
    path = folder / "results.json"
    return json.loads(path.read_text()) if path.exists() else None
