"""Parquet files, and folders of Hugging Face's `datasets`: Arrow files or shards of Parquet.

They are read by pyarrow alone, a few rows at a time.
"""

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer.data.files.rows import Fields, Rows, RowTable, listed, missing
from transformer.data.files.text import unreadable
from transformer.data.files.tmx import memories
from transformer.errors import UserError

ROWS_AT_ONCE = 1024
# Names that `datasets` gives; on the hub with a fingerprint: train-00000-of-00002-0123456789abcdef.
SHARD = re.compile(r"(.*?)-?(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?\.(?:parquet|arrow)")
MAGIC_OF_FILE = b"ARROW1"  # Arrow's file format; `datasets` writes the stream format


def is_dataset(path: Path) -> bool:
    """Returns whether a folder holds a data set or TMX files, or a path is a prefix of shards."""
    return bool(_split_shards(path) or memories(path))


def read_arrow(path: Path, fields: Fields) -> RowTable:
    """Returns the rows of a Parquet file or of a data set, numbered from one.

    A field is a column, a field of a struct after a dot (`translation.en`), an element of a
    list (`targets.0`), or the number of a column, from zero. A class label is read as its name, if
    the data set has class names.
    """
    files = data_files(path)
    with _open_arrow(files[0]) as (schema, _):
        names = _column_names(schema)
    return RowTable(
        f"its columns are {listed(map(repr, names))}", names, _arrow_rows(files, fields)
    )


def _arrow_rows(files: list[Path], fields: Fields) -> Rows:
    number = itertools.count(1)
    for file in files:
        with _open_arrow(file) as (schema, reader):
            names = [_column_name(file, schema, fields, name) for name in fields.names]
            labels = [_label_names(schema, name) for name in names]
            for batch in _record_batches(reader, names):
                columns = [batch.column(name).to_pylist() for name in names]
                for i, field in enumerate(fields.names):
                    whole, _, place = field.rpartition(".")
                    if whole == names[i]:  # the field is an element of a list column
                        columns[i] = [dict(enumerate(v or ())).get(int(place)) for v in columns[i]]
                for i, classes in enumerate(labels):
                    if classes:  # -1, which has no class, marks a withheld label
                        columns[i] = [classes.get(value) for value in columns[i]]
                for values in zip(*columns, strict=True):
                    yield next(number), values


def _column_names(schema: Any) -> list[str]:
    """Returns the names of the columns; for a struct, one name per field, after a dot."""
    return schema.empty_table().flatten().column_names


def _column_name(file: Path, schema: Any, fields: Fields, name: str) -> str:
    """Returns the name of a field's column; the field may be a column number."""
    names = _column_names(schema)
    whole, _, place = name.rpartition(".")
    if name not in names and whole in names and place.isdecimal():
        name = whole
    if name not in names and name.isdecimal() and int(name) < len(schema.names):
        name = schema.names[int(name)]
    if name not in names:
        raise UserError(f"{file} has {missing(name, names)}: set {fields}")
    if names.count(name) > 1:
        raise UserError(f"{file} has several columns {name!r}: rename all but one")
    return name


def _label_names(schema: Any, path: str) -> dict[int, str]:
    """Returns the class names of a label by number, if `datasets` saved them; otherwise {}."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        for name in path.split("."):
            feature = feature[name]
        if feature["_type"] == "ClassLabel":
            return dict(enumerate(map(str, feature["names"])))
    return {}


@contextlib.contextmanager
def _open_arrow(file: Path) -> Iterator[tuple[Any, Any]]:
    """Yields the schema of a file and its reader."""
    import pyarrow
    from pyarrow import parquet

    kind = "Parquet" if file.suffix.lower() == ".parquet" else "Arrow"
    try:
        # Not memory-mapped: offsets in a damaged file could point beyond its end.
        with pyarrow.OSFile(str(file)) as source:
            magic = source.read(len(MAGIC_OF_FILE))
            source.seek(0)
            if kind == "Parquet" or magic.startswith(b"PAR1"):
                kind, reader = "Parquet", parquet.ParquetFile(source)
                yield reader.schema_arrow, reader
            else:
                is_file = magic == MAGIC_OF_FILE
                reader = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(source)
                yield reader.schema, reader
    except (pyarrow.ArrowException, OSError) as error:
        raise unreadable(file, kind, error) from None


def _record_batches(reader: Any, names: list[str]) -> Iterator[Any]:
    """Yields batches of a few rows from a reader, with a column for each field of a struct."""
    import pyarrow

    batches = reader
    if hasattr(reader, "num_row_groups"):  # one row group at a time, to save memory
        groups = range(reader.num_row_groups)
        batches = (b for i in groups for b in reader.iter_batches(ROWS_AT_ONCE, [i], names))
    elif hasattr(reader, "get_batch"):
        batches = map(reader.get_batch, range(reader.num_record_batches))
    for batch in batches:
        # Invalid offsets would crash the process, and text may not be UTF-8.
        batch.validate(full=True)
        yield from pyarrow.Table.from_batches([batch]).flatten().to_batches(ROWS_AT_ONCE)


def data_files(path: Path) -> list[Path]:
    """Returns the files of one split of a data set, in order; for any other path, only itself."""
    if path.is_file():
        return [path]
    if files := memories(path):
        return files
    files = _split_shards(path)
    if len(splits := sorted(set(map(_split_of, files)))) > 1:
        raise UserError(
            f"{path} holds several splits, {listed(splits)}: name one of them, such as "
            f"{path / splits[0]}"
        )
    shards = [match for file in files if (match := SHARD.fullmatch(file.name))]
    if shards and [int(m[2]) for m in shards] != list(range(int(shards[0][3]))):
        raise UserError(
            f"{path} has {len(shards)} of {int(shards[0][3])} shards: copy or download those that "
            "are missing"
        )
    return files


def _split_of(file: Path) -> str:
    """Returns the part of a file name before the shard number."""
    match = SHARD.fullmatch(file.name)
    return match[1] if match else re.split(r"\d", file.name, maxsplit=1)[0]


def _split_shards(path: Path) -> list[Path]:
    """Returns the shards in a folder, or those with a prefix in a folder, such as `data/train`."""
    if path.is_dir():
        kinds = (sorted(path.glob(f"*{suffix}")) for suffix in (".parquet", ".arrow"))
        return next(filter(None, kinds), [])
    files = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    return [f for f in files if SHARD.fullmatch(f.name) and _split_of(f) == path.name]
