"""Sources of sentence pairs: generated pairs, text files, and TensorFlow Datasets.

Every source returns the splits 'train', 'validation' and 'test' as iterables of pairs that can be
read repeatedly. Errors in files or names are raised when a source is opened, before training.
"""

import functools
import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from transformer.config.keys import having
from transformer.data import held_out, tfds
from transformer.data.cleaning import CleaningReport, rules_of
from transformer.data.encode import Restartable, batched, cache_folder
from transformer.data.files.arrow import data_files
from transformer.data.files.locate import locate
from transformer.data.files.table import TableFile, describe_rows
from transformer.data.pairs import SPLITS, Pair, choose_source, split_sizes
from transformer.data.parallel import training_pairs
from transformer.data.parallel.modifiers import joined
from transformer.data.parallel.texts import DocumentPairs, TwoFiles, parallel_text, with_links
from transformer.data.parallel.training_pairs import Hashes, HeldOutReport, TrainingPairs
from transformer.data.synthetic import grammar
from transformer.data.token_store import cached_arrays
from transformer.errors import UserError

WORTH_KEEPING = 4 * 2**20  # minimum bytes to cache: smaller files, even compressed, read in seconds

Texts = Mapping[str, TwoFiles | DocumentPairs | TableFile[Pair]]
Splits = Mapping[str, Iterable[Pair]]
logger = logging.getLogger(__name__)


def open_source(settings: ConfigDict, earlier: Hashes | None = None) -> Splits:
    """Returns the pairs in each split of the corpus configured in `config.data`.

    If `length_generalization_size` is not 0, the split "length_generalization" has longer inputs.
    Sequences of `copy` and `reverse` are twice as long as the longest training sequence; for other
    sources, every two consecutive test pairs are joined. For `earlier`, see `open_files`.
    """
    splits = choose_source(settings, REGISTRY)(settings, earlier)
    size = settings.length_generalization_size
    if not size or "length_generalization" in splits:
        return splits
    pairs = batched(itertools.islice(splits["test"], 2 * size), 2)
    if not (longer := [Pair(*pair[:2]) for both in pairs if (pair := joined(both, Random(0)))]):
        raise UserError(
            f"config.data.length_generalization_size={size} joins two pairs of the test set, which "
            "has fewer: set config.data.test_size to 2 or more, name a file with more pairs in "
            "config.data.test_source, or set config.data.length_generalization_size=0"
        )
    return {**splits, "length_generalization": longer}


def _generate_pairs(
    make: Callable[[int, dict[str, int]], dict[str, list[Pair]]],
    settings: ConfigDict,
    _: Hashes | None,
    makes_longer: bool = False,
) -> Splits:
    """Returns a synthetic corpus; `makes_longer` enables the split "length_generalization"."""
    sizes = split_sizes(settings)
    if makes_longer and settings.length_generalization_size:
        sizes["length_generalization"] = settings.length_generalization_size
    return make(settings.seed, sizes)


# -- files: for large files, the cache stores the indices of held-out and clean pairs, so that a
# restart does not recompute them. No file offsets are stored: files in any format, compressed or
# not, are read sequentially.


def open_files(settings: ConfigDict, earlier: Hashes | None = None) -> dict[str, Iterable[Pair]]:
    """Returns the pairs in the configured files, after cleaning the training pairs.

    A validation or test set without a file is held out of the training data (see `choose`). Only
    pairs that satisfy the cleaning rules are held out, so each set has its full size. Duplicates of
    held-out pairs are removed from the training data. A pair is not held out if its source occurs
    in the training data of `earlier` runs. All files are read here, to raise errors early.
    """
    texts = named_files(settings)
    arrays, notes = _read_cached(texts, settings, earlier)
    for line in notes["lines"]:
        logger.warning(line)
    held = {split: [Pair(*sides) for sides in pairs] for split, pairs in notes["held"].items()}
    pairs, marks = texts["train"], arrays["kept"].tobytes()
    if settings.train_links:
        path = locate(settings, "train_links")
        pairs = Restartable(lambda: with_links(texts["train"], path))
    pairs = held_out.without(pairs, arrays["gone"])
    train = TrainingPairs(
        training_pairs.cleaned(pairs, marks),
        CleaningReport(*notes["report"]),
        tuple(notes["fingerprints"]),
        {split: HeldOutReport(*counts) for split, counts in notes["held_out"].items()},
        arrays["hashes"],
        pairs,
        marks,
    )
    return {**texts, **held, "train": train}


def count_all(settings: ConfigDict) -> int:
    """Returns the number of pairs in the training file, including held-out pairs."""
    return sum(1 for _ in parallel_text(settings, "train"))


def count_train(settings: ConfigDict) -> int:
    """Returns the number of training pairs in the files before cleaning, without held-out pairs."""
    rest = max(0, count_all(settings) - sum(held_out.splits_held_out(settings).values()))
    return min(rest, settings.train_subset or rest)


