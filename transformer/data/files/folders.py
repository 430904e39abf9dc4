"""A folder for each class, named as it, with its texts or pictures in it."""

import collections
from collections.abc import Collection
from pathlib import Path

from transformer.data.files.rows import BrokenError, Fields, Rows, RowTable, listed
from transformer.data.files.text import open_unpacked, plain_name
from transformer.errors import UserError

TEXTS = ("", ".txt", ".text", ".md")  # ends of the names of files with a text
HIDDEN = (".", "__MACOSX")  # begin names that archives and editors leave behind
NO_CLASSES = ("unsup", "unlabel")  # begin names of folders without labels


def class_files(folder: Path, endings: Collection[str]) -> tuple[list[tuple[str, Path]], str]:
    """Returns class and path of each file in the folders of classes, sorted, and what is left out.

    A file may be in further folders of its class. All others are counted, by their endings.
    """
    files, others, empty = [], collections.Counter(), []
    for entry in sorted(folder.iterdir()):
        before, is_class = len(files), not entry.name.lower().startswith(NO_CLASSES)
        for path in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
            parts = path.relative_to(folder).parts
            kind = Path(plain_name(path.name)).suffix if len(parts) > 1 else "in no folder"
            if any(part.startswith(HIDDEN) for part in parts):
                kind = "hidden"
            if is_class and kind in endings and path.is_file():
                files.append((entry.name, path))
            elif not path.is_dir():
                others[kind or "without an ending"] += 1
        if entry.is_dir() and len(files) == before:
            empty.append(entry.name)
    counts = listed(f"{n:,} {kind}" for kind, n in others.most_common())
    left_out = f"; {others.total():,} other files are left out: {counts}" * bool(others)
    return files, left_out + f"; folders that are not classes: {listed(empty)}" * bool(empty)


def read_folders(path: Path, fields: Fields) -> RowTable:
    """Returns the text of each file below the folder of a class, and the name of that."""
    texts, left_out = class_files(path, TEXTS)
    if not texts:
        raise UserError(
            f"{path} has no text in folders of classes, and no file or folder train{left_out}: "
            "name a file of it in config.data.train_source"
        )
    about = f"its classes are {listed(repr(label) for label in dict.fromkeys(t[0] for t in texts))}"
    return RowTable(about + left_out, [*fields.names], _picture_rows(path, texts, fields))


def _picture_rows(folder: Path, texts: list[tuple[str, Path]], fields: Fields) -> Rows:
    for label, file in texts:
        with open_unpacked(file) as stream:
            data = stream.read()
        try:
            text = data.decode("utf-8-sig")
            row = tuple(label if key == "label_field" else text for key in fields.keys)
        except UnicodeDecodeError as error:
            row = BrokenError(f"byte 0x{data[error.start]:02X} is not UTF-8")
        yield str(file.relative_to(folder)), row
