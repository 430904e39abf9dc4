"""A folder for each class, named as it, with a text in each file."""

import collections
from pathlib import Path

from transformer.data.files.rows import BrokenError, Fields, Rows, RowTable, listed
from transformer.data.files.text import open_unpacked, plain_name
from transformer.errors import UserError

TEXTS = ("", ".txt", ".text", ".md")  # ends of the names of files with a text
NO_CLASSES = (".", "__macosx", "unsup", "unlabel")  # begin names of folders that are none


def read_folders(path: Path, fields: Fields) -> RowTable:
    """Returns the text of each file below the folder of a class, and the name of that."""
    texts, others = [], collections.Counter()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        label, *_ = parts = file.relative_to(path).parts
        suffix, hidden = Path(plain_name(file.name)).suffix, any(p[0] == "." for p in parts)
        if len(parts) == 1 or hidden or suffix not in TEXTS or label.lower().startswith(NO_CLASSES):
            others[label] += 1
        else:
            texts.append((label, file))
    names = listed(f"{name} ({count:,})" for name, count in others.items())
    left_out = f"; {others.total():,} other files are left out: {names}" * bool(others)
    if not texts:
        raise UserError(
            f"{path} has no text in folders of classes, and no file or folder train{left_out}: "
            "name a file of it in config.data.train_source"
        )
    about = f"its classes are {listed(repr(label) for label in dict.fromkeys(t[0] for t in texts))}"
    return RowTable(about + left_out, [*fields.names], _rows(path, texts, fields))


def _rows(folder: Path, texts: list[tuple[str, Path]], fields: Fields) -> Rows:
    for label, file in texts:
        with open_unpacked(file) as stream:
            data = stream.read()
        try:
            text = data.decode("utf-8-sig")
            row = tuple(label if key == "label_field" else text for key in fields.keys)
        except UnicodeDecodeError as error:
            row = BrokenError(f"byte 0x{data[error.start]:02X} is not UTF-8")
        yield str(file.relative_to(folder)), row