def named_files(settings: ConfigDict) -> Texts:
    """Returns the data files of each split that is not held out of the training data."""
    for split in held_out.splits_held_out(settings):
        if target := getattr(settings, f"{split}_target"):
            raise UserError(
                f"config.data.{split}_target={target!r} has no source: set "
                f"config.data.{split}_source, or leave both empty"
            )
    named = [split for split in SPLITS if split not in held_out.splits_held_out(settings)]
    return {split: parallel_text(settings, split) for split in named}


def check_files(texts: Texts) -> list[str]:
    """Returns the lines of `describe_rows`; raises UserError for empty or damaged files.

    Only the first training pair is read here.
    """
    lines = describe_rows(texts.values())
    lines += [text.describe() for text in texts.values() if isinstance(text, DocumentPairs)]
    for split, text in texts.items():
        count = sum(1 for _ in itertools.islice(text, 1 if split == "train" else None))
        held_out.check_not_empty(text.source, count)
    return lines


def _read_pairs(
    texts: Texts, settings: ConfigDict, earlier: Hashes | None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns arrays that select the held-out and clean pairs, and notes for logs and reports."""
    lines, rules = check_files(texts), rules_of(settings)
    text, sizes = texts["train"], held_out.splits_held_out(settings)
    facts = training_pairs.survey(text, rules, settings.seed)
    faults = training_pairs.duplicates(facts, rules)
    usable = faults == 0
    # Other pairs with the same source as a pair of an earlier run cannot be held out, either.
    learnt = np.isin(training_pairs.undirected(facts.exact), () if earlier is None else earlier)
    learnt = np.isin(facts.ranks, facts.ranks[learnt]) & usable
    try:
        numbers = held_out.choose(text.source, facts.ranks, usable & ~learnt, sizes, settings)
    except held_out.TooFewError as error:
        dropped = training_pairs.count_faults(faults).dropped
        reasons = [f"{n:,} {reason}" for reason, n in dropped.items()]
        reasons += [f"{learnt.sum():,} in {training_pairs.EARLIER}"] * bool(learnt.any())
        more = f"; not held out are pairs that are dropped or known: {', '.join(reasons)}"
        raise UserError(f"{error}{more * bool(reasons)}") from None
    splits = {**texts, **held_out.take(text, numbers)}
    gone = np.array(sorted(itertools.chain(*numbers.values())), np.int64)
    facts = training_pairs.without_copies(facts, gone.tolist(), rules)
    if settings.train_subset:
        usable = facts.faults == 0
        usable[gone] = False
        places = np.flatnonzero(usable)
        chosen = places[np.argsort(facts.ranks[places], kind="stable")[: settings.train_subset]]
        gone = np.delete(np.arange(len(usable)), chosen)
    rest = np.delete(facts, gone).view(np.recarray)
    scored = {split: splits[split] for split in SPLITS[1:]}
    train = training_pairs.clean(held_out.without(text, gone), rules, scored, earlier, rest)
    notes = {
        "lines": lines,
        "held": {split: [pair[:2] for pair in splits[split]] for split in sizes},
        "report": train.report,
        "fingerprints": train.fingerprints,
        "held_out": train.held_out,
    }
    arrays = {"gone": gone, "kept": np.frombuffer(train.kept, np.uint8), "hashes": train.hashes}
    return arrays, notes


def _read_cached(
    texts: Texts, settings: ConfigDict, earlier: Hashes | None
) -> tuple[Mapping[str, np.ndarray], Any]:
    """Returns the result of `_read_pairs`, from the cache if the files are unchanged."""
    paths = [path for text in texts.values() for path in vars(text).values()]
    names = itertools.chain(*(data_files(path) for path in paths if isinstance(path, Path)))
    stats = {path: path.stat() for path in names}
    files = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()]
    if sum(size for _, size, _ in files) < WORTH_KEEPING:
        return _read_pairs(texts, settings, earlier)
    of_batches = having("shared", "tokens")
    values = {k: value for k, value in settings.items() if f"data.{k}" not in of_batches}
    learnt = earlier is not None and hashlib.sha256(np.ascontiguousarray(earlier).data).hexdigest()
    code = hashlib.sha256()  # reading and cleaning depend on the code
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        code.update(path.read_bytes())
    described = [files, sorted(values.items()), code.hexdigest(), learnt]
    key = hashlib.sha256(json.dumps(described, default=str).encode()).hexdigest()[:24]
    folder = cache_folder(settings) / f"{key}.pairs"
    return cached_arrays(folder, lambda _: _read_pairs(texts, settings, earlier))[:2]


REGISTRY: dict[str, Callable[[Any, Hashes | None], Splits]] = {
    "grammar": functools.partial(_generate_pairs, grammar.generate),
    "copy": functools.partial(_generate_pairs, grammar.copy_sequences, makes_longer=True),
    "reverse": functools.partial(_generate_pairs, grammar.reverse_sequences, makes_longer=True),
    "files": open_files,
    "tfds": lambda settings, _: tfds.open_splits(settings, ("text", "text"), Pair),
}
