"""Trains, scores and uses models: `python launch.py --config=configs/quickstart.py --workdir=run`.

A run that was started, and modes other than `train`, need only --workdir. Any key of the config is
a flag: `--config.model.num_heads=4`.
"""

import functools
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from experiments.process import explain, run_process
from transformer import signals
from transformer.errors import UserError

LINE_MODES = ("translate", "score", "generate", "classify")
MODES = (
    *("train", "evaluate", "attention", "align", "embeddings", "heads", "positions", "report"),
    *LINE_MODES,
)

flags.DEFINE_string("config", None, "file of the experiment's config; a new run needs it")
flags.DEFINE_string("workdir", None, "folder of the run")
flags.DEFINE_enum("mode", "train", MODES, "what to do")
flags.DEFINE_integer("point", None, "train, of a sweep: the number of the one point to train")
flags.DEFINE_string("input", None, "file to read, a text a line; standard input by default")
flags.DEFINE_string("output", None, "file to write; standard output by default")
flags.DEFINE_string("links", None, "align: file of the gold links of --input, in Pharaoh format")
flags.DEFINE_string("prompt", None, "generate: what the one text to write starts with")
flags.DEFINE_string("sentence", None, "attention: the sentence to draw")
flags.DEFINE_string("translation", None, "attention: its translation; the model's own by default")
flags.DEFINE_bool(
    "hide_end", False, "attention: leave out the end-of-sentence column, and renormalise"
)
flags.DEFINE_integer("layer", None, "attention: the layer to draw and open, from 1; all by default")
flags.DEFINE_integer("head", None, "attention: the head to draw and open, from 1; all by default")
flags.DEFINE_string(
    "token", None, "embeddings: print the nearest neighbours of this token or word, draw nothing"
)
FLAGS = flags.FLAGS
# The modes that read a flag; those that are not here are read by all.
READ_BY = {
    "point": ("train",),
    "input": ("align", *LINE_MODES),
    "output": ("align", *LINE_MODES),
    "links": ("align",),
    "prompt": ("generate",),
    **dict.fromkeys(("sentence", "translation", "hide_end", "layer", "head"), ("attention",)),
    "token": ("embeddings",),
}
# What to lower where the memory is too small, in other modes and in train.
MEMORY = (
    "--config.decode.batch_size or --config.decode.beam_size",
    "--config.data.batch_tokens, or if it was an evaluation, --config.decode.batch_size",
)


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit code.

    It is 2 where the user can mend what is wrong, with one line, and 128 + n where signal n ended
    the training early.
    """
    if not {"-h", "-help", "--help"}.isdisjoint(argv):
        print(f"{__doc__}{FLAGS.module_help(sys.modules[__name__])}")
        return 0
    try:
        overrides = _parse(argv)
        if FLAGS.workdir is None:
            raise UserError("--workdir is missing: name the folder of the run")
        return _run(Path(FLAGS.workdir).absolute(), overrides)
    except BrokenPipeError:
        raise
    except Exception as error:
        line = explain(error, str(FLAGS["workdir"].value), MEMORY[FLAGS["mode"].value == "train"])
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return 2


def _parse(argv: list[str]) -> list[tuple[str, str]]:
    """Sets FLAGS; returns the overrides (key, text) of the config."""
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UserError(f"{argument!a} is not UTF-8: set your terminal to it") from None
    own = [a for a in argv if not a.startswith(("--config.", "-config."))]
    try:
        rest = FLAGS(own)[1:]
    except flags.Error as error:
        raise UserError(" ".join(str(error).split())) from None
    if rest:
        raise UserError(f"{rest[0]!r} is not expected: flags are --name=value")
    for name, modes in READ_BY.items():
        if FLAGS[name].present and FLAGS.mode not in modes:
            raise UserError(f"--{name} is for --mode={', '.join(modes)}, not for {FLAGS.mode}")
    overrides = []
    for argument in argv[1:]:
        if argument.startswith(("--config.", "-config.")):
            key, equals, text = argument.partition("config.")[2].partition("=")
            if not equals:
                raise UserError(f"{argument} has no value: write --config.{key}=value")
            overrides.append((key, text))
    return overrides


def _run(workdir: Path, overrides: list[tuple[str, str]]) -> int:
    # Imported here, so that a misspelt flag is answered before jax has started.
    from experiments import run, safety, settings
    from experiments.trials import refuse_sweep
    from experiments.workdir import load_config

    training = FLAGS.mode == "train"
    if training and FLAGS.config is None and not (workdir / "config.json").exists():
        refuse_sweep(workdir)
        raise UserError(
            "--config is missing: name the experiment, such as configs/quickstart.py; --workdir "
            f"alone goes on with a run, and {workdir} holds none"
        )
    experiment = None if FLAGS.config is None else _read_experiment(FLAGS.config)
    config = load_config(workdir) if experiment is None else experiment.config
    if experiment is None:
        safety.forget_places(config, training)
    for key, text in overrides:
        settings.override(config, key, text)
    settings.check(config)
    if experiment is None:
        safety.check_fetched(config, [key for key, _ in overrides])
        if training and (line := safety.describe_text(config, workdir)):
            print(line, flush=True)
    _keep_compiled(config)
    if FLAGS.point is not None and not (experiment and experiment.is_sweep):
        raise UserError("--point is for sweeps: --config names none")
    if training and experiment and experiment.is_sweep:
        from experiments.sweeps.sweep import sweep

        say = functools.partial(print, flush=True)
        if stopped_by := sweep(config, *experiment[1:], workdir, FLAGS.point, say):
            return 128 + stopped_by
    elif training:
        if stopped_by := run.train(config, workdir):
            return 128 + stopped_by
    elif FLAGS.mode == "evaluate":
        run.evaluate(config, workdir)
    else:
        _use(config, workdir)
    return 0


def _use(config: Any, workdir: Path) -> None:
    """Runs a mode of a trained model, of which each task has its own beside the common ones."""
    from experiments import lines, modes
    from experiments.options import Options

    uses = modes.REGISTRY[config.task]
    folder_modes = {**modes.COMMON_MODES, **uses.FOLDER_MODES}
    if FLAGS.mode in folder_modes:
        told = Options(**{field.name: FLAGS[field.name].value for field in fields(Options)})
        for file in folder_modes[FLAGS.mode](config, workdir, told):
            print(file, flush=True)
        return
    if FLAGS.mode not in uses.LINE_MODES:
        own = *uses.FOLDER_MODES, *uses.LINE_MODES
        known = ", ".join(("evaluate", *own, *modes.COMMON_MODES))
        raise UserError(f"--mode={FLAGS.mode} is not for config.task={config.task}: use {known}")
    if FLAGS.prompt is not None:
        if FLAGS.input is not None:
            raise UserError("--prompt is for --mode=generate, in place of --input")
        with lines.open_output(FLAGS.output) as output:
            uses.generate_one(config, workdir, FLAGS.prompt, output)
        return
    source = lines.input_file(FLAGS.input)
    with lines.open_output(FLAGS.output, source) as output:
        count = uses.LINE_MODES[FLAGS.mode](config, workdir, lines.Lines(source), output)
    if FLAGS.output is not None:
        written = "1 line" if count == 1 else f"{count:,} lines"
        print(f"wrote {written} to {FLAGS.output}", file=sys.stderr)


class Experiment(NamedTuple):
    """What a config file says: the config; of a sweep, its points or what they are drawn from."""

    config: Any
    points: list[Mapping[str, Any]] | None
    space: Mapping[str, Any] | None

    @property
    def is_sweep(self) -> bool:
        """Whether there is more than one run in it."""
        return self.points is not None or self.space is not None


def _read_experiment(name: str) -> Experiment:
    """Returns what `get_config()`, and in a sweep `sweep()` or `space()`, of a file return.

    What follows a colon after the file's name is the argument of `get_config`.
    """
    from experiments.settings import complete

    path, argument = Path(name), ()
    if not path.is_file() and ":" in name:
        path, argument = Path(name.rpartition(":")[0]), (name.rpartition(":")[2],)
    if not path.is_file():
        raise UserError(f"--config {path} is no file: configs/ holds those that come with this")
    sys.path.insert(0, str(Path(__file__).parent))
    loader = importlib.machinery.SourceFileLoader("config", str(path))  # whatever it ends in
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("config", loader))
    try:
        loader.exec_module(module)
        config = complete(module.get_config(*argument))
        points = list(module.sweep()) if hasattr(module, "sweep") else None
        return Experiment(config, points, module.space() if hasattr(module, "space") else None)
    except Exception as error:  # the file is a program, and may fail in any way
        # A locked config lists all that it has.
        text = re.sub(r'Other fields present: "{.*?}"', "", str(error).replace("\\n", " "))
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        text = " ".join(text.split())
        raise UserError(f"--config {path} cannot be used: {kind}{text}") from None


def _keep_compiled(config) -> None:
    """Lets XLA keep compiled programs next to the tokenizers, so that a second start is quick.

    Where the environment says where, and no flag or config does, they are kept there.
    """
    from experiments.lines import warn
    from transformer.storage.compile_cache import keep_programs

    if not config.data.cache_dir and "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    cache = Path(config.data.cache_dir or "~/.cache/transformer").expanduser()
    keep_programs(cache / "programs", warn)


def _hush(unraisable: Any) -> None:
    """Prints what nobody can catch, but for reads of a damaged checkpoint that end too late."""
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    sys.unraisablehook = _hush
    signals.leave(run_process(lambda: main(sys.argv)))
