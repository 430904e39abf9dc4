"""Iterables over items, such as sentence pairs, in a data file with rows."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from ml_collections import ConfigDict

from transformer.data.files.arrow import is_dataset, read_arrow
from transformer.data.files.delimited import read_delimited, read_jsonl, read_sheet
from transformer.data.files.locate import class_files
from transformer.data.files.rows import BrokenError, Fields, Rows, RowTable, listed
from transformer.data.files.text import HEAD_BYTES, content_of, open_unpacked, plain_name
from transformer.data.files.tmx import memories, read_tmx
from transformer.errors import UserError, shorten

Item = TypeVar("Item")
DATASET = "folder"  # a folder of Hugging Face's `datasets`
CLASSES = "folder of each class"
TEXTS = ("", ".txt", ".text", ".md")  # suffixes of text files in class folders
ROWS_SHOWN, CUT = 1000, 80  # rows to check for sentences; characters per value
NO_SENTENCE = re.compile(r"[\W\d_]*")  # a value without letters


def read_folders(path: Path, fields: Fields) -> RowTable:
    """Returns the text of each file in a class folder, with the folder name as its label."""
    texts, left_out = class_files(path, TEXTS)
    if not texts:
        raise UserError(
            f"{path} has no text in folders of classes, and no file or folder train{left_out}: "
            "name a file of it in config.data.train_source"
        )
    about = f"its classes are {listed(repr(label) for label in dict.fromkeys(t[0] for t in texts))}"
    return RowTable(about + left_out, [*fields.names], _text_rows(path, texts, fields))


def _text_rows(folder: Path, texts: list[tuple[str, Path]], fields: Fields) -> Rows:
    for label, file in texts:
        with open_unpacked(file) as stream:
            data = stream.read()
        try:
            text = data.decode("utf-8-sig")
            row = tuple(label if key == "label_field" else text for key in fields.keys)
        except UnicodeDecodeError as error:
            row = BrokenError(f"byte 0x{data[error.start]:02X} is not UTF-8")
        yield str(file.relative_to(folder)), row


FORMATS: dict[str, Callable[[Path, Fields], RowTable]] = {
    ".tsv": read_delimited,
    ".csv": read_delimited,
    ".jsonl": read_jsonl,
    ".xlsx": read_sheet,
    ".tmx": read_tmx,
    ".parquet": read_arrow,
    ".arrow": read_arrow,
    DATASET: read_arrow,
    CLASSES: read_folders,
}
ROWS_ALONE = FORMATS.keys() - {".tsv", ".csv"}  # formats whose lines are never sentences


def format_of(path: Path, any_text: bool = False) -> str:
    """Returns the key of `FORMATS` for a path, or the file suffix if the format is not a key.

    The suffix is checked first, ignoring a compression suffix, and then the first bytes.

    Args:
      any_text: see `content_of`.
    """
    if not path.is_file():
        is_classes = path.is_dir() and not is_dataset(path)
        return ".tmx" if memories(path) else CLASSES if is_classes else DATASET
    if (suffix := Path(plain_name(path.name)).suffix) in FORMATS:
        return suffix
    with open_unpacked(path) as file:
        return content_of(file.read(HEAD_BYTES), path, any_text) or suffix


class TableFile(Generic[Item]):
    """The items of a data file; each iteration reads the file from the start.

    The format is TSV unless the name or content indicates another format. A malformed row is an
    error unless `config.data.skip_broken` is set.

    Args:
      keys: the keys of `config.data` that name the fields.
      make: function that makes an item from the values; raises BrokenError for invalid values.
      exact: see `Fields`.
      several: the key that may name several fields, separated by commas.
    """

    def __init__(
        self,
        source: Path,
        settings: ConfigDict,
        keys: tuple[str, ...],
        make: Callable[..., Item],
        exact: bool = False,
        several: str = "",
    ):
        texts = {k: settings[k].split(",") if k == several else [settings[k]] for k in keys}
        keys, names = zip(*((k, name) for k in keys for name in texts[k]), strict=True)
        dialect = [settings[key].replace("\\t", "\t") for key in ("separator", "quote")]
        self.source, self.fields, self._make = source, Fields(keys, names, exact, *dialect), make
        if "" in names or len(set(names)) < len(names):
            raise UserError(f"{self.fields}: name different fields, not {', '.join(names)!r}")
        if max(map(len, dialect)) > 1:
            raise UserError("config.data.separator and config.data.quote: each is one character")
        self.skip_broken = settings.skip_broken
        self._read = FORMATS.get(format_of(source), read_delimited)
        is_row, is_file = self._read is read_arrow, self._read is read_folders
        self.unit = "row" if is_row else "file" if is_file else "line"

    def __iter__(self) -> Iterator[Item]:
        for record in self.records():
            if not isinstance(record, BrokenError):
                yield record
            elif not self.skip_broken:
                raise UserError(
                    f"{self.source}, {self.unit} {record.place}: {record}: fix the {self.unit}, or "
                    f"set config.data.skip_broken=True to skip such rows, or correct {self.fields}"
                )

    def open(self, fields: Fields | None = None) -> RowTable:
        """Opens the file to read the given fields, which are `self.fields` by default."""
        return self._read(self.source, fields or self.fields)

    def records(self) -> Iterator[Item | BrokenError]:
        """Yields the item of each row, or the error of a malformed row."""
        for place, values in self.open().rows:
            try:
                if isinstance(values, BrokenError):
                    raise values
                item = self._make(*values)
            except BrokenError as broken:
                broken.place, item = place, broken
            yield item

    def describe(self) -> Iterator[str]:
        """Yields the log lines of `describe_rows` for this file."""
        about = self.open().about
        reads = f"reads {listed(self.fields.names)} as {self.fields}; " * (self.unit != "file")
        yield f"{self.source}: {reads}{about}"
        first = itertools.islice(self.open().rows, ROWS_SHOWN)
        rows = [[str(value)[:CUT] for value in row] for _, row in first if isinstance(row, tuple)]
        for key, *values in zip(self.fields.keys, *rows, strict=bool(rows)):
            wrong = [value for value in values if NO_SENTENCE.fullmatch(value)]
            if key != "label_field" and 2 * len(wrong) > len(values):
                what = f"config.data.{key} reads ids or empty cells, such as {shorten(wrong[0])!r}"
                yield f"warning: {self.source}: {what}: name a column of sentences"
        broken = (isinstance(record, BrokenError) for record in self.records())
        if self.skip_broken and (count := sum(broken)):
            yield f"{self.source}: skipped {count:,} broken {self.unit}s"


def describe_rows(files: Iterable[object]) -> list[str]:
    """Returns log lines about the columns of each table, and about skipped malformed rows.

    A column without sentences gets a warning.
    """
    return [line for file in files if isinstance(file, TableFile) for line in file.describe()]
