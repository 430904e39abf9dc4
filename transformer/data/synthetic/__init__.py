"""Synthetic corpora."""

import re
from pathlib import Path


def read_tables(path: Path) -> dict[str, list[list[str]]]:
    """Returns the rows of each `[section]`; two or more spaces part their cells, `-` is empty."""
    tables, rows = {}, []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            rows = tables[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            rows.append(["" if cell == "-" else cell for cell in re.split("  +", line)])
    return tables
