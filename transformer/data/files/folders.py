"""Folders named by class, each with the texts or pictures of the class."""

from collections.abc import Collection
from pathlib import Path

from transformer.data.files.rows import BrokenError, Fields, Rows, RowTable, listed
from transformer.data.files.text import open_unpacked, plain_name
from transformer.errors import UserError

TEXTS = ("", ".txt", ".text", ".md")  # suffixes of text files
HIDDEN = (".", "__MACOSX")  # prefixes of names that archives and editors leave behind
NO_CLASSES = ("unsup", "unlabel")  # prefixes of folders without labels


def class_files(folder: Path, endings: Collection[str]) -> tuple[list[tuple[str, Path]], str]:
    """Returns (class, path) of each file in the class folders, sorted, and a note on other files.

    A file may be in a subfolder of its class folder. All other files are counted.
    """
    files, others, empty = [], [], []
    for entry in sorted(folder.iterdir()):
        before, is_class = len(files), not entry.name.lower().startswith(NO_CLASSES)
        for path in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
            parts = path.relative_to(folder).parts
            is_hidden = any(part.startswith(HIDDEN) for part in parts)
            is_item = len(parts) > 1 and Path(plain_name(path.name)).suffix in endings
            if is_class and is_item and not is_hidden and path.is_file():
                files.append((entry.name, path))
            elif not path.is_dir():
                others.append("/".join(parts))
        if entry.is_dir() and len(files) == before:
            empty.append(entry.name)
    left_out = f"; {len(others):,} other files are left out: {listed(others)}" * bool(others)
    return files, left_out + f"; folders that are not classes: {listed(empty)}" * bool(empty)


def read_folders(path: Path, fields: Fields) -> RowTable:
    """Returns the text of each file below a class folder, and the name of the class folder."""
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
