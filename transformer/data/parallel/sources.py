"""Sources of sentence pairs: generated, read from text files, or from TensorFlow Datasets.

Every source returns the splits 'train', 'validation' and 'test' as iterables of pairs that can be
read repeatedly. Text and TFDS are streamed, however large. Errors in files or names are raised when
they are opened, before training.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from transformer.data import tfds
from transformer.data.pairs import Pair
from transformer.data.parallel.files import open_files
from transformer.data.parallel.trained_on import Earlier
from transformer.data.splits import SPLITS, check_sizes
from transformer.data.synthetic import grammar
from transformer.errors import UserError

Splits = Mapping[str, Iterable[Pair]]


def open_source(settings: ConfigDict, earlier: Earlier | None = None) -> Splits:
    """Returns the pairs of each split of the corpus that the settings describe.

    With `length_generalization_size` there is a split "length_generalization" to score beyond the
    training length: for `copy` and `reverse`, sequences twice as long as the longest in training;
    for other sources, pairs of test pairs joined.

    Args:
      settings: `config.data`, or anything with its keys as attributes; see `configs/base.py`.
      earlier: the pairs that are not held out of files, since the weights know them.

    Raises:
      UserError: the source is unknown, a size is negative, there is an error in the text, or there
        are no two test pairs to join.
    """
    if settings.source not in REGISTRY:
        raise UserError(
            f"data.source={settings.source!r} is unknown: choose one of {', '.join(REGISTRY)}"
        )
    check_sizes(settings)
    splits = REGISTRY[settings.source](settings, earlier)
    size = settings.length_generalization_size
    if not size or "length_generalization" in splits:
        return splits
    if not (joined := _joined(splits["test"], size)):
        raise UserError(
            f"config.data.length_generalization_size={size} joins two pairs of the test set, which "
            "has fewer: set config.data.test_size to 2 or more, name a file with more pairs in "
            "config.data.test_source, or set config.data.length_generalization_size=0"
        )
    return {**splits, "length_generalization": joined}


def _joined(pairs: Iterable[Pair], count: int) -> list[Pair]:
    """Returns up to `count` pairs, each joined from two consecutive pairs."""
    sides = [(pair.source, pair.target) for pair in itertools.islice(pairs, 2 * count)]
    return [
        Pair(f"{first[0]} {second[0]}", f"{first[1]} {second[1]}")
        for first, second in zip(sides[::2], sides[1::2], strict=False)
    ]


def _generated(
    make: Callable[[int, dict[str, int]], dict[str, list[Pair]]],
    settings: ConfigDict,
    _: Earlier | None,
    makes_longer: bool = False,
) -> Splits:
    """Returns a synthetic corpus.

    Args:
      make: gets the seed and the number of pairs in each split.
      makes_longer: whether it has a split "length_generalization" of its own.
    """
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS}
    if makes_longer and settings.length_generalization_size:
        sizes["length_generalization"] = settings.length_generalization_size
    return make(settings.seed, sizes)


def _tfds(settings: ConfigDict, _: Earlier | None) -> Splits:
    """Returns a translation corpus of TensorFlow Datasets."""
    return tfds.open_splits(settings, ("text", "text"), Pair)


REGISTRY: dict[str, Callable[[Any, Earlier | None], Splits]] = {
    "grammar": functools.partial(_generated, grammar.generate),
    "copy": functools.partial(_generated, grammar.copy_sequences, makes_longer=True),
    "reverse": functools.partial(_generated, grammar.reverse_sequences, makes_longer=True),
    "files": open_files,
    "tfds": _tfds,
}
