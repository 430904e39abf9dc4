"""Text from TensorFlow Datasets, prepared if necessary, and read without TensorFlow."""

import dataclasses
import difflib
import glob
import importlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import IO, Any, Generic, TypeVar

import numpy as np
from ml_collections import ConfigDict
from PIL import Image

from transformer.data.pairs import SPLITS
from transformer.errors import UserError

Item = TypeVar("Item")

FILE_FORMAT = "array_record"  # TFDS's default needs TensorFlow
READ_AT_ONCE = 1024  # records
READERS: dict[str, Callable[[Any], Any]] = {"text": bytes.decode, "picture": np.asarray}
# TFDS tries ten times, waiting longer each time: minutes until it says that there is no network.
DOWNLOAD_RETRIES = 4
# The texts that `tfds_fields` may have to name, in words.
FIELD_KINDS = {
    ("text",): "one text field",
    ("text", "text"): "two text fields",
    ("text", "label"): "a text field and a label field",
    ("picture", "label"): "a picture field and a label field",
}


@dataclasses.dataclass(frozen=True)
class TfdsRecords(Generic[Item]):
    """Items made of some fields of a prepared split, read from disk by each iteration.

    Attributes:
      readers: for each field, its name and a function from its value to a text or a picture.
      make: makes an item from these.
    """

    records: Any  # a data source of TFDS: a sequence that also reads several records at once
    readers: tuple[tuple[str, Callable[[Any], Any]], ...]
    make: Callable[..., Item]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Item]:
        for first in range(0, len(self), READ_AT_ONCE):
            places = range(first, min(first + READ_AT_ONCE, len(self)))
            for record in self.records.__getitems__(places):
                yield self.make(*(read(record[field]) for field, read in self.readers))


def _label_reader(names: Sequence[str], split: str) -> Callable[[int], str]:
    """The name of each class by its number; `split` is named if a record has none."""

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
) -> dict[str, TfdsRecords[Item]]:
    """Returns the splits of a dataset, which is downloaded and prepared if necessary.

    Args:
      kinds: the kinds of fields that `tfds_fields` must name, one of `FIELD_KINDS`.
      make: makes an item from the texts of these fields; a label is the name of its class.
    """
    tfds = _import_tfds()
    builder = _make_builder(tfds, settings)
    features, fields = builder.info.features, _check_fields(tfds, builder, settings, kinds)
    _prepare_dataset(builder, settings)
    splits = {}
    for split in SPLITS:
        expression = getattr(settings, f"tfds_{split}")
        try:
            records = builder.as_data_source(split=expression)
        except NotImplementedError as error:
            raise UserError(
                f"{builder.data_path} is prepared in a file format that needs TensorFlow: set "
                "config.data.tfds_dir to another folder, to have it prepared again there"
            ) from error
        except (KeyError, ValueError, AssertionError) as error:
            raise UserError(
                f"data.tfds_{split}={expression!r} is not a split of {builder.info.full_name}: "
                f"choose from {', '.join(builder.info.splits)}, or a part such as 'train[98%:]'"
            ) from error
        where = f"data.tfds_{split}={expression!r} of {builder.info.full_name}"
        readers = tuple(
            (name, READERS.get(kind) or _label_reader(features[name].names, where))
            for name, kind in zip(fields, kinds, strict=True)
        )
        splits[split] = TfdsRecords(records, readers, make)
    return splits


