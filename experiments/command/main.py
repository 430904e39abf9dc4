"""Trains and evaluates models, and runs inference with them.

Run `python launch.py --config=configs/quickstart.py --workdir=run`, or `transformer-jax` if the
package is installed. To resume a run, or for modes other than `train`, --workdir is enough; `plan`
needs only --config, and `fetch` needs neither. Config keys are flags: `--config.model.num_heads=4`.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, NoReturn

from absl import flags

from transformer import signals
from transformer.errors import UserError
from ..process import process
from ..process.modes import MODES, TRAIN, Options

FLAGS = flags.FLAGS
DEFINE = {
    str | None: flags.DEFINE_string,
    int | None: flags.DEFINE_integer,
    bool: flags.DEFINE_bool,
}
CONFIG = ("--config.", "-config.")
MEMORY_FIX = (
    "--config.decode.batch_size or --config.decode.beam_size; of a training --config.data."
    "batch_tokens and --config.data.batch_multiple"
)


def define_flags(values: flags.FlagValues) -> None:
    """Defines the general flags, and the flags of all modes."""
    about: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("config", None, "file of the config; a new run needs it", **about)
    flags.DEFINE_string("workdir", None, "folder of the run", **about)
    flags.DEFINE_string("module", None, "file to run first, which registers a variant", **about)
    lines = (f"\n{mode.name}: {mode.help}" for mode in MODES.values())
    flags.DEFINE_enum("mode", TRAIN, list(MODES), f"what to do{''.join(lines)}", **about)
    for field in dataclasses.fields(Options):
        text = f"{', '.join(field.metadata['modes'])}: {field.metadata['help']}"
        DEFINE[field.type](field.name, field.default, text, **about)


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit code."""
    if not {"-h", "-help", "--help"}.isdisjoint(argv):
        print(f"{__doc__}{FLAGS.module_help(sys.modules[__name__])}")
        return 0
    place = next((argument for argument in argv if argument.startswith("--workdir")), argv[0])
    return process.exit_code(lambda: _run_command(argv), place, MEMORY_FIX)


def _run_command(argv: list[str]) -> int:
    overrides = parse(argv, FLAGS)
    # Imported here, so that a misspelt flag or key is reported before JAX starts.
    from transformer.config import default_config
    from ..process.config import executed, override, read_experiment

    if FLAGS.module is not None:
        if not (path := Path(FLAGS.module).expanduser()).is_file():
            raise UserError(f"the module {path} is not a file")
        with executed(path, "module"):
            pass  # the module has registered its variants
    experiment = None if FLAGS.config is None else read_experiment(FLAGS.config)
    # Without a config file, this only checks the overrides.
    config = default_config() if experiment is None else experiment.config
    for key, text in overrides:
        override(config, key, text)
    from .command import Command, run_command

    values: dict[str, Any] = {f.name: FLAGS[f.name].value for f in dataclasses.fields(Options)}
    options = Options(**values)
    with process.logging_to(MODES[FLAGS.mode].log):
        return run_command(Command(FLAGS.mode, FLAGS.workdir, experiment, overrides, options))


def parse(argv: list[str], values: flags.FlagValues) -> list[tuple[str, str]]:
    """Sets the flags; returns the config overrides as (key, text) pairs.

    Raises UserError if a flag is unknown, has an invalid value, or is not used by the mode.
    """
    try:
        rest = values([argument for argument in argv if not argument.startswith(CONFIG)])[1:]
    except flags.Error as error:
        raise UserError(" ".join(str(error).split())) from None
    if rest:
        raise UserError(f"{rest[0]!r} is not expected: flags are --name=value")
    for field in dataclasses.fields(Options):
        modes = field.metadata["modes"]
        if values[field.name].present and values.mode not in modes:
            what = f"is for --mode={', '.join(modes)}, not for {values.mode}"
            raise UserError(f"--{field.name} {what}")
    overrides = []
    for argument in argv[1:]:
        if argument.startswith(CONFIG):
            key, equals, text = argument.partition("config.")[2].partition("=")
            if not equals:
                raise UserError(f"{argument} has no value: write --config.{key}=value")
            overrides.append((key, text))
    mode = MODES[values.mode]
    if not values.workdir and (mode.workdir or values.workdir is not None):
        what = "missing" if values.workdir is None else "empty"
        raise UserError(f"--workdir is {what}: name the folder of the run")
    if mode.workdir is None and (values.workdir or values.config or overrides):
        reads = ", ".join(f"--{flag}" for flag in mode.flags)
        raise UserError(f"--mode={mode.name} reads only {reads}: leave out --workdir and --config")
    return overrides


def run() -> NoReturn:
    """Runs the command as the main program of its process."""
    signals.leave(process.run_process(lambda: main(sys.argv)))


define_flags(FLAGS)
if __name__ == "__main__":
    run()
