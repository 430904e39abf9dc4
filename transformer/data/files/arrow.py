"""Parquet files, and folders of Hugging Face's `datasets`: Arrow files or shards of Parquet.

They are read by pyarrow alone, some rows at a time.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer.data.files.rows import Broken, Fields, Row, listed
from transformer.data.files.tmx import memories
from transformer.errors import UserError, one_line
from transformer.storage.reading import read_json

ROWS_AT_ONCE = 1024
# As `datasets` names them, the hub's with a fingerprint: train-00000-of-00002-0123456789abcdef.
SHARD = re.compile(r"(.*?)-?(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?\.(?:parquet|arrow)")
MAGIC_OF_FILE = b"ARROW1"  # of Arrow's file format; `datasets` writes its streams
STATE, SPLITS = "state.json", "dataset_dict.json"  # of `save_to_disk`
DAMAGED = "copy or download it again"


def is_dataset(path: Path) -> bool:
    """Whether a folder holds a data set or TMX files, or a path is the start of names of shards."""
    if not path.is_dir():
        return bool(_shards(path.parent, path.name) or memories(path))
    is_saved = any((path / name).is_file() for name in (STATE, SPLITS))
    return is_saved or bool(_shards(path, None) or memories(path))


def read_arrow(path: Path, fields: Fields) -> Iterator[Row | Broken]:
    """Yields the rows of a Parquet file or of a data set, numbered from one.

    A field is a column, a field of a struct after a dot (`translation.en`), or the number of a
    column, from zero. A class label is its name, if the data set says it.

    Raises:
      UserError: the data cannot be read, or does not have the fields.
    """
    number = 0
    for file in data_files(path):
        with _open(file) as (schema, batches):
            columns = [_Column(file, schema, fields, i) for i in range(len(fields.names))]
            for batch in batches([column.path for column in columns]):
                for values in zip(*(column.values(batch) for column in columns), strict=True):
                    number += 1
                    yield Row(number, values)


def describe_arrow(path: Path, _: Fields) -> tuple[str, list[str]]:
    """Returns a phrase on the columns, for messages, and their names."""
    with _open(data_files(path)[0]) as (schema, _):
        return f"its columns are {listed(map(repr, _names(schema)))}", [*_names(schema)]


def _names(schema: Any) -> Iterator[str]:
    """Yields the names of the columns, those of a struct's fields after a dot."""
    import pyarrow

    for field in schema:
        if pyarrow.types.is_struct(field.type):
            yield from (f"{field.name}.{inner.name}" for inner in field.type)
        else:
            yield field.name


class _Column:
    """A column, or a field of one that is a struct.

    Attributes:
      path: its name, and the field's after a dot.
    """

    def __init__(self, file: Path, schema: Any, fields: Fields, i: int):
        name = fields.names[i]
        group, dot, inner = name.partition(".")
        self._inner = None
        if name in schema.names:
            self._name = name
        elif name.isdecimal() and int(name) < len(schema.names):
            self._name = schema.names[int(name)]
        elif dot and name in _names(schema):
            self._name, self._inner = group, inner
        else:
            raise UserError(f"{file} has {fields.missing(name, _names(schema))}: set {fields}")
        if schema.names.count(self._name) > 1:
            raise UserError(f"{file} has several columns {self._name!r}: rename all but one")
        self.path = name if self._inner else self._name
        self._labels = _labels(schema, self.path)

    def values(self, batch: Any) -> list[Any]:
        """Returns the values of a batch of rows."""
        values = batch.column(self._name).to_pylist()
        if self._inner:
            values = [value and value.get(self._inner) for value in values]
        if self._labels:
            values = [self._label(value) for value in values]
        return values

    def _label(self, value: Any) -> Any:
        known = isinstance(value, int) and 0 <= value < len(self._labels)
        return self._labels[value] if known else None  # -1: the label is kept back


