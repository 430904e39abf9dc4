"""Trains, scores and uses a model: `python launch.py --config=configs/quickstart.py --workdir=runs/q`.

Modes other than `train` need only --workdir. Any key of the config is a flag:
`--config.model.num_heads=4`.
"""

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

from absl import flags

from transformer.errors import UserError

MODES = ("train", "evaluate", "translate", "score", "attention")

flags.DEFINE_string("config", None, "file of the experiment's config; `train` needs it")
flags.DEFINE_string("workdir", None, "folder of the run")
flags.DEFINE_enum("mode", "train", MODES, "what to do")
flags.DEFINE_string("input", None, "translate, score: file to read; standard input by default")
flags.DEFINE_string("output", None, "translate, score: file to write; standard output by default")
flags.DEFINE_string("sentence", None, "attention: the sentence to draw")
flags.DEFINE_string("translation", None, "attention: its translation; the model's own by default")
flags.DEFINE_bool("hide_end", False, "attention: leave out the end-of-sentence column")
FLAGS = flags.FLAGS


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit code: 2 where the user can mend it, with one line."""
    try:
        overrides = _parse(argv)
        if FLAGS.workdir is None:
            raise UserError("--workdir is missing: name the folder of the run")
        _run(Path(FLAGS.workdir).absolute(), overrides)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parse(argv: list[str]) -> list[tuple[str, str]]:
    """Sets FLAGS; returns the overrides (key, text) of the config."""
    own = [a for a in argv if not a.startswith(("--config.", "-config."))]
    try:
        rest = FLAGS(own)[1:]
    except flags.Error as error:
        raise UserError(" ".join(str(error).split())) from None
    if rest:
        raise UserError(f"{rest[0]!r} is not expected: flags are --name=value")
    overrides = []
    for argument in argv[1:]:
        if argument.startswith(("--config.", "-config.")):
            key, equals, text = argument.partition("config.")[2].partition("=")
            if not equals:
                raise UserError(f"{argument} has no value: write --config.{key}=value")
            overrides.append((key, text))
    return overrides


def _run(workdir: Path, overrides: list[tuple[str, str]]) -> None:
    # Imported here, so that a misspelt flag is answered before jax has started.
    from experiments import inference, run
    from experiments.workdir import load_config, override

    if FLAGS.mode == "train" and FLAGS.config is None:
        raise UserError("--config is missing: name the experiment, such as configs/quickstart.py")
    config = load_config(workdir) if FLAGS.config is None else _read_config(Path(FLAGS.config))
    for key, text in overrides:
        override(config, key, text)
    _keep_compiled(config)
    if FLAGS.mode == "train":
        run.train(config, workdir)
    elif FLAGS.mode == "evaluate":
        run.evaluate(config, workdir)
    elif FLAGS.mode == "attention":
        if FLAGS.sentence is None:
            raise UserError("--sentence is missing: give the sentence to draw")
        for picture in inference.attention(
            config, workdir, FLAGS.sentence, FLAGS.translation, FLAGS.hide_end
        ):
            print(picture)
    else:
        use = inference.translate if FLAGS.mode == "translate" else inference.score
        lines = inference.read_lines(Path(FLAGS.input) if FLAGS.input else None)
        with _output() as output:
            use(config, workdir, lines, output)


def _read_config(path: Path):
    """Returns what `get_config()` of a config file returns."""
    if not path.is_file():
        raise UserError(f"--config {path} is no file: configs/ holds those that come with this")
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        spec = importlib.util.spec_from_file_location("config", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.get_config()
    except (AttributeError, KeyError, TypeError, SyntaxError, ImportError, ValueError) as error:
        text = " ".join(str(error).split())
        raise UserError(f"--config {path} cannot be read: {type(error).__name__}: {text}") from None


def _keep_compiled(config) -> None:
    """Lets XLA keep compiled programs beside the tokenizers, so that a second start is quick."""
    import jax

    cache = Path(config.data.cache_dir or "~/.cache/transformer").expanduser() / "xla"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _output():
    if FLAGS.output is None:
        return contextlib.nullcontext(sys.stdout)
    return Path(FLAGS.output).open("w", encoding="utf-8")


if __name__ == "__main__":
    # A closed pipe (`| head`) ends the command quietly.
    try:
        sys.exit(main(sys.argv))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
