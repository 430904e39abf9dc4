"""A file of rows in any of the formats, as items such as pairs or labelled texts."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from transformer.data.files.arrow import describe_arrow, read_arrow
from transformer.data.files.compression import plain_name
from transformer.data.files.delimited import describe_csv, describe_tsv, read_csv, read_tsv
from transformer.data.files.json_lines import describe_jsonl, read_jsonl
from transformer.data.files.rows import Broken, BrokenError, Fields, Row
from transformer.data.files.tmx import describe_tmx, read_tmx
from transformer.errors import UserError

Item = TypeVar("Item")


class Format(NamedTuple):
    """A format of files.

    Attributes:
      read: yields the rows of a file.
      describe: returns the fields of the file, for messages.
      unit: of the place of a row, such as "line".
    """

    read: Callable[[Path, Fields], Iterator[Row | Broken]]
    describe: Callable[[Path], str]
    unit: str = "line"


DATASET = "folder"  # of Hugging Face's `datasets`
FORMATS = {
    ".tsv": Format(read_tsv, describe_tsv),
    ".csv": Format(read_csv, describe_csv),
    ".jsonl": Format(read_jsonl, describe_jsonl),
    ".tmx": Format(read_tmx, describe_tmx),
    ".parquet": Format(read_arrow, describe_arrow, "row"),
    ".arrow": Format(read_arrow, describe_arrow, "row"),
    DATASET: Format(read_arrow, describe_arrow, "row"),
}


def format_of(path: Path) -> str:
    """Returns the key of `FORMATS` of a file; another suffix, or '', if it has none of them.

    It is the suffix of the name, without that of a compression behind it.
    """
    return Path(plain_name(path.name)).suffix if path.is_file() else DATASET


@dataclasses.dataclass(frozen=True)
class TableFile(Generic[Item]):
    """The items of a file of rows, read from its start by each iteration.

    Iteration raises UserError at the first broken row, unless `skip_broken`.

    Attributes:
      source: the file, or the folder of a data set.
      format: a key of `FORMATS`.
      fields: that are read of each row.
      make: makes an item of their values; raises BrokenError if they are none.
      skip_broken: whether broken rows are skipped.
    """

    source: Path
    format: str
    fields: Fields
    make: Callable[..., Item]
    skip_broken: bool

    def __iter__(self) -> Iterator[Item]:
        records = self.records()
        for number, record in enumerate(records):
            if not isinstance(record, Broken):
                yield record
            elif not self.skip_broken:
                fix = f"fix the {self.unit}"
                # If the first two are broken, the fields may be wrong, and nothing would be left.
                if number or not isinstance(next(records, record), Broken):
                    fix += f", or set config.data.skip_broken=True to skip such {self.unit}s"
                raise UserError(f"{self.source}, {self.unit} {record.place}: {record.why}: {fix}")

    @property
    def unit(self) -> str:
        """The unit of the place of a row: its line, or its number."""
        return FORMATS[self.format].unit

    def records(self) -> Iterator[Item | Broken]:
        """Yields the item of each row, and the broken rows in their places."""
        for row in FORMATS[self.format].read(self.source, self.fields):
            if isinstance(row, Broken):
                yield row
                continue
            try:
                yield self.make(*row.values)
            except BrokenError as error:
                yield Broken(row.place, str(error))

    def describe(self) -> str:
        """Returns the fields of the file, for messages."""
        return FORMATS[self.format].describe(self.source)

    def count_broken(self) -> int:
        """Returns how many rows are broken; reads all.

        Raises:
          UserError: all are.
        """
        count, whole, first = 0, False, None
        for record in self.records():
            if isinstance(record, Broken):
                count += 1
                first = first or record
            else:
                whole = True
        if first and not whole:
            raise UserError(
                f"{self.source} has only broken {self.unit}s, {count:,} of them; {self.unit} "
                f"{first.place}: {first.why}: check {self.fields}"
            )
        return count


def skipped_rows(files: Iterable[object]) -> list[str]:
    """Returns a line for each file of rows of which broken ones are skipped, with their number.

    Raises:
      UserError: all rows of one are broken.
    """
    return [
        f"{file.source}: skipped {count:,} broken {file.unit}s"
        for file in files
        if isinstance(file, TableFile) and file.skip_broken and (count := file.count_broken())
    ]


def text_value(name: str, value: Any) -> str:
    """Returns a value that is a text.

    Args:
      name: of the value, for the message.

    Raises:
      BrokenError: it is not one.
    """
    if not isinstance(value, str):
        raise BrokenError(f"the {name} is not a string but {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BrokenError(f"the {name} has a lone surrogate, {ascii(value)[:40]}") from None
    return value


def _shown(value: Any) -> str:
    """A value of JSON or Arrow as a message quotes it."""
    return json.dumps(value, default=str)[:40]
