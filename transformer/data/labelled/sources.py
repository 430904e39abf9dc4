"""Sources of labelled texts: generated, read from files, or from TensorFlow Datasets.

Errors in files, names or labels are raised when the source is opened, since all text is read then.
"""

import collections
import dataclasses
import json
import logging
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.data import tfds
from transformer.data.characters import canonicalize
from transformer.data.files.delimited import LABELS
from transformer.data.files.locate import locate, split_sources
from transformer.data.files.rows import BrokenError, listed, text_value
from transformer.data.files.table import TableFile, describe_rows
from transformer.data.held_out import hold_out
from transformer.data.labelled import toy_reviews
from transformer.data.pairs import SPLITS, Labelled
from transformer.errors import UserError, shorten

LABELS_SHOWN = 5  # labels that a message quotes
# Differences between labels that are probably one, apart from case: blanks, and outer signs.
BLANKS, SIGNS = re.compile(r"(?<=\w)[\s_-]+(?=\w)"), re.compile(r"^[ .,;:!?\"']+|[ .,;:!?\"']+$")
# If column names say nothing, a sample of rows shows which column has texts and which labels.
MAX_SAMPLE, MAX_TEXT = 2000, 300  # sampled rows, as a file may be sorted; characters per value
TEXTS_PER_LABEL, MAX_LABEL = 5, 60  # minimum in the sample; maximum characters
MIN_WORDS, WORD = 3, 4  # minimum mean words of a text; characters per word in unspaced scripts
NAME = re.compile(r"[^\W\d]\S*( \S+){0,2}|")  # a column name
Splits = Mapping[str, Any]  # iterables of `Labelled`, or lists of `LabelledPicture`
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class LabelledSource:
    """A corpus of labelled texts or pictures.

    Attributes:
      splits: the items of "train", "validation" and "test", which can be read repeatedly.
      labels: the classes in the training text, sorted.
      sizes: the number of items of each label in each split.
      pixels: the pictures of each split, [N, S, S, C].
    """

    splits: Splits
    labels: tuple[str, ...]
    sizes: Mapping[str, Mapping[str, int]]
    pixels: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def open_labelled(settings: ConfigDict) -> LabelledSource:
    """Returns the labelled texts that `config.data` describes, checked."""
    if settings.source not in REGISTRY:
        raise UserError(
            f"data.source={settings.source!r} gives no labelled texts: choose one of "
            f"{', '.join(REGISTRY)}"
        )
    splits = REGISTRY[settings.source](settings)
    return LabelledSource(splits, *check_classes(splits, settings))


def check_classes(
    splits: Mapping[str, Iterable[Any]], settings: ConfigDict
) -> tuple[tuple[str, ...], dict[str, Mapping[str, int]]]:
    """Returns the sorted classes of the training items, and the count of each class by split."""
    sizes = {split: collections.Counter(item.label for item in splits[split]) for split in SPLITS}
    labels, key = tuple(sorted(sizes["train"])), FIRST_KEY.get(settings.source, "label_field")
    if len(labels) < 2:
        what = f"only the label {shorten(labels[0])!r}" if labels else "no texts"
        raise UserError(
            f"the training text has {what}, and a classifier needs two classes: check "
            f"config.data.{key}"
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
                f"({_list_labels(labels)}): correct them, train on such texts too, or check "
                f"config.data.{key}"
            )
    return labels, dict(sizes)


def _list_labels(labels: Sequence[str]) -> str:
    shown = ", ".join(repr(shorten(label, 40)) for label in labels[:LABELS_SHOWN])
    return f"the labels {shown}" + (
        f" and {len(labels) - LABELS_SHOWN:,} more" * (len(labels) > LABELS_SHOWN)
    )


def _toy_reviews(settings: ConfigDict) -> Splits:
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS}
    return toy_reviews.generate(settings.seed, sizes)


def _labelled_files(settings: ConfigDict) -> Splits:
    """Returns the labelled texts of the files that the settings name, by split."""
    sources = split_sources(settings)
    files = {split: labelled_file(settings, split) for split in SPLITS if sources[split]}
    for line in describe_rows(files.values()):
        logger.info(line)
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS if not sources[split]}
    splits = hold_out(files["train"], sizes, settings, key=lambda item: canonicalize(item.text))
    return {**files, **splits}


def count_all(settings: ConfigDict) -> int:
    """Returns the number of texts in the training file, including those that are held out."""
    return sum(1 for _ in labelled_file(settings, "train"))


def count_train(settings: ConfigDict) -> int:
    """Returns the number of training texts in the files, without held-out texts."""
    unnamed = (split for split, name in split_sources(settings).items() if not name)
    return max(0, count_all(settings) - sum(settings[f"{split}_size"] for split in unnamed))


