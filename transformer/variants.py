"""Records which files register the variants, such as positional encodings, that a run uses.

A run folder may be untrusted, so its files are never executed: users pass the files to execute.
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
from transformer.files import Each, read_json, write_json

VARIANTS_FILE = "variants.json"
MARK = " with sha256 "
NO_FILE = "code of a notebook or prompt"
VARIANT_FILES: dict[
    str, str
] = {}  # variant name -> the file that registered the variant, and its SHA-256 digest
V = TypeVar("V")


class Registry(dict[str, V]):
    """Maps names to values, and records the source file of each value that is added later."""

    def __setitem__(self, name: str, value: V) -> None:
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_name != "<module>":  # up to the module level
            frame = frame.f_back
        path = Path(frame.f_code.co_filename)
        owner = VARIANT_FILES.get(name, "the library").partition(MARK)[0]
        if name in self and owner != NO_FILE and Path(owner).resolve() != path.resolve():
            raise UserError(f"{name!r} is already registered by {owner}: choose another name")
        super().__setitem__(name, value)
        digest = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest()
        VARIANT_FILES[name] = f"{path}{MARK}{digest}" if digest else NO_FILE


def save(folder: Path, content: Any) -> None:
    """Records which files registered the variants that are used by a config or by trials."""
    words = re.findall(r"[\w.:-]+", json.dumps(content))
    if used := {name: VARIANT_FILES[name] for name in words if name in VARIANT_FILES}:
        trained = {step.parents[1] for step in folder.rglob("checkpoints/[0-9]*")}
        for run in sorted(trained, reverse=True):  # runs with checkpoints keep their records
            used |= {name: source for name, source in read(run).items() if name in used}
        write_json(folder / VARIANTS_FILE, used)


def read(folder: Path) -> dict[str, str]:
    """Returns the saved `VARIANT_FILES` entries of a run or sweep, or {} if it has no variants."""
    path = folder / VARIANTS_FILE
    return read_json(path, Each(str), "restore it") if path.exists() else {}


def check(folder: Path) -> None:
    """Raises UserError if a variant in use is not registered; warns if a variant's file changed."""
    for name, there in read(folder).items():
        there, _, trained = there.partition(MARK)
        if name not in VARIANT_FILES:
            fix = "--module=FILE runs a file that registers it first; in Python, import it first"
            raise UserError(f"{folder} needs {name!r}, which {there} registered: {fix}")
        here, _, digest = VARIANT_FILES[name].partition(MARK)
        if not digest or digest != trained:
            changed = f"{here} has changed since the training of {name!r}"
            unknown = f"{name!r} may have changed since the training: only files have a digest"
            place = folder.parents[1] if folder.parent.name == "trials" else folder
            _warn_once(f"warning: {place}: {changed if digest and trained else unknown}")


@functools.cache  # one warning for all trials of a sweep
def _warn_once(line: str) -> None:
    logging.getLogger(__name__).warning(line)
