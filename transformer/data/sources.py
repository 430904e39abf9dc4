"""Where sentence pairs come from: made up, read from text files, or from TensorFlow Datasets.

Every source gives the splits 'train', 'validation' and 'test' as iterables of pairs that can be
read again and again from their start. Text and TFDS are streamed, however large. Whatever is
wrong with files or names is said when they are opened, before anything is trained.
"""

import dataclasses
import difflib
import functools
import importlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from transformer.data import grammar
from transformer.data.pairs import Pair
from transformer.data.text_files import check_not_empty, parallel_text, set_aside
from transformer.errors import UserError

SPLITS = ("train", "validation", "test")
FILE_FORMAT = "array_record"  # of TFDS; its default needs TensorFlow
READ_AT_ONCE = 1024  # records of a TFDS corpus
# TFDS tries ten times, waiting longer each time: minutes until it says that there is no network.
DOWNLOAD_RETRIES = 4

Splits = Mapping[str, Iterable[Pair]]


def open_source(settings: Any) -> Splits:
    """Returns the pairs of each split of the corpus that the settings describe.

    With `longer_size` there is a split "longer", to score beyond the training length: sequences
    of `copy` and `reverse` twice as long as the longest to train on, of other sources the test
    pairs joined two by two.

    Args:
      settings: `config.data`, or anything with its keys as attributes; see `configs/base.py`.

    Raises:
      UserError: an unknown source, a negative size, and whatever is wrong with the text named.
    """
    if settings.source not in REGISTRY:
        raise UserError(
            f"data.source={settings.source!r} is unknown: choose one of {', '.join(REGISTRY)}"
        )
    for split in SPLITS:
        if (size := getattr(settings, f"{split}_size")) < 0:
            raise UserError(f"--config.data.{split}_size={size} is negative: set it to 0 or more")
    splits = REGISTRY[settings.source](settings)
    if settings.longer_size and "longer" not in splits:
        return {**splits, "longer": _joined(splits["test"], settings.longer_size)}
    return splits


def _joined(pairs: Iterable[Pair], count: int) -> list[Pair]:
    """Returns up to `count` pairs, each made of two that follow one another."""
    sides = [(pair.source, pair.target) for pair in itertools.islice(pairs, 2 * count)]
    return [
        Pair(f"{first[0]} {second[0]}", f"{first[1]} {second[1]}")
        for first, second in zip(sides[::2], sides[1::2], strict=False)
    ]


def set_aside_splits(settings: Any) -> list[str]:
    """Returns the splits that are taken out of the training text, having no file of their own."""
    if settings.source != "files":
        return []
    return [split for split in SPLITS[1:] if not getattr(settings, f"{split}_source")]


def _generated(
    make: Callable[[int, dict[str, int]], dict[str, list[Pair]]], settings: Any
) -> Splits:
    """Returns a made-up corpus: `make` gets the seed and the number of pairs in each split."""
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS}
    if make is not grammar.generate and settings.longer_size:
        sizes["longer"] = settings.longer_size
    return make(settings.seed, sizes)


def _files(settings: Any) -> Splits:
    """Returns the parallel text of the files that the settings name.

    A validation or test set without a file is set aside from the training text, see `set_aside`.
    All text is read once here, so that none of it can fail later.
    """
    taken = set_aside_splits(settings)
    splits = {split: parallel_text(settings, split) for split in SPLITS if split not in taken}
    for split, text in splits.items():
        if split != "train":  # which set_aside reads
            check_not_empty(text, sum(1 for _ in text))
    sizes = {split: getattr(settings, f"{split}_size") for split in taken}
    return splits | set_aside(splits["train"], sizes, settings.seed)


