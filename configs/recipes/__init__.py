"""Recipes: the keys that the size of a training text sets, a module for each task."""

from configs.recipes import labels, size

# All keys that a recipe may set.
KEYS = frozenset(
    key
    for keys in (*size.KEYS, size.HELD_OUT, *labels.KEYS, labels.HELD_OUT, labels.COLUMNS)
    for key in keys
)
