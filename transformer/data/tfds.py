"""Text from TensorFlow Datasets, prepared if necessary, and read without TensorFlow."""

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
from transformer.errors import UserError

Item = TypeVar("Item")

FILE_FORMAT = "array_record"  # TFDS's default needs TensorFlow
READ_AT_ONCE = 1024  # records
DOWNLOAD_RETRIES = 4  # by default 10, which take minutes until an error says that no network is up
READERS: dict[str, Callable[[Any], Any]] = {"text": bytes.decode, "picture": np.asarray}


def _label_reader(names: Sequence[str], split: str) -> Callable[[int], str]:
    """Returns a function from class number to class name; `split` is named in errors."""

    def read(number: int) -> str:
        if number < 0:  # as in published test sets with hidden labels
            raise UserError(
                f"{split} has a text without a label: choose another split, or a part such as "
                "'train[90%:]'"
            )
        return names[number]

    return read


def open_splits(
    settings: ConfigDict, kinds: tuple[str, ...], make: Callable[..., Item]
) -> dict[str, Restartable[Item]]:
    """Returns the splits of a dataset, which is downloaded and prepared if necessary.

    Args:
      kinds: kind of each field that `tfds_fields` must name: "text", "label" or "picture".
      make: makes an item from the values of these fields; a label is the name of its class.
    """
    tfds = _import_tfds()
    builder = _make_builder(tfds, settings)
    features, fields = builder.info.features, _check_fields(tfds, builder, settings, kinds)
    _prepare_dataset(builder, settings)
    splits = {}
    for split in SPLITS:
        expression = getattr(settings, f"tfds_{split}")
        place = f"data.tfds_{split}={expression!r} of {builder.info.full_name}"
        try:
            records = builder.as_data_source(split=expression)
        except (KeyError, ValueError, AssertionError, NotImplementedError) as error:
            raise UserError(
                f"{place} cannot be read ({_first_line(error)}): choose from "
                f"{', '.join(builder.info.splits)}, or a part such as 'train[98%:]'; or set "
                "config.data.tfds_dir to another folder, to prepare it again there"
            ) from error
        readers = tuple(
            (name, READERS.get(kind) or _label_reader(features[name].names, place))
            for name, kind in zip(fields, kinds, strict=True)
        )
        splits[split] = Restartable(functools.partial(_read_items, records, readers, make))
    return splits


def _read_items(
    records: Any, readers: tuple[tuple[str, Callable], ...], make: Callable[..., Item]
) -> Iterator[Item]:
    """Yields the items of a split; `readers` has a (field, conversion) for each argument."""
    for first in range(0, len(records), READ_AT_ONCE):
        for record in records.__getitems__(range(first, min(first + READ_AT_ONCE, len(records)))):
            yield make(*(read(record[field]) for field, read in readers))


def _check_fields(
    tfds: ModuleType, builder: Any, settings: ConfigDict, kinds: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the fields that the settings name, after a check of their kinds."""
    features, fields = builder.info.features, tuple(settings.tfds_fields)
    types = tfds.features
    kind_of = {types.Text: "text", types.ClassLabel: "label", types.Image: "picture"}
    names = {
        name: kind
        for name, feature in features.items()
        for of_kind, kind in kind_of.items()
        if isinstance(feature, of_kind)
    }
    if tuple(map(names.get, fields)) != kinds:
        choices = ", ".join(f"{name} ({kind})" for name, kind in names.items())
        raise UserError(
            f"data.tfds_fields={fields} are not the fields ({', '.join(kinds)}) of "
            f"{builder.info.full_name}: choose from {choices or 'those of another dataset'}"
        )
    return fields


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
    # TFDS registers its older builders, including WMT and GLUE, only if packages for unrelated
    # data are installed too; importing these folders registers all that we need.
    for name in ("translate", "text", "image_classification"):
        importlib.import_module(f"tensorflow_datasets.{name}")
    return tfds


def _encode_png(encoder: Any, pixels: np.ndarray) -> bytes:
    """Returns pixels as PNG, which TFDS would encode with TensorFlow."""
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "PNG")
    return file.getvalue()


# TFDS unpacks archives and lists files with functions of TensorFlow, which supports other file
# systems, too; these functions replace them for local files.
GFILE = SimpleNamespace(GFile=open, glob=glob.glob, isdir=os.path.isdir)
LOCAL_FILES = SimpleNamespace(io=SimpleNamespace(gfile=GFILE), compat=SimpleNamespace(as_text=str))


def _make_builder(tfds: ModuleType, settings: ConfigDict) -> Any:
    name, folder = settings.tfds_name, os.path.expanduser(settings.tfds_dir)
    try:
        return tfds.builder(name, data_dir=folder or None)
    except Exception as error:  # of many types, some defined by a builder
        raise UserError(
            f"data.tfds_name={name!r} is not a dataset of TFDS ({_first_line(error)}): choose one "
            "of tensorflow.org/datasets, such as ted_hrlr_translate/ru_to_en"
        ) from error


def _prepare_dataset(builder: Any, settings: ConfigDict) -> None:
    """Downloads and prepares a dataset, unless that is already done."""
    try:
        builder.download_and_prepare(file_format=FILE_FORMAT)
    except Exception as error:  # from the network, the disk, or the dataset's script
        raise UserError(
            f"data.tfds_name={settings.tfds_name!r} is not prepared in {builder.data_dir_root} and "
            f"could not be ({_first_line(error)}): run this on a machine with network, and set "
            "config.data.tfds_dir to a copy of that folder, or config.data.source=files"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
