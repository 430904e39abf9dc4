"""Reads an experiment's config from a file, and sets keys from text.

It imports no model, so that a misspelt key is answered before jax has started.
"""

import contextlib
import inspect
import json
import re
import runpy
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.config import complete, default_config, set_value, value_of, wrong_type
from transformer.config.keys import KEYS
from transformer.errors import UserError

PAGES = Path(__file__).parents[2] / "configs"
# Of "pattern=factor,pattern=factor", where a pattern may hold commas.
FACTOR = re.compile(r"(.+?)=([\d.]+(?:[eE][+-]?\d+)?)(?:,\s*|$)")


class Experiment(NamedTuple):
    """The content of a config file: the config; of a sweep, its trials or their search space."""

    config: ConfigDict
    trials: list[Mapping[str, Any]] | None = None
    space: Mapping[str, Any] | None = None

    @property
    def is_sweep(self) -> bool:
        """Whether there is more than one run in it."""
        return self.trials is not None or self.space is not None


def read_given(name: str | None, overrides: Sequence[tuple[str, str]]) -> Experiment | None:
    """Returns the experiment of a config file with these keys set; None if no file is named.

    Without a file, the overrides (key, text) are checked, too.
    """
    experiment = None if name is None else read_experiment(name)
    config = default_config() if experiment is None else experiment.config
    for key, text in overrides:
        override(config, key, text)
    return experiment


def read_experiment(name: str) -> Experiment:
    """Returns the results of `get_config()`, and of `sweep()` or `space()` if a file has them.

    What follows a colon after its name is the argument of `get_config`, and of `sweep` if that has
    parameters. Pages of `configs/` are found from every folder.
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
    """Yields the module of a file, which may import its neighbours, as a script may."""
    sys.path.append(str(path.parent.absolute()))
    try:
        yield types.SimpleNamespace(**runpy.run_path(str(path), run_name="config"))
    except Exception as error:  # the file is a program, and may fail in any way
        # A locked config lists all that it has.
        text = re.sub(r'Other fields present: "{.*?}"', "", str(error).replace("\\n", " "))
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        frames = traceback.extract_tb(error.__traceback__)
        line = "".join([f"line {f.lineno}: " for f in frames if f.filename == str(path)][-1:])
        what = f"{line}{kind}{' '.join(text.split())}"
        raise UserError(f"the {label} {path} cannot be used: {what}") from None


def _find(name: str) -> Path:
    """The path of a file; of a page of `configs/` that is not here, that of the package."""
    path = Path(name)
    page = PAGES.parent / path
    is_page = path.parts[:1] == (PAGES.name,) and not path.is_file() and page.is_file()
    return page if is_page else path


def override(config: ConfigDict, key: str, text: str) -> None:
    """Sets a key to the value that the text gives, in the type of the key."""
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
    """The parts between commas, without the brackets and quotes of a list of Python."""
    return tuple(part.strip().strip("'\"") for part in text.strip("()[]").split(","))


def _parse_symbols(text: str) -> tuple[str, ...]:
    """The symbols between commas; brackets and quotes belong to them."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _parse_factors(text: str) -> tuple[tuple[str, float], ...]:
    pairs = list(FACTOR.finditer(text))
    if "".join(pair[0] for pair in pairs) != text:
        raise ValueError(text)
    return tuple((pair[1], float(pair[2])) for pair in pairs)


# By a fact of keys whose lists are not of what their default holds, or in which an empty part has a
# meaning: the parser of a text, and an example.
PARSERS: dict[str, tuple[Callable[[str], Any], list]] = {
    "json": (lambda text: tuple(json.loads(text)), [{"name": "news"}]),
    "parts": (_parts, ["en", "de"]),
    "symbols": (_parse_symbols, ["<URL>"]),
    "factors": (_parse_factors, ["pattern=0.5"]),
}
