"""Recipes: keys of a config that are set by the size of its training text, before it is read."""

import itertools
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from configs import own_text
from configs.recipes.size import HELD_OUT, KEYS, ROWS
from transformer.data.corpora import corpora_of, naming, texts_of
from transformer.data.parallel import sources
from transformer.errors import UserError
from transformer.keys import assign, flatten
from transformer.model.config import check_choice
from transformer.runs.workdir import load_config

logger = logging.getLogger(__name__)

RECIPES = ("none", "size")
# Keys that another run's parameters depend on.
STRUCTURE = re.compile(r"tokenizer\.joint|model\.(?!dropout|dtype|matmul|remat|attention_imp)\w+")


def apply(config: ConfigDict, given: Collection[str], saved: ConfigDict | None = None) -> None:
    """Sets the keys of `config.recipe` in a config, and says which and why.

    A key keeps its value if the command line sets it (`given`), or if it differs from that of
    configs/own_text.py. With the config of a trained run (`saved`), the values are those of it: its
    text need not be there.
    """
    check_choice("config.recipe", config.recipe, RECIPES)
    if config.recipe == "none":
        return
    from_files = all(data.source == "files" for data in texts_of(config.data))
    if config.task != "translation" or not from_files:
        raise UserError(
            f"config.recipe={config.recipe} is for task=translation and data.source=files, not for "
            f"task={config.task} and data.source={config.data.source}: set config.recipe=none"
        )
    values, defaults = flatten(config), flatten(own_text.get_config())
    keys = ours = list(itertools.chain(*KEYS, HELD_OUT))
    if config.train.init_from:
        keys = list(dict.fromkeys([*ours, *filter(STRUCTURE.fullmatch, values)]))
    of_user = [key for key in keys if key in given or values[key] != defaults[key]]
    if saved is not None:
        chosen = {key: flatten(saved)[key] for key in keys}
    else:
        sizes = _sizes_held_out(config.data, [key for key in HELD_OUT if key not in of_user])
        config.update_from_flattened_dict(sizes)
        pairs = count_pairs(config.data)
        row = nearest_row(pairs)
        chosen = settings_of(row) | _model_of(config.train.init_from) | sizes
        change = {k: v for k, v in chosen.items() if k in ours or v != values[k]}
        logger.info(_describe(pairs, row, {k: v for k, v in change.items() if k not in of_user}))
        if of_user:
            logger.info(f"your own: {_listed({key: values[key] for key in of_user})}")
    for key in keys:
        if key not in of_user and key in chosen:
            assign(config, key, chosen[key])


def check_given(config: ConfigDict, given: Collection[str]) -> None:
    """Checks that no trial's recipe replaces a key that the command line sets for all trials."""
    values, defaults = flatten(config), flatten(own_text.get_config())
    keys = {*given}.intersection(itertools.chain(*KEYS))
    for key in sorted(keys) if config.recipe != "none" else ():
        if values[key] == defaults[key]:
            raise UserError(
                f"config.{key}={values[key]} is also the value of configs/own_text.py, which the "
                "recipe of each trial replaces: set it in sweep()"
            )


def count_pairs(data: ConfigDict) -> int:
    """Returns the number of training pairs, of all corpora, before cleaning."""
    return sum(_counts(data, sources.count_pairs))


def _counts(data: ConfigDict, count: Callable[[ConfigDict], int]) -> list[int]:
    """Returns a number of each corpus, or of the only one."""
    numbers = []
    for corpus in corpora_of(data):
        with naming(corpus):
            numbers.append(count(corpus.data))
    return numbers or [count(data)]


def _sizes_held_out(data: ConfigDict, keys: Iterable[str]) -> dict[str, float]:
    """Returns the sizes of splits to hold out: of the smallest text, a tenth at most.

    The tenth is rounded down to its first digit, so that it stays as it is if the text grows a bit.
    """
    pairs = min(_counts(data, sources.count_all))
    tenth = max(1, pairs // 10 - pairs // 10 % 10 ** (len(str(pairs // 10)) - 1))
    sizes = {key: getattr(data, key.removeprefix("data.")) for key in keys}
    lowered: dict[str, float] = {key: tenth for key, size in sizes.items() if size > pairs // 10}
    if lowered:
        logger.info(f"held out of {pairs:,} pairs: {_listed(lowered)}, together a fifth at most")
    return sizes | lowered


def nearest_row(pairs: int) -> int:
    """Returns the row of the recipe "size" nearest to a number of pairs, in the logarithm."""
    rows = sorted(ROWS)
    return next((row for row in rows[:-1] if pairs <= bounds(row)[1]), rows[-1])


def settings_of(row: int) -> dict[str, float]:
    """Returns {dotted key: value} of a row of the recipe "size"."""
    _, values = ROWS[row]
    return {key: v for keys, v in zip(KEYS, values, strict=True) for key in keys}


def bounds(row: int) -> tuple[int, float]:
    """Returns the smallest and the largest number of pairs that take a row."""
    rows = sorted(ROWS)
    halfway = [0, *(math.isqrt(a * b) for a, b in itertools.pairwise(rows)), math.inf]
    i = rows.index(row)
    return halfway[i] + 1, halfway[i + 1]


def _model_of(folder: str) -> dict[str, Any]:
    """The structure of the model that a run starts from, by dotted key; none without one."""
    if not folder:
        return {}
    try:
        parent = flatten(load_config(Path(folder).expanduser()))
    except UserError:  # it is not a run, and refused later, see `check_source`
        return {}
    return {key: value for key, value in parent.items() if STRUCTURE.fullmatch(key)}


def _describe(pairs: int, row: int, chosen: dict[str, float]) -> str:
    least, most = bounds(row)
    between = f"from {least:,}" if math.isinf(most) else f"{least:,} to {most:,}"
    return (
        f"recipe for {pairs:,} training pairs ({between}): {ROWS[row][0]} "
        f"(configs/recipes/size.py): {_listed(chosen)}"
    )


def _listed(values: dict[str, float]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())
