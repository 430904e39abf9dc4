"""Files of texts to evaluate a run on, and what it writes about them."""

import json
from pathlib import Path

from tiny_run import command
from transformer.data.held_out import path_of


def held_out(folder: Path) -> list[dict]:
    return [json.loads(line) for line in path_of(folder, "test").read_text().splitlines()]


def written(path: Path, lines) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def given(path: Path, *lines) -> str:
    """The flag that names a file of these lines."""
    return f"--input={written(path, lines)}"


def evaluated(folder: Path, name: str, *flags) -> dict:
    """The results of an evaluation, which must be in a folder of this name."""
    ended = command("--mode=evaluate", f"--workdir={folder}", *flags)
    assert ended.code == 0, ended.err
    return json.loads((folder / "evaluations" / name / "results.json").read_text())
