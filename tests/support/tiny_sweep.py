"""A tiny sweep that tests share: its config, and its table of results."""

import csv
from pathlib import Path

from tiny_run import CONFIG

SWEEP = """
def sweep():
    for seed in range(COUNT):
        yield {"seed": seed}
"""

# They take programs of their own, which each trial compiles.
NO_SNAPSHOTS = """
    config.evaluate.snapshot_sentences = 0
    config.evaluate.snapshot_statistics = 0
"""


def write_config(folder: Path, count: int = 2, changes: str = "", trials: str = "") -> Path:
    """Writes the config of a sweep of seeds, or of other trials, to `folder`."""
    text = CONFIG.replace("CACHE", str(folder / "cache")).replace("steps = 40", "steps = 8")
    text = text.replace("evaluate_every = 20", "evaluate_every = 4")
    text = text.replace("    return config", f"{NO_SNAPSHOTS}{changes}\n    return config")
    path = folder / "config.py"
    path.write_text(text + (trials or SWEEP.replace("COUNT", str(count))))
    return path


def rows(folder: Path) -> list[dict]:
    """The lines of results.csv without the clock's."""
    with (folder / "results.csv").open(newline="") as file:
        return [
            {key: value for key, value in row.items() if not key.endswith(("second", "seconds"))}
            for row in csv.DictReader(file)
        ]
