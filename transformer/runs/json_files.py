"""The JSON files that a run writes next to its checkpoints, with their structure checked.

A file that is damaged raises UserError, which says what to do.
"""

import contextlib
import datetime
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.data.held_out import HELD_OUT, is_split
from transformer.errors import UserError
from transformer.files import Each, mismatch, open_file, read_json, write_json
from transformer.metrics.registry import COUNTS

NONE_TYPE = type(None)
MAX_TEXT = 2**30  # bytes
MAX_NAMES = 6  # names in a line
RUN = "run.json"  # what a run records before it trains, see `read_run`
STARTED = {
    "folder": str,
    "steps": [int],
    "parameters": int,
    "loaded": int,
    "frozen": int,
    "new": [str],
    "tables": Each({"carried": int, "new": int}),
    "scores?": {"search": dict, "splits": Each(dict)},
}
FILE_DIGESTS = "files"  # key of the results: the digests of the texts behind them, by name
RESULTS = {
    f"{FILE_DIGESTS}?": Each(str),
    "step": int,
    "averaged_steps": [int],
    "parameters": int,
    "wall_seconds": float,
    "tokens_per_second?": (float, NONE_TYPE),
    "flops_per_token?": (int, NONE_TYPE),
    "decode?": Each((float, str, bool)),
    "init_from?": STARTED,
    "input?": {"files": [str], "digest": str},
    "behaviour?": Each({"lines": int, "passed": int, "low": float, "high": float}),
    **{f"{split}?": dict for split in HELD_OUT},
}
# Of a split's scores; all others are numbers.
CLASS = {"precision": float, "recall": float, "f1": float, "texts": int}
RELIABILITY = {"confidence": [float], "accuracy": [float], "count": [float]}
NOT_NUMBERS = {
    **{"classes": Each(CLASS), "confusion": [[int]], "reliability": RELIABILITY},
    **{"pointing": [[float]], "overlap": [[float]], "pointing_head": [int]},
}
DATA = {
    "splits": Each(Each(int)),
    "oov_rate": float,
    "vocabulary": Each(int),
    "batches_per_epoch": int,
    "shapes": [[int]],
    "padding_fraction?": float,
    "cleaning?": {"read": int, "kept": int, "dropped": Each(int)},
    "corpora?": Each({"read": int, "kept": int, "dropped": Each(int), "drawn": int}),
    "broken_lines?": Each(int),
    "preview?": [Each(str)],
    "source_lines?": {"several_sentences": float, "sentences": int, "tokens": int},
}
ENVIRONMENT = {
    "started": str,
    "python": str,
    "platform": str,
    "processor": str,
    "cores": (int, NONE_TYPE),
    "devices": {"kind": str, "count": int},
    "code": ({"commit": str, "changed": bool}, NONE_TYPE),
    "packages": Each(str),
}
RECORDED = {"data?": DATA, "environment?": ENVIRONMENT, "init_from?": STARTED}


def read_results(path: Path) -> dict[str, Any] | None:
    """Returns a run's scores, or None if it has none yet.

    Those of another text than the run's have `input`, the names and the digest of its files, and
    the split "test" alone.
    """
    fix = "delete it; the mode evaluate writes it again"
    if (results := _read(path, RESULTS, fix)) is None:
        return None
    splits = {name: scores for name, scores in results.items() if is_split(name)}
    wrong = _wrong_scores(splits) or _wrong_scores(first_scores(results.get("init_from")))
    if (needed := "test" if "input" in results else "validation") not in splits:
        wrong = f"{needed} is missing"
    elif not results["averaged_steps"]:
        wrong = "averaged_steps is empty"
    if wrong:
        raise UserError(f"{path} cannot be read ({wrong}): {fix}")
    return results


def damaged_text(place: Path, results: Mapping[str, Any]) -> str:
    """Returns the name of a text behind the results in a folder that was changed; '' for none."""
    for name, digest in results.get(FILE_DIGESTS, {}).items():
        with contextlib.suppress(FileNotFoundError), open_file(place / name, MAX_TEXT) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                return name
    return ""


def read_run(folder: Path) -> dict[str, Any]:
    """Returns what a run has recorded before it trained; empty if its folder does not have it.

    `data` are the statistics of its text, see `Task.data_summary`, and `environment` is that of its
    last start, see `environment.record`. `init_from` is what it took over from another run: the
    `folder` and `steps` of the checkpoints that were used; `parameters` of the model, those
    `loaded` and `frozen`; names of the `new` ones; of each of `tables` the rows `carried` and
    `new`; and, if all parameters were loaded, the `scores` that they had before the training: the
    settings of the `search`, and `splits`.
    """
    path, fix = folder / RUN, "restore it, or delete it; then reports lack text and environment"
    content = _read(path, RECORDED, fix) or {}
    wrong = _wrong_scores(first_scores(content.get("init_from")))
    if any(len(shape) != 2 for shape in content.get("data", {}).get("shapes", [])):
        wrong = "data.shapes are not pairs"
    try:
        started = content.get("environment", {}).get("started", "2000-01-01")
        datetime.datetime.fromisoformat(started)
    except ValueError:
        wrong = "environment.started is not a time"
    if wrong:
        raise UserError(f"{path} cannot be read ({wrong}): {fix}")
    return content


def record_run(folder: Path, **parts: Any) -> None:
    """Writes parts of what `read_run` returns; the others stay."""
    write_json(folder / RUN, {**read_run(folder), **parts})


def first_scores(start: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Returns the scores, by split, of weights of another run before they were trained further.

    Args:
      start: `init_from`, see `read_run`.
    """
    return (start or {}).get("scores", {}).get("splits", {})


def _read(path: Path, shape: Any, fix: str) -> Any:
    return read_json(path, shape, fix) if path.exists() else None


def _wrong_scores(splits: Mapping[str, Any]) -> str | None:
    """What is wrong with the scores of a split."""
    for split, scores in splits.items():
        if wrong := mismatch(scores, dict, split):
            return wrong
        shape = {
            name: NOT_NUMBERS.get(name, str if name.endswith("_signature") else float)
            for name in (*scores, "loss")
        }
        if wrong := mismatch(scores, shape, split):
            return wrong
        if not any(name in scores for name in (*COUNTS, "classes")):
            return f"{split}.{COUNTS[0]} is missing"
    return None


def start_line(start: dict[str, Any]) -> str:
    """Returns in a line what a run took over from another one, see `read_run`."""
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
