"""The `export` and `import` modes: convert runs to or from the formats of other programs."""

from pathlib import Path

from transformer.bridges.formats import BUNDLES, DEFAULT
from transformer.errors import UserError
from transformer.runs.imported import import_marian
from transformer.runs.loaded import LoadedRun
from transformer.runs.run import Run
from ..process.modes import Options


def export(run: Run, options: Options) -> list[Path]:
    """Exports a run in `--format` to the folder `--output`."""
    if not options.output:
        raise UserError("--mode=export needs --output, the folder to write")
    format, keys = options.format or DEFAULT, [*run.other_settings()]
    if format in BUNDLES and keys:
        raise UserError(
            f"config.{keys[0]} is another than the run's, and a bundle has the run's settings: "
            "leave it out, or choose another --format"
        )
    return [LoadedRun(run).export(format, options.output)]


def import_model(run: Run, options: Options) -> list[Path]:
    """Imports the model in the folder `--input` as a run in the new folder `--output`."""
    if not (options.input and options.output):
        raise UserError(
            "--mode=import needs --input, the folder of a model, and --output, the run to write"
        )
    return [import_marian(options.input, options.output)]
