"""A file of rows in any of the formats, as items such as pairs or labelled texts."""

import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from transformer.data.files.arrow import describe_arrow, read_arrow
from transformer.data.files.compression import open_unpacked, plain_name
from transformer.data.files.delimited import describe_csv, describe_tsv, read_csv, read_tsv
from transformer.data.files.json_lines import describe_jsonl, read_jsonl
from transformer.data.files.rows import Broken, BrokenError, Fields, Row, listed
from transformer.data.files.tmx import describe_tmx, memories, read_tmx
from transformer.errors import UserError, shorten

Item = TypeVar("Item")


class Format(NamedTuple):
    """A format of files.

    Attributes:
      read: yields the rows of a file.
      describe: returns a phrase on the fields of the file, for messages, and their names.
      unit: of the place of a row, such as "line".
    """

    read: Callable[[Path, Fields], Iterator[Row | Broken]]
    describe: Callable[[Path, Fields], tuple[str, list[str]]]
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
HEAD = 4096  # bytes that show a format, if the name does not
CONTENTS = {
    ".parquet": re.compile(rb"PAR1"),
    ".arrow": re.compile(rb"ARROW1"),
    ".tmx": re.compile(rb"(?s)[^\w<]*(<.*)?<\0?t\0?m\0?x\b"),
    ".jsonl": re.compile(rb'(\xef\xbb\xbf)?\s*(\[\s*)?(\{\s*"[^"]*"\s*:|\[\s*"(\\.|[^"\\])*"\s*,)'),
}
ROWS_SHOWN, FEW_VALUES, CUT = 1000, 0.05, 80  # show a column; different ones; characters of each
# Values that are no sentences: without a letter, of one word with a digit, licences and addresses.
NO_SENTENCE = re.compile(r"[\W\d_]*|(?a:[\w.:/-]*\d[\w.:/-]*)|(?:CC[ -]|https?:).*")


def format_of(path: Path) -> str:
    """Returns the key of `FORMATS` of a file; another suffix, or '', if it has none of them.

    It is the suffix of the name, without that of a compression behind it, or else what the first
    bytes show.
    """
    if not path.is_file():
        return ".tmx" if memories(path) else DATASET
    if (suffix := Path(plain_name(path.name)).suffix) in FORMATS:
        return suffix
    with open_unpacked(path) as file:
        head = file.read(HEAD)
    return next((kind for kind, content in CONTENTS.items() if content.match(head)), suffix)


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
                fix = f"fix the {self.unit}, or set config.data.skip_broken=True to skip such rows"
                # If the first two are broken, the fields may be wrong, and nothing would be left.
                if not number and isinstance(next(records, record), Broken):
                    fix = f"set {self.fields}, or fix the {self.unit}"
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
        return FORMATS[self.format].describe(self.source, self.fields)[0]

    def describe_columns(self) -> Iterator[str]:
        """Yields a line on the columns that are read, and one if some have no sentences."""
        about, columns = FORMATS[self.format].describe(self.source, self.fields)
        yield f"{self.source}: reads {listed(self.fields.names)} as {self.fields}; {about}"
        if wrong := [*self._without_sentences(self.fields)]:
            keys = [key for key in self.fields.keys if key != "label_field"]
            single = (self.fields._replace(keys=("",), names=(name,)) for name in columns if name)
            fit = (f.names[0] for f in single if not any(self._without_sentences(f)))
            names = itertools.chain(map(shlex.quote, fit), itertools.repeat("COLUMN_OF_SENTENCES"))
            fix = " ".join(f"--config.data.{k}={n}" for k, n in zip(keys, names, strict=False))
            yield f"warning: {self.source}: {' and '.join(wrong)}: set {fix}"

    def _without_sentences(self, fields: Fields) -> Iterator[str]:
        """Yields what each field without sentences has."""
        first = itertools.islice(FORMATS[self.format].read(self.source, fields), ROWS_SHOWN)
        rows = [[str(v)[:CUT] for v in row.values] for row in first if isinstance(row, Row)]
        for key, *texts in zip(fields.keys, *rows, strict=bool(rows)):
            wrong = [text for text in texts if NO_SENTENCE.fullmatch(text)]
            few = len({*texts}) < FEW_VALUES * len(texts)
            if key != "label_field" and (few or 2 * len(wrong) > len(texts)):
                such = next((repr(shorten(t, 40)) for t in [*wrong, *texts] if t), "empty cells")
                yield f"data.{key} reads ids, categories or attributions, such as {such}"

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


def describe_rows(files: Iterable[object]) -> list[str]:
    """Returns lines on the columns of each file of rows, and on broken rows that are skipped.

    Raises:
      UserError: a file cannot be read, or all its rows are broken.
    """
    lines = []
    for file in files:
        if isinstance(file, TableFile):
            lines += file.describe_columns()
            if file.skip_broken and (count := file.count_broken()):
                lines.append(f"{file.source}: skipped {count:,} broken {file.unit}s")
    return lines


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
