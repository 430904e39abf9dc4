"""Sources of sentence pairs: generated, read from text files, or from TensorFlow Datasets.

Every source returns the splits 'train', 'validation' and 'test' as iterables of pairs that can be
read repeatedly. Errors in files or names are raised when they are opened, before training.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from ml_collections import ConfigDict

from transformer.data import tfds
from transformer.data.encode import batched
from transformer.data.pairs import SPLITS, Pair
from transformer.data.parallel.files import open_files
from transformer.data.parallel.modifiers import joined
from transformer.data.parallel.training_pairs import Hashes
from transformer.data.synthetic import grammar
from transformer.errors import UserError

Splits = Mapping[str, Iterable[Pair]]


def open_source(settings: ConfigDict, earlier: Hashes | None = None) -> Splits:
    """Returns the pairs of each split of the corpus that `config.data` describes.

    With `length_generalization_size` there is a split "length_generalization" to score beyond the
    training length: for `copy` and `reverse`, sequences twice as long as the longest in training;
    for other sources, pairs of test pairs joined. For `earlier` see `open_files`.
    """
    if settings.source not in REGISTRY:
        raise UserError(
            f"data.source={settings.source!r} is unknown: choose one of {', '.join(REGISTRY)}"
        )
    splits = REGISTRY[settings.source](settings, earlier)
    size = settings.length_generalization_size
    if not size or "length_generalization" in splits:
        return splits
    pairs = batched(itertools.islice(splits["test"], 2 * size), 2)
    if not (longer := [pair for both in pairs if (pair := joined(both, Random(0)))]):
        raise UserError(
            f"config.data.length_generalization_size={size} joins two pairs of the test set, which "
            "has fewer: set config.data.test_size to 2 or more, name a file with more pairs in "
            "config.data.test_source, or set config.data.length_generalization_size=0"
        )
    return {**splits, "length_generalization": longer}


def _generated(
    make: Callable[[int, dict[str, int]], dict[str, list[Pair]]],
    settings: ConfigDict,
    _: Hashes | None,
    makes_longer: bool = False,
) -> Splits:
    """A synthetic corpus, perhaps with a split "length_generalization" of its own."""
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS}
    if makes_longer and settings.length_generalization_size:
        sizes["length_generalization"] = settings.length_generalization_size
    return make(settings.seed, sizes)


def _tfds(settings: ConfigDict, _: Hashes | None) -> Splits:
    """Returns a translation corpus of TensorFlow Datasets."""
    return tfds.open_splits(settings, ("text", "text"), Pair)


REGISTRY: dict[str, Callable[[Any, Hashes | None], Splits]] = {
    "grammar": functools.partial(_generated, grammar.generate),
    "copy": functools.partial(_generated, grammar.copy_sequences, makes_longer=True),
    "reverse": functools.partial(_generated, grammar.reverse_sequences, makes_longer=True),
    "files": open_files,
    "tfds": _tfds,
}
