"""The files that registered variants, such as a positional encoding: a run names those it needs.

A run's folder may be a stranger's, so no file is executed for its sake: the user names it.
"""

import functools
import hashlib
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any, TypeVar

from transformer.errors import UserError
from transformer.storage.files import write_json
from transformer.storage.reading import Each, read_json

FILE = "variants.json"
SOURCES: dict[str, str] = {}  # by name of a variant: the file that registered it, and its digest
V = TypeVar("V")


class Registry(dict[str, V]):
    """Values by name; of one that is added later, the file that adds it is remembered."""

    def __setitem__(self, name: str, value: V) -> None:
        super().__setitem__(name, value)
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_name != "<module>":  # of a file that is imported
            frame = frame.f_back
        path = Path(frame.f_code.co_filename)
        content = path.read_bytes() if path.is_file() else b""  # of a notebook's cell
        SOURCES[name] = f"{path} with sha256 {hashlib.sha256(content).hexdigest()}"


def save(folder: Path, content: Any) -> None:
    """Writes which files registered the variants that a config or trials name, if any did."""
    words = re.findall(r"[\w.:-]+", json.dumps(content))
    if used := {name: SOURCES[name] for name in words if name in SOURCES}:
        write_json(folder / FILE, used)


def check(folder: Path) -> None:
    """Checks that the variants of a run or sweep are registered; warns if their file differs.

    Raises:
      UserError: one is not.
    """
    path = folder / FILE
    for name, there in read_json(path, Each(str), "restore it").items() if path.exists() else ():
        if (here := SOURCES.get(name)) is None:
            raise UserError(
                f"{folder} needs {name!r}, which {there} registered: --module=FILE runs such a "
                "file first; in Python, import it first"
            )
        if here[-64:] != there[-64:]:  # the digests
            _warn_once(
                f"warning: {name!r} of the training was registered by {there}, now by {here}"
            )


@functools.cache  # all trials of a sweep have it
def _warn_once(line: str) -> None:
    logging.getLogger(__name__).warning(line)
