"""Parquet files, and Hugging Face `datasets` folders of Arrow files or Parquet shards.

The files are read with pyarrow alone, in batches of rows.
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
# Shard names of `datasets`; the hub adds a fingerprint: train-00000-of-00002-0123456789abcdef.
SHARD = re.compile(r"(.*?)-?(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?\.(?:parquet|arrow)")
MAGIC_OF_FILE = b"ARROW1"  # Arrow's file format; `datasets` writes the stream format


def is_dataset(path: Path) -> bool:
    """Returns whether a path is a folder with a data set or TMX files, or a shard prefix."""
    return bool(_split_shards(path) or memories(path))


def read_arrow(path: Path, fields: Fields) -> RowTable:
    """Returns the rows of a Parquet file or of a data set, numbered from one.

    A field is a column name, a dotted path to a struct field (`translation.en`) or a list element
    (`targets.0`), or a zero-based column index. A class label is converted to its class name if
    the data set has class names.
    """
    files = data_files(path)
    with _open_arrow(files[0]) as (schema, _):
        names = _names_of_fields(schema)
    about = f"its columns are {listed(map(repr, names))}"
    return RowTable(about, names, _arrow_rows(files, fields))


def _arrow_rows(files: list[Path], fields: Fields) -> Rows:
    number = itertools.count(1)
    for file in files:
        with _open_arrow(file) as (schema, reader):
            numbered = {str(number): name for number, name in enumerate(schema.names)}
            names = tuple(n if n in schema.names else numbered.get(n, n) for n in fields.names)
            columns = [name if name in schema.names else name.partition(".")[0] for name in names]
            for name, column in zip(names, columns, strict=True):
                if column not in schema.names:
                    why = missing(name, _names_of_fields(schema))
                    raise UserError(f"{file} has {why}: set {fields}")
            own = fields._replace(names=names)
            labels = {c: classes for c, classes in _class_names(schema).items() if c in columns}
            for row in _read_rows(reader, list(dict.fromkeys(columns))):
                for column, classes in labels.items():
                    row[column] = classes.get(row[column])  # -1, a withheld label, has no class
                yield next(number), own.values(row)


def _names_of_fields(schema: Any) -> list[str]:
    """Returns the column names; a struct has one name per field, such as `translation.en`."""
    return schema.empty_table().flatten().column_names


def _class_names(schema: Any) -> dict[str, dict[int, str]]:
    """Returns a dict from class id to class name for each label column with saved names."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        features = {k: f for k, f in features.items() if isinstance(f, dict)}
        labels = {k: f["names"] for k, f in features.items() if f.get("_type") == "ClassLabel"}
        return {column: dict(enumerate(map(str, names))) for column, names in labels.items()}
    return {}


@contextlib.contextmanager
def _open_arrow(file: Path) -> Iterator[tuple[Any, Any]]:
    """Yields the schema and the reader of a file."""
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


def _read_rows(reader: Any, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a reader as dicts with the given columns."""
    import pyarrow

    batches = reader
    if hasattr(reader, "num_row_groups"):  # one row group at a time, to save memory
        groups = range(reader.num_row_groups)
        batches = (b for i in groups for b in reader.iter_batches(ROWS_AT_ONCE, [i], columns))
    elif hasattr(reader, "get_batch"):
        batches = map(reader.get_batch, range(reader.num_record_batches))
    for batch in batches:
        # Invalid offsets would crash the process, and text may be invalid UTF-8.
        batch.validate(full=True)
        for part in pyarrow.Table.from_batches([batch]).select(columns).to_batches(ROWS_AT_ONCE):
            yield from part.to_pylist()


def data_files(path: Path) -> list[Path]:
    """Returns the sorted files of a data set split, or [path] if the path is a file."""
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
    if shards and len(shards) != (count := int(shards[0][3])):
        raise UserError(
            f"{path} has {len(shards)} of {count} shards: copy or download those that are missing"
        )
    return files


def _split_of(file: Path) -> str:
    """Returns the part of a file name before the shard number."""
    match = SHARD.fullmatch(file.name)
    return match[1] if match else re.split(r"\d", file.name, maxsplit=1)[0]


def _split_shards(path: Path) -> list[Path]:
    """Returns the shards in a folder, or the shards with a prefix, such as `data/train`."""
    if path.is_dir():
        kinds = (sorted(path.glob(f"*{suffix}")) for suffix in (".parquet", ".arrow"))
        return next(filter(None, kinds), [])
    files = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    return [f for f in files if SHARD.fullmatch(f.name) and _split_of(f) == path.name]