def _tfds(settings: Any) -> Splits:
    """Returns a translation corpus of TensorFlow Datasets, which is prepared if it is not yet."""
    tfds = _import_tfds()
    builder = _make_builder(tfds, settings)
    features = builder.info.features
    texts = [name for name in features if isinstance(features[name], tfds.features.Text)]
    fields = tuple(settings.tfds_fields)
    if len(fields) != 2 or not set(fields) <= set(texts):
        raise UserError(
            f"data.tfds_fields={fields} are not two text fields of {builder.info.full_name}: "
            f"choose from {', '.join(texts) or 'those of another dataset, this one has none'}"
        )
    _prepare(builder, settings)
    splits = {}
    for split in SPLITS:
        expression = getattr(settings, f"tfds_{split}")
        try:
            records = builder.as_data_source(split=expression)
        except NotImplementedError as error:
            raise UserError(
                f"{builder.data_path} is prepared in a file format that needs TensorFlow: set "
                "--config.data.tfds_dir to another folder, to have it prepared anew there"
            ) from error
        except (KeyError, ValueError, AssertionError) as error:
            raise UserError(
                f"data.tfds_{split}={expression!r} is no split of {builder.info.full_name}: choose "
                f"from {', '.join(builder.info.splits)}, or a part such as 'train[98%:]'"
            ) from error
        splits[split] = TfdsRecords(records, *fields)
    return splits


REGISTRY: dict[str, Callable[[Any], Splits]] = {
    "grammar": functools.partial(_generated, grammar.generate),
    "copy": functools.partial(_generated, grammar.copy_sequences),
    "reverse": functools.partial(_generated, grammar.reverse_sequences),
    "files": _files,
    "tfds": _tfds,
}


@dataclasses.dataclass(frozen=True)
class TfdsRecords:
    """Pairs of two text fields of a prepared split, read from disk by each iteration."""

    records: Sequence[Mapping[str, bytes]]
    source: str
    target: str

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Pair]:
        for first in range(0, len(self), READ_AT_ONCE):
            places = range(first, min(first + READ_AT_ONCE, len(self)))
            for record in self.records.__getitems__(places):
                yield Pair(record[self.source].decode(), record[self.target].decode())


def _import_tfds() -> ModuleType:
    try:
        tfds = importlib.import_module("tensorflow_datasets")
        # TFDS registers its older builders, WMT's among them, only where packages for quite other
        # data are installed too; importing its `translate` registers all that we need.
        for name in ("tensorflow_datasets.translate", "array_record", "importlib_resources"):
            importlib.import_module(name)
        downloader = importlib.import_module("tensorflow_datasets.core.download.downloader")
    except ImportError as error:
        raise UserError(
            f"data.source='tfds' lacks a package ({error}): pip install -r requirements.txt"
        ) from error
    downloader.MAX_RETRIES = DOWNLOAD_RETRIES
    return tfds


def _make_builder(tfds: ModuleType, settings: Any) -> Any:
    name, folder = settings.tfds_name, os.path.expanduser(settings.tfds_dir)
    if not name:
        raise UserError(
            "data.tfds_name is empty: name one, such as "
            "--config.data.tfds_name=ted_hrlr_translate/ru_to_en"
        )
    try:
        return tfds.builder(name, data_dir=folder or None)
    except Exception as error:  # of many kinds, and a builder's own
        known = tfds.list_builders(with_community_datasets=False)
        dataset = name.split("/")[0].split(":")[0]
        if dataset in known:
            known = [f"{dataset}/{config}" for config in tfds.builder_cls(dataset).builder_configs]
        near = difflib.get_close_matches(name, known, n=5)
        hint = f"did you mean {' or '.join(near)}?" if near else "see tensorflow.org/datasets"
        raise UserError(
            f"data.tfds_name={name!r} is no dataset of TFDS ({_first_line(error)}): {hint}"
        ) from error


def _prepare(builder: Any, settings: Any) -> None:
    """Downloads and prepares a dataset, unless that is done."""
    try:
        builder.download_and_prepare(file_format=FILE_FORMAT)
    except Exception as error:  # of the network, the disk, or the dataset's own script
        name, folder = settings.tfds_name, str(builder.data_dir_root)
        # The command line tool of TFDS will not start without TensorFlow.
        code = (
            "import tensorflow_datasets as t, tensorflow_datasets.translate; "
            f"t.builder({name!r}, data_dir={folder!r})"
            f".download_and_prepare(file_format={FILE_FORMAT!r})"
        )
        raise UserError(
            f"data.tfds_name={name!r} is not prepared in {folder} and could not be "
            f'({_first_line(error)}): on a machine with network run once python -c "{code}" and '
            "set --config.data.tfds_dir to a copy of that folder, or --config.data.source=files"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
