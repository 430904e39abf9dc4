"""Reads an experiment from a config file, and parses config overrides.

No model is imported here, so that a misspelt key is reported before JAX starts.
"""

import contextlib
import inspect
import json
import re
import runpy
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.config import complete, set_value, value_of, wrong_type
from transformer.config.keys import KEYS
from transformer.errors import UserError

PAGES = Path(__file__).parents[2] / "configs"
# Matches "pattern=factor,pattern=factor", in which patterns may contain commas.
FACTOR = re.compile(r"(.+?)=([\d.]+(?:[eE][+-]?\d+)?)(?:,\s*|$)")


class Experiment(NamedTuple):
    """The content of a config file: the config and, for a sweep, its trials or search space."""

    config: ConfigDict
    trials: list[Mapping[str, Any]] | None = None
    space: Mapping[str, Any] | None = None

    @property
    def is_sweep(self) -> bool:
        """Whether the experiment consists of several runs."""
        return self.trials is not None or self.space is not None


def read_experiment(name: str) -> Experiment:
    """Returns the results of a file's `get_config()` and, if defined, `sweep()` or `space()`.

    Text after a colon is passed to `get_config`, and to `sweep` if it takes parameters. Files in
    `configs/` can be named from any working directory.
    """
    path, argument = _find(name), ()
    if not path.is_file() and ":" in name:
        path, argument = _find(name.rpartition(":")[0]), (name.rpartition(":")[2],)
    if not path.is_file():
        raise UserError(
            f"the config {path} is not a file: configs/ holds those that come with this"
        )
    with executed(path) as module:
        experiment = Experiment(complete(module.get_config(*argument)))
        if hasattr(module, "sweep"):
            takes_argument = inspect.signature(module.sweep).parameters
            trials = module.sweep(*argument) if takes_argument else module.sweep()
            experiment = experiment._replace(trials=list(trials))
        return experiment._replace(space=module.space()) if hasattr(module, "space") else experiment


@contextlib.contextmanager
def executed(path: Path, label: str = "config") -> Iterator[Any]:
    """Executes a config file and yields its module; like a script, it may import adjacent files."""
    sys.path.append(str(path.parent.absolute()))
    try:
        yield types.SimpleNamespace(**runpy.run_path(str(path), run_name="config"))
    except Exception as error:  # a config file may raise any exception
        # Errors of a locked config list all its fields; the list is removed.
        text = re.sub(r'Other fields present: "{.*?}"', "", str(error).replace("\\n", " "))
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        frames = traceback.extract_tb(error.__traceback__)
        line = "".join([f"line {f.lineno}: " for f in frames if f.filename == str(path)][-1:])
        what = f"{line}{kind}{' '.join(text.split())}"
        raise UserError(f"the {label} {path} cannot be used: {what}") from None


def _find(name: str) -> Path:
    """Returns the path of a file; a missing file in `configs/` is taken from the package."""
    path = Path(name)
    page = PAGES.parent / path
    is_page = path.parts[:1] == (PAGES.name,) and not path.is_file() and page.is_file()
    return page if is_page else path


def override(config: ConfigDict, key: str, text: str) -> None:
    """Sets a config key to a value that is parsed from text according to the type of the key."""
    value = value_of(config, key)
    is_list = PARSERS.keys() & KEYS[key].facts
    parse, example = PARSERS[min(is_list)] if is_list else (lambda text: _parse(text, value), value)
    try:
        set_value(config, key, parse(text))
    except (ValueError, TypeError):
        raise wrong_type(key, text, example) from None


def _parse(text: str, like: Any) -> Any:
    if isinstance(like, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if isinstance(like, list):
        return tuple(_parse(part, like[0] if like else "") for part in _parts(text) if part)
    return type(like)(text)


def _parts(text: str) -> tuple[str, ...]:
    """Splits comma-separated text, and strips the brackets and quotes of a Python list."""
    return tuple(part.strip().strip("'\"") for part in text.strip("()[]").split(","))


def _parse_factors(text: str) -> tuple[tuple[str, float], ...]:
    pairs = list(FACTOR.finditer(text))
    if "".join(pair[0] for pair in pairs) != text:
        raise ValueError(text)
    return tuple((pair[1], float(pair[2])) for pair in pairs)


# Fact of a key -> (parser, example), for lists with items of a different type than in the default,
# or with meaningful empty items, brackets or quotes.
PARSERS: dict[str, tuple[Callable[[str], Any], list]] = {
    "json": (lambda text: tuple(json.loads(text)), [{"name": "news"}]),
    "parts": (_parts, ["en", "de"]),
    "symbols": (lambda text: tuple(map(str.strip, text.split(","))) if text else (), ["<URL>"]),
    "factors": (_parse_factors, ["pattern=0.5"]),
}
