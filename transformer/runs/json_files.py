"""The JSON files that a run writes next to its checkpoints, with checks of their structure.

A damaged file raises UserError with a fix.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.files import read_json, write_json
from transformer.runs.leaves import hash_file

MAX_NAMES = 6  # maximum names in a line
RUN = "run.json"  # data recorded before training, see `read_run`
SCORES = "scores.npz"  # the counts for each text of the test set, by metric
FILE_DIGESTS = "files"  # key in the results: the digests of the scored texts, by file name
# Keys that a file from elsewhere may lack; a modified file of a run has an invalid seal.
RESULTS = {"step": int, "averaged_steps": [int], "parameters": int, "wall_seconds": float}
RECORDED = {"data?": dict, "environment?": dict, "init_from?": dict, "vectors?": dict}


def read_results(path: Path) -> dict[str, Any] | None:
    """Returns a run's scores, or None if it has none yet.

    Scores of a given text also have `input`, the names and the digest of its files, and have only
    the split "test".
    """
    fix = "delete it; the mode evaluate writes it again"
    return read_json(path, RESULTS, fix) if path.exists() else None


def known_results(folder: Path) -> dict[str, Any]:
    """Returns the scores of a run that has been scored, see `read_results`."""
    results = read_results(folder / "results.json")
    assert results is not None, f"{folder} is not scored"
    return results


def damaged_text(place: Path, results: Mapping[str, Any]) -> str:
    """Returns the name of a changed text file behind the results in a folder; '' for none."""
    for name, digest in results.get(FILE_DIGESTS, {}).items():
        if (place / name).exists() and hash_file(place / name) != digest:
            return name
    return ""


def read_run(folder: Path) -> dict[str, Any]:
    """Returns the data that a run recorded before training; {} if its folder has none.

    `data` are the statistics of its text, see `Task.data_summary`, and `environment` describes its
    last start, see `environment.record`. `init_from` describes what another run contributed: the
    `folder` and `steps` of the checkpoints that were used; the numbers of `parameters` that were
    `loaded` and `frozen`; names of the `new` ones; for each of `tables`, the rows `carried` and
    `new`; and, if all parameters were loaded, the `scores` that they had before the training: the
    settings of the `search`, and `splits`. `vectors` describes the initial word vectors of
    embedding tables, by table: the `file`, its `sha256`, and the number of `tokens` found in it.
    """
    path, fix = folder / RUN, "restore it, or delete it; then reports lack text and environment"
    return read_json(path, RECORDED, fix) if path.exists() else {}


def record_run(folder: Path, **parts: Any) -> None:
    """Writes some parts of the record that `read_run` returns; the others stay."""
    write_json(folder / RUN, {**read_run(folder), **parts})


def first_scores(start: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Returns the scores, by split, of another run's weights before they were trained further.

    Args:
      start: `init_from`, see `read_run`.
    """
    return (start or {}).get("scores", {}).get("splits", {})


def start_line(start: dict[str, Any]) -> str:
    """Returns a line about the weights that came from another run, see `read_run`."""
    steps, new = start["steps"], start["new"]
    mean = "the mean of checkpoints" if len(steps) > 1 else "checkpoint"
    parts = [
        f"starts from {start['folder']}, {mean} {', '.join(f'{step:,}' for step in steps)}: "
        f"{start['loaded']:,} of {start['parameters']:,} parameters loaded"
    ]
    parts += [
        f"{name}: {rows['carried']:,} rows by piece, {rows['new']:,} new"
        for name, rows in start["tables"].items()
    ]
    if new:
        parts.append(f"new: {', '.join(new[:MAX_NAMES])}" + (", ..." if new[MAX_NAMES:] else ""))
    if start["frozen"]:
        parts.append(f"{start['frozen']:,} parameters frozen")
    return "; ".join(parts)
