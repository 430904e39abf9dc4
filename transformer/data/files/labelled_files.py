"""Labelled texts from files of rows in any format.

Everything is streamed, however large.
"""

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.data.characters import canonicalize
from transformer.data.files.locate import locate
from transformer.data.files.rows import BrokenError, Fields
from transformer.data.files.table import FORMATS, TableFile, format_of, text_value
from transformer.data.labels import Labelled
from transformer.errors import UserError


def labelled_file(settings: ConfigDict, split: str) -> TableFile[Labelled]:
    """Returns the labelled texts of the file of one split.

    Args:
      settings: `config.data`.
      split: whose `<split>_source` is read.

    Raises:
      UserError: the file is not there or of no known format, or a field is missing or named twice.
    """
    return labelled_table(locate(settings, f"{split}_source"), settings, f"data.{split}_source")


def labelled_table(path: Path, settings: ConfigDict, name: str) -> TableFile[Labelled]:
    """Returns the labelled texts in the rows of a file.

    Args:
      settings: `config.data`, for the fields.
      name: of the key that names the file, for messages.

    Raises:
      UserError: the file is of no known format, or a field is missing or named twice.
    """
    kind = format_of(path)
    if kind not in FORMATS:
        raise UserError(
            f"{name}={path.name!r} is none of {', '.join(FORMATS)}: name a file of labelled texts, "
            "and give it the ending of its format"
        )
    keys = ("text_field", "label_field")
    fields = Fields(keys, (settings.text_field, settings.label_field), exact=True)
    fields.check()
    return TableFile(path, kind, fields, _labelled, settings.skip_broken)


def _labelled(text: Any, label: Any) -> Labelled:
    """Returns a labelled text; a label may be a whole number or a truth value too."""
    if isinstance(label, bool | int):
        label = json.dumps(label)
    for name, value in (("text", text), ("label", label)):
        if not canonicalize(text_value(name, value)):
            raise BrokenError(f"the {name} is empty")
    return Labelled(text.strip(), label.strip())
