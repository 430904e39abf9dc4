"""Recipes choose config values for the size of a training corpus before the corpus is read."""

import itertools
import logging
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from transformer.config import assign, flatten, load_page
from transformer.config.keys import KEYS, having
from transformer.data import labelled
from transformer.data.corpora import texts_of
from transformer.data.files.locate import split_sources
from transformer.data.parallel import sources
from transformer.errors import UserError
from transformer.model.config import check_choice
from transformer.runs.workdir import load_config

labels = load_page("recipes.labels")
own_labels = load_page("own_labels")
own_text = load_page("own_text")
size = load_page("recipes.size")

logger = logging.getLogger(__name__)

RECIPES = ("none", "size")
# Task -> (config whose values a recipe replaces, table of rows, module that counts examples).
REGISTRY = {
    "translation": (own_text, size, sources),
    "classification": (own_labels, labels, labelled),
}
# Config keys that determine the parameter shapes of another run.
STRUCTURE = {
    *having("structure"),
    *(key for key in KEYS if key.startswith("model.") and key not in having("start")),
}


def apply(config: ConfigDict, given: Collection[str], saved: ConfigDict | None = None) -> None:
    """Sets the config keys that `config.recipe` controls, and logs them with the reason.

    A key keeps its value if the command line sets it (`given`), or if its value differs from the
    task's default config, such as configs/own_text.py. If `saved` (the config of an existing run)
    is given, the values are copied from it, and the corpus is not needed.
    """
    check_choice("config.recipe", config.recipe, RECIPES)
    if config.recipe == "none":
        return
    from_files = all(data.source == "files" for data in texts_of(config.data))
    if config.task not in REGISTRY or not from_files:
        raise UserError(
            f"config.recipe={config.recipe} is for task={' or '.join(REGISTRY)} and "
            f"data.source=files, not for task={config.task} and data.source={config.data.source}: "
            "set config.recipe=none"
        )
    page, table, text = REGISTRY[config.task]
    values, defaults = flatten(config), flatten(page.get_config())
    keys = ours = [*itertools.chain(*table.KEYS, table.HELD_OUT, table.COLUMNS)]
    if config.train.init_from:
        keys = list(dict.fromkeys([*ours, *filter(STRUCTURE.__contains__, values)]))
    of_user = [key for key in keys if key in given or values[key] != defaults[key]]
    if saved is not None:
        settings = {key: flatten(saved)[key] for key in keys}
    else:
        is_open = table.COLUMNS and {*of_user}.isdisjoint(table.COLUMNS)
        settings = labelled.guess_columns(config.data) if is_open else {}
        config.update_from_flattened_dict(settings)
        free = [key for key in table.HELD_OUT if key not in of_user]
        smallest = min(map(text.count_all, texts_of(config.data)))
        settings |= _sizes_held_out(config.data, free, smallest)
        config.update_from_flattened_dict(settings)
        count = sum(map(text.count_train, texts_of(config.data)))
        row = nearest_row(count, table)
        parent = {}
        if folder := config.train.init_from:
            parent = flatten(load_config(Path(folder).expanduser()))
        structure = {key: value for key, value in parent.items() if key in STRUCTURE}
        settings = settings_of(row, table) | structure | settings
        change = {k: v for k, v in settings.items() if k in ours or v != values[k]}
        change = {k: v for k, v in change.items() if k not in of_user}
        file = f"configs/recipes/{table.__name__.rpartition('.')[2]}.py"
        recipe = f"recipe for {count:,} training {table.UNIT}: {table.ROWS[row][0]} ({file})"
        logger.info(f"{recipe}: {_list_settings(change)}")
        if of_user:
            logger.info(f"your own: {_list_settings({key: values[key] for key in of_user})}")
    for key in keys:
        if key not in of_user and key in settings:
            assign(config, key, settings[key])


def _sizes_held_out(data: ConfigDict, keys: Iterable[str], count: int) -> dict[str, Any]:
    """Returns the sizes of held-out splits, each at most a tenth of the smallest corpus.

    A tenth is rounded down to one significant digit, so it is stable if a corpus grows slightly.
    """
    tenth = max(1, count // 10 - count // 10 % 10 ** (len(str(count // 10)) - 1))
    sizes = {key: getattr(data, key.removeprefix("data.")) for key in keys}
    sizes = {key: tenth if size > count // 10 else size for key, size in sizes.items()}
    unnamed = [f"data.{split}_size" for split, name in split_sources(data).items() if not name]
    if held_out := {key: size for key, size in sizes.items() if key in unnamed}:
        fractions = " and ".join(f"{size / max(1, count):.1%}" for size in held_out.values())
        logger.info(f"held out of {count:,} examples: {_list_settings(held_out)} ({fractions})")
    return sizes


def nearest_row(count: int, table: ModuleType = size) -> int:
    """Returns the key of the recipe row whose size is closest to `count` on a log scale."""
    return min(table.ROWS, key=lambda row: abs(math.log(row / max(1, count))))


def settings_of(row: int, table: ModuleType = size) -> dict[str, float]:
    """Returns the settings of a recipe row as {dotted key: value}."""
    _, values = table.ROWS[row]
    return {key: v for keys, v in zip(table.KEYS, values, strict=True) for key in keys}


def _list_settings(values: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())