def _check_fields(
    tfds: ModuleType, builder: Any, settings: ConfigDict, kinds: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the fields that the settings name, which must be of these kinds."""
    features, types = builder.info.features, tfds.features
    names = {
        "text": [name for name in features if isinstance(features[name], types.Text)],
        "label": [name for name in features if isinstance(features[name], types.ClassLabel)],
        "picture": [name for name in features if isinstance(features[name], types.Image)],
    }
    fields = tuple(settings.tfds_fields)
    wrong = [name not in names[kind] for name, kind in zip(fields, kinds, strict=False)]
    if len(fields) != len(kinds) or any(wrong):
        choices = [", ".join(names[kinds[0]])] if names[kinds[0]] else []
        if "label" in kinds and names["label"]:
            choices.append(f"{', '.join(names['label'])} for the label")
        raise UserError(
            f"data.tfds_fields={fields} are not {FIELD_KINDS[kinds]} of {builder.info.full_name}: "
            f"choose from {' and '.join(choices) or 'those of another dataset, this has none'}"
        )
    return fields


def _import_tfds() -> ModuleType:
    try:
        tfds = importlib.import_module("tensorflow_datasets")
        for name in ("array_record", "importlib_resources"):
            importlib.import_module(name)
        parts = ("download.downloader", "download.extractor", "utils.lazy_imports_utils")
        parts += ("features.image_feature",)
        inner = (importlib.import_module(f"tensorflow_datasets.core.{part}") for part in parts)
        downloader, extractor, lazy, images = inner
        downloader.MAX_RETRIES = DOWNLOAD_RETRIES  # pyright: ignore[reportAttributeAccessIssue]
        if importlib.util.find_spec("tensorflow") is None:
            extractor.tf = lazy.tensorflow = LOCAL_FILES  # pyright: ignore[reportAttributeAccessIssue]
            images._ImageEncoder._encode_image = _encode_png  # pyright: ignore[reportAttributeAccessIssue]
        # TFDS registers its older builders, WMT's and GLUE's among them, only if packages for
        # quite other data are installed too; importing these folders registers all that we need.
        for name in ("translate", "text", "image_classification"):
            importlib.import_module(f"tensorflow_datasets.{name}")
    except ImportError as error:
        raise UserError(
            f"data.source='tfds' lacks a package ({error}): pip install -r requirements.txt"
        ) from error
    return tfds


def _encode_png(encoder: Any, pixels: np.ndarray) -> bytes:
    """The PNG of pixels, which TFDS makes with TensorFlow."""
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "PNG")
    return file.getvalue()


def _open_file(path: os.PathLike | str, mode: str = "r") -> IO:
    return open(path, mode, encoding=None if "b" in mode else "utf-8")


# TFDS unpacks archives and lists files with functions of TensorFlow, which knows more file systems
# than a local one; without TensorFlow these stand in for them.
GFILE = SimpleNamespace(GFile=_open_file, glob=glob.glob, isdir=os.path.isdir)
LOCAL_FILES = SimpleNamespace(io=SimpleNamespace(gfile=GFILE), compat=SimpleNamespace(as_text=str))


def _make_builder(tfds: ModuleType, settings: ConfigDict) -> Any:
    name, folder = settings.tfds_name, os.path.expanduser(settings.tfds_dir)
    if not name:
        raise UserError(
            "data.tfds_name is empty: name one, such as "
            "config.data.tfds_name=ted_hrlr_translate/ru_to_en"
        )
    try:
        return tfds.builder(name, data_dir=folder or None)
    except Exception as error:  # of many kinds, and a builder's own
        names = tfds.list_builders(with_community_datasets=False)
        dataset = name.split("/")[0].split(":")[0]
        if dataset in names:
            names = [f"{dataset}/{config}" for config in tfds.builder_cls(dataset).builder_configs]
        near = difflib.get_close_matches(name, names, n=5)
        hint = f"did you mean {' or '.join(near)}?" if near else "see tensorflow.org/datasets"
        raise UserError(
            f"data.tfds_name={name!r} is not a dataset of TFDS ({_first_line(error)}): {hint}"
        ) from error


def _prepare_dataset(builder: Any, settings: ConfigDict) -> None:
    """Downloads and prepares a dataset, unless that is already done."""
    try:
        builder.download_and_prepare(file_format=FILE_FORMAT)
    except Exception as error:  # of the network, the disk, or the dataset's own script
        name, folder = settings.tfds_name, str(builder.data_dir_root)
        # The command line tool of TFDS will not start without TensorFlow.
        code = (
            "import tensorflow_datasets as t, tensorflow_datasets.translate, "
            "tensorflow_datasets.text, tensorflow_datasets.image_classification; "
            f"t.builder({name!r}, data_dir={folder!r})"
            f".download_and_prepare(file_format={FILE_FORMAT!r})"
        )
        raise UserError(
            f"data.tfds_name={name!r} is not prepared in {folder} and could not be "
            f'({_first_line(error)}): on a machine with network run once python -c "{code}" and '
            "set config.data.tfds_dir to a copy of that folder, or config.data.source=files"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
