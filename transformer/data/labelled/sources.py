"""Sources of labelled texts: generated, read from a file, or from TensorFlow Datasets.

Errors in files, names or labels are raised when they are opened: all text is read once then.
"""

import collections
import dataclasses
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.data import tfds
from transformer.data.characters import canonicalize
from transformer.data.files.locate import locate, split_sources
from transformer.data.files.rows import BrokenError, listed, text_value
from transformer.data.files.table import FORMATS, TableFile, format_of
from transformer.data.held_out import check_not_empty, hold_out
from transformer.data.labelled import toy_reviews
from transformer.data.labelled.columns import flags, guess_columns
from transformer.data.pairs import SPLITS, Labelled
from transformer.errors import UserError, shorten

# Above this number of labels a text, and above FEW_LABELS, they are names of rows, not classes.
LABELS_PER_TEXT = 0.5
FEW_LABELS = 20
LABELS_SHOWN = 5  # labels that a message quotes
# What labels that are likely one differ in, besides case: blanks and signs around them.
BLANKS, SIGNS = re.compile(r"(?<=\w)[\s_-]+(?=\w)"), re.compile(r"^[ .,;:!?\"']+|[ .,;:!?\"']+$")
Splits = Mapping[str, Iterable[Any]]  # of `Labelled`, or `LabelledPicture`
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class LabelledSource:
    """A corpus of labelled texts.

    Attributes:
      splits: the texts of "train", "validation" and "test", which can be read repeatedly.
      labels: the classes, sorted: those that the training text has.
      sizes: how many texts of each label are in each split.
      broken: how many broken lines were skipped, by file.
    """

    splits: Splits
    labels: tuple[str, ...]
    sizes: Mapping[str, Mapping[str, int]]
    broken: Mapping[str, int]

    def describe(self, unit: str = "texts") -> list[str]:
        """Returns a line about each split, and one about each file with broken lines."""
        lines = []
        for split, sizes in self.sizes.items():
            counts = ", ".join(f"{label}: {sizes[label]:,}" for label in self.labels)
            lines.append(f"{split}: {sum(sizes.values()):,} {unit} ({counts})")
        passed = [f"{path}: skipped {n:,} broken lines" for path, n in self.broken.items()]
        return lines + passed


def open_labelled(settings: ConfigDict) -> LabelledSource:
    """Returns the labelled texts that `config.data` describes, checked."""
    if settings.source not in REGISTRY:
        raise UserError(
            f"data.source={settings.source!r} gives no labelled texts: choose one of "
            f"{', '.join(REGISTRY)}"
        )
    splits, broken = REGISTRY[settings.source](settings)
    return LabelledSource(splits, *check_classes(splits, settings), broken)


def check_classes(
    splits: Mapping[str, Iterable[Any]], settings: ConfigDict
) -> tuple[tuple[str, ...], dict[str, Mapping[str, int]]]:
    """Returns the classes of the training items, sorted, and how many of each a split has."""
    sizes = {split: collections.Counter(item.label for item in splits[split]) for split in SPLITS}
    labels = tuple(sorted(sizes["train"]))
    if len(labels) > LABELS_PER_TEXT * sum(sizes["train"].values()) and len(labels) > FEW_LABELS:
        raise UserError(_too_many_classes(settings, labels, sum(sizes["train"].values())))
    if len(labels) < 2:
        what = f"only the label {shorten(labels[0])!r}" if labels else "no texts"
        raise UserError(
            f"the training text has {what}, and a classifier needs two classes: check "
            f"config.data.{FIRST_KEY.get(settings.source, 'label_field')}"
        )
    similar = collections.defaultdict(list)
    for label in labels:
        similar[SIGNS.sub("", BLANKS.sub(" ", label.casefold())) or label].append(repr(label))
    for names in similar.values() if settings.source == "files" else ():
        if len(names) > 1:
            logger.warning(
                f"warning: the labels {listed(names)} are likely one class, and are learnt as "
                "several: write them the same way"
            )
    for split in SPLITS[1:]:
        if new := sorted(set(sizes[split]) - set(labels)):
            raise UserError(
                f"the {split} text has {_list_labels(new)}, which the training text never has "
                f"({_list_labels(labels)}): correct them, or train on such texts too"
            )
    return labels, dict(sizes)


