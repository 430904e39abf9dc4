"""Parquet files, and folders of Hugging Face's `datasets`: Arrow files or shards of Parquet.

They are read by pyarrow alone, some rows at a time.
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
# As `datasets` names them, the hub's with a fingerprint: train-00000-of-00002-0123456789abcdef.
SHARD = re.compile(r"(.*?)-?(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?\.(?:parquet|arrow)")
MAGIC_OF_FILE = b"ARROW1"  # of Arrow's file format; `datasets` writes its streams


def is_dataset(path: Path) -> bool:
    """Whether a folder holds a data set or TMX files, or a path is the start of names of shards."""
    return bool(_split_shards(path) or memories(path))


def read_arrow(path: Path, fields: Fields) -> RowTable:
    """Returns the rows of a Parquet file or of a data set, numbered from one.

    A field is a column, a field of a struct after a dot (`translation.en`), an element of a
    list (`targets.0`), or the number of a column, from zero. A class label is its name, if the data
    set says it.
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
                    if whole == names[i]:  # the field is an element of its lists
                        columns[i] = [dict(enumerate(v or ())).get(int(place)) for v in columns[i]]
                for i, classes in enumerate(labels):
                    if classes:  # -1, of none, is a label that is kept back
                        columns[i] = [classes.get(value) for value in columns[i]]
                for values in zip(*columns, strict=True):
                    yield next(number), values


def _column_names(schema: Any) -> list[str]:
    """Returns the names of the columns, those of a struct's fields after a dot."""
    return schema.empty_table().flatten().column_names


def _column_name(file: Path, schema: Any, fields: Fields, name: str) -> str:
    """Returns the name of the column of a field, which may be its number."""
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
    """Returns the names of a class label, if `datasets` says them; otherwise none."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        for name in path.split("."):
            feature = feature[name]
        if feature["_type"] == "ClassLabel":
            return dict(enumerate(map(str, feature["names"])))
    return {}


@contextlib.contextmanager
def _open_arrow(file: Path) -> Iterator[tuple[Any, Any]]:
    """The schema of a file, and its reader."""
    import pyarrow
    from pyarrow import parquet

    kind = "Parquet" if file.suffix.lower() == ".parquet" else "Arrow"
    try:
        # Not mapped: what a damaged file says of its parts would lead beyond its end.
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
    """Yields a few rows at a time of a reader, with columns for the fields of a struct."""
    import pyarrow

    batches = reader
    if hasattr(reader, "num_row_groups"):  # of several at once more would be held
        groups = range(reader.num_row_groups)
        batches = (b for i in groups for b in reader.iter_batches(ROWS_AT_ONCE, [i], names))
    elif hasattr(reader, "get_batch"):
        batches = map(reader.get_batch, range(reader.num_record_batches))
    for batch in batches:
        # Offsets that lead out of it would end the process, and text may not be UTF-8.
        batch.validate(full=True)
        yield from pyarrow.Table.from_batches([batch]).flatten().to_batches(ROWS_AT_ONCE)


def data_files(path: Path) -> list[Path]:
    """Returns the files of one split of a data set, in their order; of any other file, itself."""
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
    """Returns the part of a file's name before its number."""
    match = SHARD.fullmatch(file.name)
    return match[1] if match else re.split(r"\d", file.name, maxsplit=1)[0]


def _split_shards(path: Path) -> list[Path]:
    """Returns the shards in a folder, or those of a split in one, such as `data/train`."""
    if path.is_dir():
        kinds = (sorted(path.glob(f"*{suffix}")) for suffix in (".parquet", ".arrow"))
        return next(filter(None, kinds), [])
    files = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    return [f for f in files if SHARD.fullmatch(f.name) and _split_of(f) == path.name]
