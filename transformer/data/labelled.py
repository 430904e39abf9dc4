"""Labelled texts: sources, tokens and classes, and batches.

Opening a source reads all texts, so errors in files, names or labels are raised early.
"""

import collections
import dataclasses
import hashlib
import itertools
import json
import logging
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data import held_out, tfds
from transformer.data.buckets import BucketPlan
from transformer.data.characters import canonicalize
from transformer.data.encode import (
    Encoded,
    EncodedPart,
    Restartable,
    batched,
    encode,
    encode_training_text,
    make_tokenizer,
)
from transformer.data.files.delimited import LABELS
from transformer.data.files.locate import locate, split_sources
from transformer.data.files.rows import BrokenError, listed, text_value
from transformer.data.files.table import TableFile, describe_rows
from transformer.data.pairs import SPLITS, Labelled, choose_source, split_sizes
from transformer.data.synthetic import circuits, toy_reviews
from transformer.data.tokenizer import BOS_ID, Ids, Tokenizer
from transformer.data.tokenizer.train import MAX_LINE_BYTES
from transformer.errors import UserError, shorten

SIGNS = " .,;:!?\"'"  # characters stripped from labels to find labels that are probably the same
# If column names are uninformative, text and label columns are inferred from sampled rows.
MAX_SAMPLE, MAX_TEXT = 2000, 300  # rows, sampled since a file may be sorted; characters per value
TEXTS_PER_LABEL, MAX_LABEL = 5, 60  # minimum texts per label in the sample; characters per label
MIN_WORDS, WORD = 3, 4  # minimum mean words per text; characters per word in unspaced scripts
NAME = re.compile(r"[^\W\d]\S*( \S+){0,2}|")  # a column name
ENCODE_AT_ONCE = 10_000  # texts
LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)  # frequent in reviews from the web
NO_LABEL = 0  # marks a padding row

Splits = Mapping[str, Any]  # iterables of `Labelled`, or lists of `LabelledPicture`
logger = logging.getLogger(__name__)


# -- sources


@dataclasses.dataclass(frozen=True)
class LabelledSource:
    """A corpus of labelled texts or images.

    Attributes:
      splits: the items of "train", "validation" and "test", which can be read repeatedly.
      labels: the classes in the training split, sorted.
      sizes: the number of items per label, for each split.
      pixels: the images of each split, [N, S, S, C].
    """

    splits: Splits
    labels: tuple[str, ...]
    sizes: Mapping[str, Mapping[str, int]]
    pixels: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def open_labelled(settings: ConfigDict) -> LabelledSource:
    """Opens and validates the labelled texts configured in `config.data`."""
    splits = choose_source(settings, REGISTRY)(settings)
    return LabelledSource(splits, *check_classes(splits, settings))


def check_classes(
    splits: Mapping[str, Iterable[Any]], settings: ConfigDict
) -> tuple[tuple[str, ...], dict[str, Mapping[str, int]]]:
    """Returns the sorted classes of the training items, and the class counts of each split."""
    sizes = {split: collections.Counter(item.label for item in splits[split]) for split in SPLITS}
    labels = tuple(sorted(sizes["train"]))
    if len(labels) < 2:
        what = f"only the label {shorten(labels[0])!r}" if labels else "no texts"
        raise UserError(
            f"the training text has {what}, and a classifier needs two classes: check "
            "config.data.label_field, or name or generate more text"
        )
    similar = collections.defaultdict(list)
    for label in labels:
        similar[label.casefold().strip(SIGNS) or label].append(repr(label))
    for names in similar.values() if settings.source == "files" else ():
        if len(names) > 1:
            logger.warning(
                f"warning: the labels {listed(names)} are likely one class, and are learnt as "
                "several: write them the same way"
            )
    for split in SPLITS[1:]:
        if new := sorted(set(sizes[split]) - set(labels)):
            raise UserError(
                f"the {split} text has the labels {listed(map(repr, new))}, which the training "
                f"text never has (its labels are {listed(map(repr, labels))}): correct them, train "
                "on such texts too, or check config.data.label_field"
            )
    return labels, dict(sizes)


def _labelled_files(settings: ConfigDict) -> Splits:
    """Returns the labelled texts of each split from the configured files."""
    sources = split_sources(settings)
    files = {split: labelled_file(settings, split) for split in SPLITS if sources[split]}
    for line in describe_rows(files.values()):
        logger.info(line)
    sizes = {split: getattr(settings, f"{split}_size") for split in SPLITS if not sources[split]}
    train = files["train"]
    splits = held_out.hold_out(
        train, train.source, sizes, settings, key=lambda item: canonicalize(item.text)
    )
    return {**files, **splits}