def _list_labels(labels: Sequence[str]) -> str:
    shown = ", ".join(repr(shorten(label, 40)) for label in labels[:LABELS_SHOWN])
    return f"the labels {shown}" + (
        f" and {len(labels) - LABELS_SHOWN:,} more" * (len(labels) > LABELS_SHOWN)
    )


def _too_many_classes(settings: ConfigDict, labels: Sequence[str], texts: int) -> str:
    """The message for nearly as many labels as texts: they are row numbers, or the texts."""
    what = f"{len(labels):,} different labels of {texts:,} texts ({_list_labels(labels)})"
    if settings.source != "files":
        return f"{what}: these are not classes: check config.data.tfds_fields"
    file = labelled_file(settings, "train")
    return (
        f"{file.source} has {what}, so data.label_field={shorten(settings.label_field)!r} is "
        f"hardly the column of the classes; {file.open().about}: set "
        f"{flags(guess_columns(file))}"
    )


def _toy_reviews(settings: ConfigDict) -> tuple[Splits, dict[str, int]]:
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS}
    return toy_reviews.generate(settings.seed, sizes), {}


def _labelled_files(settings: ConfigDict) -> tuple[Splits, dict[str, int]]:
    """The labelled texts of the files that the settings name, and their broken lines."""
    sources = split_sources(settings)
    files = {split: labelled_file(settings, split) for split in SPLITS if sources[split]}
    broken = {}
    for split, file in files.items():
        for line in file.describe_columns():
            logger.info(line)
        if settings.skip_broken and (count := file.count_broken()):
            broken[str(file.source)] = count
        if split != "train":  # which hold_out reads
            check_not_empty(file, sum(1 for _ in file))
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS if not sources[split]}
    splits = hold_out(files["train"], sizes, settings, key=lambda item: canonicalize(item.text))
    return {**files, **splits}, broken


def count_all(settings: ConfigDict) -> int:
    """Returns the number of texts of the training file, those included that are held out."""
    return sum(1 for _ in labelled_file(settings, "train"))


def count_train(settings: ConfigDict) -> int:
    """Returns the number of training texts of the files, without held-out ones."""
    unnamed = (split for split, name in split_sources(settings).items() if not name)
    return max(0, count_all(settings) - sum(settings[f"{split}_size"] for split in unnamed))


def labelled_file(settings: ConfigDict, split: str) -> TableFile[Labelled]:
    """Returns the labelled texts of a split's file or folder; `settings` is `config.data`."""
    key = f"{split}_source"
    path = locate(settings, key, split_sources(settings)[split], folders=True)
    return labelled_table(path, settings, f"data.{key}")


def labelled_table(path: Path, settings: ConfigDict, name: str) -> TableFile[Labelled]:
    """Returns the labelled texts in the rows of a file, which the key `name` names."""
    if format_of(path) not in FORMATS:
        raise UserError(
            f"{name}={path.name!r} is none of {', '.join(FORMATS)}: name a file of labelled texts, "
            "and give it the ending of its format"
        )
    keys = "text_field", "label_field"
    return TableFile(path, settings, keys, _labelled_rows, exact=True, several="text_field")


def _labelled_rows(*values: Any) -> Labelled:
    """Returns texts as one, with a label, which may be a whole number or a truth value too."""
    *texts, label = values
    if isinstance(label, bool | int):
        label = json.dumps(label)
    text = " ".join(filter(None, (text_value(each, "text").strip() for each in texts)))
    for name, value in (("text", text), ("label", label)):
        if not canonicalize(text_value(value, name)):
            raise BrokenError(f"the {name} is empty")
    return Labelled(text, canonicalize(label))


REGISTRY: dict[str, Callable[[Any], tuple[Splits, dict[str, int]]]] = {
    "toy_reviews": _toy_reviews,
    "files": _labelled_files,
    "tfds": lambda settings: (tfds.open_splits(settings, ("text", "label"), Labelled), {}),
}
# The key to check first if a source's training text is unusable.
FIRST_KEY = {"toy_reviews": "train_size", "files": "label_field", "tfds": "tfds_train"}
