"""Writes a run in the format of another program: `--mode=export`."""

from pathlib import Path

from ml_collections import ConfigDict

from experiments.options import Options
from transformer.bridges.formats import DEFAULT
from transformer.errors import UserError
from transformer.runs.loaded import load


def export(config: ConfigDict, folder: Path, options: Options) -> list[Path]:
    """Writes a run in `--format`, into the folder `--output`."""
    if not options.output:
        raise UserError("--mode=export needs --output, the folder to write")
    return [load(folder).export(options.format or DEFAULT, options.output)]