def _labels(schema: Any, path: str) -> list[str]:
    """Returns the names of a class label, if `datasets` says them; otherwise none."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        for name in path.split("."):
            feature = feature[name]
        if feature["_type"] == "ClassLabel":
            return [str(name) for name in feature["names"]]
    return []


@contextlib.contextmanager
def _open(file: Path) -> Iterator[tuple[Any, Any]]:
    """The schema of a file, and a function that yields its batches of rows with some columns."""
    import pyarrow

    try:
        with contextlib.ExitStack() as stack:
            yield _open_parquet(file) if _is_parquet(file) else _open_arrow(file, stack)
    except UnicodeDecodeError as error:  # pyarrow does not check the text that it reads
        raise UserError(
            f"{file} has a text that is not UTF-8 ({error.object[:40]!r}): convert it, and write "
            "the file again"
        ) from None
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"{file} cannot be read ({error.strerror}): check the file") from None
        kind, why = "Parquet" if _is_parquet(file) else "Arrow", one_line(str(error))
        raise UserError(
            f"{file} is a damaged or incomplete {kind} file ({why}): {DAMAGED}"
        ) from None


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as stream:
        return file.suffix.lower() == ".parquet" or stream.read(4) == b"PAR1"


def _open_parquet(file: Path) -> tuple[Any, Any]:
    from pyarrow import parquet

    table = parquet.ParquetFile(file)

    def batches(columns: list[str]) -> Iterator[Any]:
        for group in range(table.num_row_groups):  # of several at once more would be held
            yield from table.iter_batches(ROWS_AT_ONCE, [group], columns)

    return table.schema_arrow, batches


def _open_arrow(file: Path, stack: contextlib.ExitStack) -> tuple[Any, Any]:
    import pyarrow

    # Not mapped: what a damaged file says of its parts would lead beyond its end.
    source = stack.enter_context(pyarrow.OSFile(str(file)))
    if source.read(len(MAGIC_OF_FILE)) == MAGIC_OF_FILE:
        reader = pyarrow.ipc.open_file(source)
        batches: Iterable[Any] = map(reader.get_batch, range(reader.num_record_batches))
    else:
        source.seek(0)
        reader = batches = pyarrow.ipc.open_stream(source)
    return reader.schema, lambda columns: _cut(batches)


def _cut(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        batch.validate(full=True)  # offsets that lead out of the batch would end the process
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(start, ROWS_AT_ONCE)


def data_files(path: Path) -> list[Path]:
    """Returns the files of a data set, in their order; of any other file, itself.

    Raises:
      UserError: they are of several splits, one is missing, or the folder is damaged.
    """
    if path.is_file():
        return [path]
    if files := memories(path):
        return files
    if not path.is_dir():
        return _check_shards(path, _shards(path.parent, path.name))
    if (path / SPLITS).is_file():
        names = read_json(path / SPLITS, {"splits": [str]}, DAMAGED)["splits"]
        raise UserError(_several(path, names))
    if (path / STATE).is_file():
        return _saved_files(path)
    shards = _shards(path, None)
    splits = sorted(set(map(_split_of, shards)))
    if len(splits) > 1:
        raise UserError(_several(path, splits))
    return _check_shards(path / (splits[0] or "shards"), shards)


def _split_of(name: str) -> str:
    """Returns the part of a file's name before its number."""
    match = SHARD.fullmatch(name) or re.match(r"(\D*)", name)
    assert match is not None, "the second matches any name"
    return match[1]


def _several(path: Path, names: Iterable[str]) -> str:
    names = list(names)
    return (
        f"{path} holds several splits, {listed(names)}: name one of them, such as {path / names[0]}"
    )


def _saved_files(path: Path) -> list[Path]:
    """Returns the files of a folder that `save_to_disk` wrote."""
    state: Mapping[str, Any] = read_json(
        path / STATE, {"_data_files": [{"filename": str}]}, DAMAGED
    )
    if state.get("_indices_data_files"):
        raise UserError(
            f"{path} is a selection of rows by their numbers: save it again after "
            "`dataset.flatten_indices()`"
        )
    names = [entry["filename"] for entry in state["_data_files"]]
    for name in names:
        if Path(name).name != name or not (path / name).is_file():
            raise UserError(f"{path / STATE} names {name!a}, which is not there: {DAMAGED}")
    return [path / name for name in names]


def _shards(folder: Path, split: str | None) -> list[str]:
    """Returns the names of a folder's shards, sorted: of one split, or of all and other files."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    if split is None:
        for suffix in (".parquet", ".arrow"):
            if found := [name for name in names if name.endswith(suffix)]:
                return found
        return []
    return [name for name in names if (m := SHARD.fullmatch(name)) and m[1] == split]


def _check_shards(path: Path, names: list[str]) -> list[Path]:
    numbered = [match for name in names if (match := SHARD.fullmatch(name))]
    if numbered and [int(m[2]) for m in numbered] != list(range(int(numbered[0][3]))):
        raise UserError(
            f"{path} has {len(numbered)} of {int(numbered[0][3])} shards: copy or download those "
            "that are missing"
        )
    return [path.parent / name for name in names]