def count_all(settings: ConfigDict) -> int:
    """Returns the number of texts in the training file, including held-out texts."""
    return sum(1 for _ in labelled_file(settings, "train"))


def count_train(settings: ConfigDict) -> int:
    """Returns the number of training texts in the files, excluding held-out texts."""
    unnamed = (split for split, name in split_sources(settings).items() if not name)
    return max(0, count_all(settings) - sum(settings[f"{split}_size"] for split in unnamed))


def labelled_file(settings: ConfigDict, split: str) -> TableFile[Labelled]:
    """Returns the labelled texts in a split's file or folder, given `config.data`."""
    key = f"{split}_source"
    path = locate(settings, key, split_sources(settings)[split], folders=True)
    return labelled_table(path, settings)


def labelled_table(path: Path, settings: ConfigDict) -> TableFile[Labelled]:
    """Returns the labelled texts in the rows of a file."""
    keys = "text_field", "label_field"
    return TableFile(path, settings, keys, _labelled_rows, exact=True, several="text_field")


def _labelled_rows(*values: Any) -> Labelled:
    """Joins the texts of a row and adds its label, which may also be an integer or a boolean."""
    *texts, label = values
    if isinstance(label, bool | int):
        label = json.dumps(label)
    text = " ".join(filter(None, (text_value(each, "text").strip() for each in texts)))
    for name, value in (("text", text), ("label", label)):
        if not canonicalize(text_value(value, name)):
            raise BrokenError(f"the {name} is empty")
    return Labelled(text, canonicalize(label))


REGISTRY: dict[str, Callable[[Any], Splits]] = {
    "toy_reviews": lambda settings: toy_reviews.generate(settings.seed, split_sizes(settings)),
    "addition": lambda settings: circuits.add_numbers(settings.seed, split_sizes(settings)),
    "files": _labelled_files,
    "tfds": lambda settings: tfds.open_splits(settings, ("text", "label"), Labelled),
}


# -- guessing the columns of texts and labels


def guess_columns(settings: ConfigDict) -> dict[str, str]:
    """Returns config values for the text and label columns, or {} if the source is a folder.

    The label column has a known name, or is the only one with few distinct values. The text column
    is `text` if it exists; otherwise, all columns with enough words, such as titles, are chosen.
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
    """Returns sampled values, keyed by column name, or by column number if there is no header."""
    names = file.open(file.fields._replace(keys=("",), names=("0",))).names
    fields = file.fields._replace(keys=("",) * len(names), names=tuple(names))
    step = 1 + sum(1 for _ in file.open(fields).rows) // MAX_SAMPLE
    sample = itertools.islice(file.open(fields).rows, 0, None, step)
    rows = [row for _, row in sample if isinstance(row, tuple)]
    first, columns = [f"{cell}".strip() for cell in (*rows, ())[0]], [*zip(*rows[1:], strict=True)]
    if columns and names == [*map(str, range(len(names)))]:
        is_new = not any(map(tuple.__contains__, columns, rows[0])) and any(map(_is_label, columns))
        if (is_new and all(map(NAME.fullmatch, first))) or {*LABELS} & {*map(str.lower, first)}:
            return dict(zip(first, columns, strict=True))
    return dict(zip(names, zip(*rows, strict=True), strict=False))


def _is_label(values: Sequence[Any]) -> bool:
    """Returns whether a column has few distinct values, all of them short."""
    is_short = all(
        isinstance(v, str | int) and 0 < len(f"{v}".strip()) <= MAX_LABEL for v in values
    )
    return is_short and 2 <= len({*values}) <= max(2, len(values) / TEXTS_PER_LABEL)


def _mean_words(values: Sequence[Any]) -> float:
    """Returns the mean number of words per value, or 0 if the values are not texts."""
    is_varied = 2 * len({value for value in values if isinstance(value, str)}) >= len(values)
    texts = [value[:MAX_TEXT] for value in values if isinstance(value, str)]
    characters = "".join("".join(texts).split())
    letters = sum(unicodedata.category(c)[0] in "LM" for c in characters)
    if 2 * letters <= len(characters) or not is_varied:
        return 0
    wide = (sum(not c.isascii() for c in text) // WORD for text in texts)
    return sum(map(max, wide, (len(text.split()) for text in texts))) / len(values)


# -- tokens and classes


class EncodedTexts(Encoded):
    """Labelled texts as model inputs; each text starts with begin-of-sentence."""

    before = 0  # positions before the tokens

    @property
    def labels(self) -> Int[np.ndarray, "texts"]:
        """The class id of each text, from zero."""
        return self.arrays["labels"]

    def gather(self, numbers: Int[np.ndarray, "*rows"], width: int) -> Int[np.ndarray, "*rows _"]:
        """Returns the token ids of the texts `numbers`; see `TokenStore.gather`."""
        return self.store.gather(numbers, width)[0]

    def items(self) -> list[Ids]:
        """Returns the token ids of each text."""
        return [self.store[i] for i in range(len(self.store))]


def read_texts(texts: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Returns each text as token ids that start with begin-of-sentence, for "first" pooling.

    HTML line breaks become spaces.
    """
    return [[BOS_ID, *ids] for ids in tokenizer.encode(list(map(_in_one_line, texts)))]


