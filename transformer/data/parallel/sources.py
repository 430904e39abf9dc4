"""Where sentence pairs come from: generated, read from text files, or from TensorFlow Datasets.

Every source gives the splits 'train', 'validation' and 'test' as iterables of pairs that can be
read again and again from their start. Text and TFDS are streamed, however large. Whatever is
wrong with files or names is said when they are opened, before anything is trained.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from transformer.data import tfds
from transformer.data.pairs import Pair
from transformer.data.parallel.files import open_files
from transformer.data.splits import SPLITS, check_sizes
from transformer.data.synthetic import grammar
from transformer.errors import UserError

Splits = Mapping[str, Iterable[Pair]]


def open_source(settings: ConfigDict) -> Splits:
    """Returns the pairs of each split of the corpus that the settings describe.

    With `length_generalization_size` there is a split "length_generalization", to score beyond the
    training length: sequences of `copy` and `reverse` twice as long as the longest to train on, of
    other sources the test pairs joined two by two.

    Args:
      settings: `config.data`, or anything with its keys as attributes; see `configs/base.py`.

    Raises:
      UserError: an unknown source, a negative size, and whatever is wrong with the text named.
    """
    if settings.source not in REGISTRY:
        raise UserError(
            f"data.source={settings.source!r} is unknown: choose one of {', '.join(REGISTRY)}"
        )
    check_sizes(settings)
    splits = REGISTRY[settings.source](settings)
    if settings.length_generalization_size and "length_generalization" not in splits:
        return {
            **splits,
            "length_generalization": _joined(splits["test"], settings.length_generalization_size),
        }
    return splits


def _joined(pairs: Iterable[Pair], count: int) -> list[Pair]:
    """Returns up to `count` pairs, each made of two that follow one another."""
    sides = [(pair.source, pair.target) for pair in itertools.islice(pairs, 2 * count)]
    return [
        Pair(f"{first[0]} {second[0]}", f"{first[1]} {second[1]}")
        for first, second in zip(sides[::2], sides[1::2], strict=False)
    ]


def _generated(
    make: Callable[[int, dict[str, int]], dict[str, list[Pair]]], settings: ConfigDict
) -> Splits:
    """Returns a synthetic corpus: `make` gets the seed and the number of pairs in each split."""
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS}
    if make is not grammar.generate and settings.length_generalization_size:
        sizes["length_generalization"] = settings.length_generalization_size
    return make(settings.seed, sizes)


def _tfds(settings: ConfigDict) -> Splits:
    """Returns a translation corpus of TensorFlow Datasets."""
    return tfds.open_splits(settings, ("text", "text"), Pair)


REGISTRY: dict[str, Callable[[Any], Splits]] = {
    "grammar": functools.partial(_generated, grammar.generate),
    "copy": functools.partial(_generated, grammar.copy_sequences),
    "reverse": functools.partial(_generated, grammar.reverse_sequences),
    "files": open_files,
    "tfds": _tfds,
}