def labelled_file(settings: ConfigDict, split: str) -> TableFile[Labelled]:
    """Returns the labelled texts of a split's file or folder; `settings` is `config.data`."""
    key = f"{split}_source"
    path = locate(settings, key, split_sources(settings)[split], folders=True)
    return labelled_table(path, settings)


def labelled_table(path: Path, settings: ConfigDict) -> TableFile[Labelled]:
    """Returns the labelled texts in the rows of a file."""
    keys = "text_field", "label_field"
    return TableFile(path, settings, keys, _labelled_rows, exact=True, several="text_field")


def _labelled_rows(*values: Any) -> Labelled:
    """Returns an item of joined texts and a label, which may also be an integer or a boolean."""
    *texts, label = values
    if isinstance(label, bool | int):
        label = json.dumps(label)
    text = " ".join(filter(None, (text_value(each, "text").strip() for each in texts)))
    for name, value in (("text", text), ("label", label)):
        if not canonicalize(text_value(value, name)):
            raise BrokenError(f"the {name} is empty")
    return Labelled(text, canonicalize(label))


REGISTRY: dict[str, Callable[[Any], Splits]] = {
    "toy_reviews": _toy_reviews,
    "files": _labelled_files,
    "tfds": lambda settings: tfds.open_splits(settings, ("text", "label"), Labelled),
}
# For each source, the key to check first if its training text is unusable.
FIRST_KEY = {"toy_reviews": "train_size", "files": "label_field", "tfds": "tfds_train"}


# -- guessing the columns of texts and labels


def guess_columns(settings: ConfigDict) -> dict[str, str]:
    """Returns the keys that name the columns of texts and labels; {} if the source is a folder.

    The label column is recognised by its name, or is the only one with few values. The text column
    is `text`, or else the one with the most words, with other columns of several words, as titles.
    """
    file = labelled_file(settings, "train")
    columns = _sample_columns(file) if file.unit != "file" else {}
    if not columns:
        return {}
    labels = [name for name, values in columns.items() if _is_label(values)]
    called = {name.lower(): name for name in labels or columns}
    labels = [called[name] for name in LABELS if name in called][:1] or labels
    words = {name: _mean_words(columns[name]) for name in columns if name not in labels[:1]}
    least = min(MIN_WORDS, max(words.values(), default=0))
    texts = [name for name, count in words.items() if count >= least > 0]
    texts = ["text"] if "text" in texts else texts
    fields = {"data.text_field": ",".join(texts) or "TEXTS"}
    fields["data.label_field"] = (*labels, "LABELS")[0]
    if not texts or len(labels) != 1:
        flags = " ".join(f"--config.{key}={shlex.quote(name)}" for key, name in fields.items())
        raise UserError(
            f"{file.source} has the columns {listed(map(repr, columns))}, labels may be in "
            f"{listed(map(repr, labels))}, texts in {listed(map(repr, texts))}: set {flags}"
        )
    return fields


def _sample_columns(file: TableFile) -> dict[str, Sequence[Any]]:
    """Returns a sample of each column, by column name, or by number if there is no header."""
    names = file.open(file.fields._replace(keys=("",), names=("0",))).names
    fields = file.fields._replace(keys=("",) * len(names), names=tuple(names))
    rows, step = [], 1
    for number, (_, row) in enumerate(file.open(fields).rows):
        rows += [row] if isinstance(row, tuple) and number % step == 0 else []
        if len(rows) > MAX_SAMPLE:
            rows, step = rows[::2], 2 * step
    first, columns = [f"{cell}".strip() for cell in (*rows, ())[0]], [*zip(*rows[1:], strict=True)]
    if columns and names == [*map(str, range(len(names)))]:
        is_new = not any(map(tuple.__contains__, columns, rows[0])) and any(map(_is_label, columns))
        if (is_new and all(map(NAME.fullmatch, first))) or {*LABELS} & {*map(str.lower, first)}:
            return dict(zip(first, columns, strict=True))
    return dict(zip(names, zip(*rows, strict=True), strict=False))


def _is_label(values: Sequence[Any]) -> bool:
    """Returns whether a column has a few short values that repeat."""
    is_short = all(
        isinstance(v, str | int) and 0 < len(f"{v}".strip()) <= MAX_LABEL for v in values
    )
    return is_short and 2 <= len({*values}) <= max(2, len(values) / TEXTS_PER_LABEL)


def _mean_words(values: Sequence[Any]) -> float:
    """Returns the mean number of words of a column's values; 0 if they are not texts."""
    is_varied = 2 * len({value for value in values if isinstance(value, str)}) >= len(values)
    texts = [value[:MAX_TEXT] for value in values if isinstance(value, str)]
    characters = "".join("".join(texts).split())
    letters = sum(unicodedata.category(c)[0] in "LM" for c in characters)
    if 2 * letters <= len(characters) or not is_varied:
        return 0
    wide = (sum(not c.isascii() for c in text) // WORD for text in texts)
    return sum(map(max, wide, (len(text.split()) for text in texts))) / len(values)
