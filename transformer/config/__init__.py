"""The default config, and access to config values by dotted keys."""

import difflib
import math
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from transformer.config.keys import KEYS, SECTIONS
from transformer.errors import UserError
from transformer.files import import_sibling
from transformer.model.config import MAX_NUMBER

KEYS_ARE_THERE = "transformer/config/keys.py has all keys"


def default_config() -> ConfigDict:
    """Returns the default config. It is locked, so that unknown keys cannot be set."""
    config = ConfigDict({section: ConfigDict() for section in filter(None, SECTIONS)})
    for key, about in KEYS.items():
        set_value(config, key, about.default)
    return config.lock()


def load_page(name: str) -> ModuleType:
    """Imports a config file from `configs/` by its name, such as "own_text" or "sweeps.sizes"."""
    return import_sibling(f"configs.{name}")


def flatten(config: ConfigDict) -> dict[str, Any]:
    """Returns the config as {dotted key: value}; tuples become lists, as in JSON."""
    flat = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            flat |= {f"{name}.{key}": inner for key, inner in flatten(value).items()}
        else:
            flat[name] = _tuples_as_lists(value)
    return flat


def _tuples_as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples_as_lists(inner) for key, inner in value.items()}
    return list(map(_tuples_as_lists, value)) if isinstance(value, tuple | list) else value


def assign(config: ConfigDict, key: str, value: Any) -> None:
    """Sets a dotted key, and checks the type of its value; lists and tuples are interchangeable."""
    current = value_of(config, key)
    if isinstance(current, float) and type(value) is int:
        value = float(value) if abs(value) <= MAX_NUMBER else math.inf  # inf is in no valid range
    value = _tuples_as_lists(value)
    if type(value) is not type(current):
        raise wrong_type(key, value, current)
    set_value(config, key, tuple(value) if isinstance(value, list) else value)


def complete(values: object) -> ConfigDict:
    """Returns the default config, updated with these values and locked."""
    if not isinstance(values, ConfigDict):
        raise UserError(f"{type(values).__name__} instead of a config: return default_config()")
    config = default_config()
    for key, value in flatten(values).items():
        assign(config, key, value)
    return config


def value_of(config: ConfigDict, key: str) -> Any:
    """Returns the value of a dotted key."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, ConfigDict) else None
    if value is None or isinstance(value, ConfigDict):  # no key has the value None
        near = difflib.get_close_matches(key, flatten(config), 1, 0.5)
        hint = f"did you mean config.{near[0]}?" if near else KEYS_ARE_THERE
        raise UserError(f"there is no key config.{key}: {hint}")
    return _tuples_as_lists(value)


def set_value(config: ConfigDict, key: str, value: Any) -> None:
    """Sets a dotted key without checking the type of the value."""
    *groups, name = key.split(".")
    for group in groups:
        config = config[group]
    config[name] = value


def wrong_type(key: str, value: Any, like: Any) -> UserError:
    """Returns the error for a value that does not have the type of `like`."""
    kind = "list" if isinstance(like, list) else type(like).__name__
    return UserError(f"config.{key}={value!r} must be of type {kind}, as {like!r} is")
