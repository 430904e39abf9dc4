"""Corpora from TensorFlow Datasets, prepared if necessary, and read without TensorFlow."""

import contextlib
import functools
import glob
import importlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from ml_collections import ConfigDict
from PIL import Image

from transformer.data.encode import Restartable
from transformer.data.pairs import SPLITS
from transformer.errors import UserError, one_line

Item = TypeVar("Item")

FILE_FORMAT = "array_record"  # TFDS's default needs TensorFlow
READ_AT_ONCE = 1024  # records
DOWNLOAD_RETRIES = 4  # the default, 10, takes minutes to report that there is no network
FEATURES = {"text": "Text", "label": "ClassLabel", "picture": "Image"}  # classes of TFDS
READERS: dict[str, Callable[[Any], Any]] = {"text": bytes.decode, "picture": np.asarray}


def open_splits(
    settings: ConfigDict, kinds: tuple[str, ...], make: Callable[..., Item]
) -> dict[str, Restartable[Item]]:
    """Returns the splits of a dataset, after downloading and preparing it if necessary.

    Args:
      kinds: required type of each field in `tfds_fields`: "text", "label" or "picture".
      make: function that makes an item from the field values; a label is passed as a class name.
    """
    tfds, name, folder = _import_tfds(), settings.tfds_name, os.path.expanduser(settings.tfds_dir)
    choice = "choose one of tensorflow.org/datasets, such as ted_hrlr_translate/ru_to_en"
    with _explaining(f"data.tfds_name={name!r} is not a dataset of TFDS", choice):
        builder: Any = tfds.builder(name, data_dir=folder or None)
    features, fields = dict(builder.info.features.items()), tuple(settings.tfds_fields)
    types = [getattr(tfds.features, FEATURES[kind]) for kind in kinds]
    values = [features.get(name) for name in fields]
    if len(fields) != len(kinds) or not all(map(isinstance, values, types)):
        raise UserError(
            f"data.tfds_fields={fields} are not the fields ({', '.join(kinds)}) of "
            f"{builder.info.full_name}: choose from {', '.join(features)}"
        )
    place = f"data.tfds_name={name!r} is not prepared in {builder.data_dir_root} and could not be"
    copy = "run this on a machine with network, and set config.data.tfds_dir to a copy of that "
    with _explaining(place, f"{copy}folder, or config.data.source=files"):
        builder.download_and_prepare(file_format=FILE_FORMAT)
    splits = {}
    choice = f"choose from {', '.join(builder.info.splits)}, or a part such as 'train[98%:]'; or "
    for split in SPLITS:
        expression = settings[f"tfds_{split}"]
        place = f"data.tfds_{split}={expression!r} of {builder.info.full_name}"
        fix = f"{choice}set config.data.tfds_dir to another folder, to prepare it again there"
        with _explaining(f"{place} cannot be read", fix):
            records = builder.as_data_source(split=expression)
        readers = tuple(
            (name, READERS.get(kind) or functools.partial(_label_name, features[name].names, place))
            for name, kind in zip(fields, kinds, strict=True)
        )
        splits[split] = Restartable(functools.partial(_read_items, records, readers, make))
    return splits


@contextlib.contextmanager
def _explaining(problem: str, fix: str) -> Iterator[None]:
    """Converts errors from TFDS, the network, the disk or a dataset script into a UserError."""
    try:
        yield
    except Exception as error:  # of many types, some defined by builders
        why = one_line(str(error)) or type(error).__name__
        raise UserError(f"{problem} ({why}): {fix}") from error


def _label_name(names: Sequence[str], place: str, number: int) -> str:
    """Returns a class name; `place` describes the split in error messages."""
    if number < 0:  # as in published test sets with hidden labels
        raise UserError(
            f"{place} has a text without a label: choose another split, or a part such as "
            "'train[90%:]'"
        )
    return names[number]


def _read_items(
    records: Any, readers: tuple[tuple[str, Callable], ...], make: Callable[..., Item]
) -> Iterator[Item]:
    """Yields the items of a split; `readers` has (field, conversion) for each `make` argument."""
    for first in range(0, len(records), READ_AT_ONCE):
        for record in records.__getitems__(range(first, min(first + READ_AT_ONCE, len(records)))):
            yield make(*(read(record[field]) for field, read in readers))


def _import_tfds() -> ModuleType:
    tfds = importlib.import_module("tensorflow_datasets")
    parts = ("download.downloader", "download.extractor", "utils.lazy_imports_utils")
    parts += ("features.image_feature",)
    inner = (importlib.import_module(f"tensorflow_datasets.core.{part}") for part in parts)
    downloader, extractor, lazy, images = inner
    downloader.MAX_RETRIES = DOWNLOAD_RETRIES  # pyright: ignore[reportAttributeAccessIssue]
    if importlib.util.find_spec("tensorflow") is None:
        extractor.tf = lazy.tensorflow = LOCAL_FILES  # pyright: ignore[reportAttributeAccessIssue]
        images._ImageEncoder._encode_image = _encode_png  # pyright: ignore[reportAttributeAccessIssue]
    # TFDS registers its older builders, including WMT and GLUE, only if packages for unrelated data
    # are installed too. Importing these packages registers all builders that are needed here.
    for name in ("translate", "text", "image_classification"):
        importlib.import_module(f"tensorflow_datasets.{name}")
    return tfds


def _encode_png(encoder: Any, pixels: np.ndarray) -> bytes:
    """Encodes pixels as PNG, which TFDS would do with TensorFlow."""
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "PNG")
    return file.getvalue()


# TFDS unpacks archives and lists files with TensorFlow functions, which also support other file
# systems; these replacements support only local files.
GFILE = SimpleNamespace(GFile=open, glob=glob.glob, isdir=os.path.isdir)
LOCAL_FILES = SimpleNamespace(io=SimpleNamespace(gfile=GFILE), compat=SimpleNamespace(as_text=str))