def _in_one_line(text: str) -> str:
    return LINE_BREAK.sub(" ", text)


def _labelled_lines(text: str) -> list[str]:
    """Splits a text that exceeds the maximum line length of tokenizer training."""
    step = MAX_LINE_BYTES // 4 if len(text.encode()) > MAX_LINE_BYTES else len(text)
    return [text[start : start + step] for start in range(0, len(text), step)]


def encode_labelled(
    items: Iterable[Labelled], labels: Sequence[str], tokenizer: Tokenizer, max_tokens: int
) -> EncodedTexts:
    """Encodes each text as its first `max_tokens` token ids, and its label as a class id."""
    encoded = encode(_labelled_parts(items, labels, max_tokens, tokenizer))
    return EncodedTexts(**vars(encoded))


def _labelled_parts(
    items: Iterable[Labelled], labels: Sequence[str], max_tokens: int, tokenizer: Tokenizer
) -> Iterator[EncodedPart]:
    number = {label: i for i, label in enumerate(labels)}
    for chunk in batched(items, ENCODE_AT_ONCE):
        texts = read_texts([item.text for item in chunk], tokenizer)
        tokens = [ids[:max_tokens] for ids in texts]
        numbers = {"labels": [number[item.label] for item in chunk]}
        cut = sum(len(ids) > max_tokens for ids in texts)
        yield EncodedPart({"tokens": tokens}, numbers, {"cut": cut})


def prepare_labelled(
    items: Iterable[Labelled],
    labels: Sequence[str],
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    initial: Path | None = None,
) -> tuple[EncodedTexts, Tokenizer]:
    """Returns the encoded training texts and their tokenizer; `items` is read several times.

    Args:
      labels: class names, indexed by class id.
      folder, initial: see `make_tokenizer`.
    """
    texts_digest, labels_digest, count = hashlib.sha256(), hashlib.sha256(), 0
    for item in items:
        count += 1
        texts_digest.update(f"{len(item.text)} {item.text}".encode())
        labels_digest.update(f"{len(item.label)} {item.label}".encode())
    content = texts_digest.hexdigest()
    lines = Restartable(
        lambda: (line for item in items for line in _labelled_lines(_in_one_line(item.text)))
    )
    # The key differs from the key of documents, which split the same text into different lines.
    name = f"labelled {content}"
    tokenizer = make_tokenizer(lines, name, data, settings, folder, initial, count=count)
    parts = _labelled_parts(items, labels, data.max_tokens, tokenizer)
    key = ("labelled", content, labels_digest.hexdigest(), data.max_tokens)
    encoded = encode_training_text(parts, {"tokens": tokenizer}, key, data, settings, initial)
    return EncodedTexts(**vars(encoded)), tokenizer


# -- batches


class LabelledBatch(NamedTuple):
    """A batch of B inputs with class ids from one; 0 marks a padding row or an unknown class.

    `source` has the model inputs: token ids padded with 0, or a `PictureText`.
    """

    source: Any
    labels: Int[np.ndarray, "B"]


def stack_labels(labels: Sequence[int], rows: int) -> Int[np.ndarray, "rows"]:
    """Shifts class ids to start at one, and pads them with 0 to `rows` entries."""
    padding = (0, rows - len(labels))
    return np.pad(np.add(labels, 1), padding, constant_values=NO_LABEL).astype(np.int32)


class LabelledPlan(BucketPlan[LabelledBatch]):
    """All training batches of `EncodedTexts` or `EncodedPictures`; see `BucketPlan`."""

    def __init__(self, texts: Any, *numbers: Any, **named: Any):
        self.texts = texts
        super().__init__(texts.before + texts.store.lengths, *numbers, **named)

    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> LabelledBatch:
        """Returns model inputs and class ids; all are zero in a padding row."""
        labels = np.where(numbers < 0, NO_LABEL, self.texts.labels[numbers] + 1)
        sources = self.texts.gather(numbers, length - self.texts.before)
        return LabelledBatch(sources, labels.astype(np.int32))
