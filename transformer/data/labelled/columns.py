"""Which columns of a file are the texts, and which the labels, by their names and content."""

import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from transformer.data.files.delimited import LABELS
from transformer.data.files.rows import listed
from transformer.data.files.table import TableFile
from transformer.errors import UserError

MAX_SAMPLE, MAX_TEXT = 2000, 300  # rows, of the whole file as it may be sorted; characters of each
TEXTS_PER_LABEL, MAX_LABEL = 5, 60  # in the sample, at least; characters, at most
MIN_WORDS, WORD = 3, 4  # of a text on average; characters, in a script without blanks
NAME = re.compile(r"[^\W\d]\S*( \S+){0,2}|")  # of a column


def guess_columns(file: TableFile) -> dict[str, str]:
    """Returns the keys that name the texts and the labels of a file; none of one in folders.

    The labels are the column that is called so, or the only one of few values. The texts are the
    column `text`, or else that of the most words and others of several words, such as titles.
    """
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
        raise UserError(
            f"{file.source} has the columns {listed(map(repr, columns))}, labels may be in "
            f"{listed(map(repr, labels))}, texts in {listed(map(repr, texts))}: set {flags(fields)}"
        )
    return fields


def flags(fields: Mapping[str, str]) -> str:
    """Returns keys as flags of the command."""
    return " ".join(f"--config.{key}={shlex.quote(name)}" for key, name in fields.items())


def _sample_columns(file: TableFile) -> dict[str, Sequence[Any]]:
    """A sample of each column, by its name, or its number if there is no header line."""
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
    """Whether a column has a few short values that repeat."""
    is_short = all(
        isinstance(v, str | int) and 0 < len(f"{v}".strip()) <= MAX_LABEL for v in values
    )
    return is_short and 2 <= len({*values}) <= max(2, len(values) / TEXTS_PER_LABEL)


def _mean_words(values: Sequence[Any]) -> float:
    """How many words the values of a column have on average; 0 if they are not texts."""
    is_varied = 2 * len({value for value in values if isinstance(value, str)}) >= len(values)
    texts = [value[:MAX_TEXT] for value in values if isinstance(value, str)]
    characters = "".join("".join(texts).split())
    letters = sum(unicodedata.category(c)[0] in "LM" for c in characters)
    if 2 * letters <= len(characters) or not is_varied:
        return 0
    wide = (sum(not c.isascii() for c in text) // WORD for text in texts)
    return sum(map(max, wide, (len(text.split()) for text in texts))) / len(values)
