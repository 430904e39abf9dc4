"""A tiny trained run that tests share, and the command line within this process."""

import contextlib
import io
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from absl import flags

from experiments.command.main import main
from transformer.files import SEAL

STEPS = 40  # of the shared run; it has checkpoints of steps 20 and 40
CONFIG = """
from transformer.config import default_config

def get_config():
    config = default_config()
    config.model.d_model = 16
    config.model.d_ff = 8
    config.model.num_heads = 2
    config.model.num_encoder_layers = 1
    config.model.num_decoder_layers = 1
    config.model.max_length = 32
    config.data.source = "copy"
    config.data.train_size = 200
    config.data.validation_size = 5
    config.data.test_size = 7
    config.data.batch_tokens = 256
    config.data.num_buckets = 1
    config.data.cache_dir = "CACHE"
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 30
    config.optimizer.schedule = "constant"
    config.optimizer.learning_rate = 1e-2
    config.optimizer.warmup_steps = 1
    config.train.steps = 40
    config.train.log_every = 10
    config.train.evaluate_every = 20
    config.train.best_metric = "loss"
    config.train.keep_last = 2
    config.decode.max_extra = 5
    config.decode.batch_size = 8
    config.evaluate.bootstrap = 10
    config.evaluate.checkpoint = "last"
    return config
"""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def command(*arguments, stdin: bytes = b"") -> Ended:
    """Runs the command with these arguments."""
    flags.FLAGS.unparse_flags()
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["launch.py", *map(str, arguments)])
    finally:
        sys.stdin = before
    return Ended(code, out.getvalue(), err.getvalue())


def refused(*arguments, says: tuple[str, ...] | str, stdin: bytes = b"") -> Ended:
    """Runs a command that must end in one line on stderr, which says all of this, and code 2."""
    ended = command(*arguments, stdin=stdin)
    assert ended.code == 2, ended
    line = ended.err.splitlines()[-1]
    assert line.startswith("error: "), ended.err
    for part in (says,) if isinstance(says, str) else says:
        assert part in line, line
    return ended


def unsealed(path: Path) -> dict:
    """A JSON object that a run wrote, without its digest, so that it can be changed."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop(SEAL, None)
    return content


def content(folder: Path) -> dict[str, bytes]:
    """Returns the bytes of all files below a folder, by their places in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@contextlib.contextmanager
def without_pictures():
    """What is trained or scored meanwhile is reported without pictures and texts of the model.

    These take half of the time of a tiny run; the shared run has them.
    """

    def report(task, run, results):
        page.write(run, results, None)

    from experiments.results import report_page as page

    with mock.patch("experiments.evaluate.run.show_results", report):
        yield


@contextlib.contextmanager
def loading_once():
    """Commands share a run's model meanwhile, if they have the same config.

    What it has compiled for one of them, it need not compile for the next. Nobody may change the
    folders that they read.
    """
    from transformer.runs.run import Run  # imports JAX, which not every test needs

    load, runs = Run.load_trained, {}

    def kept(self, steps=()):
        key = self.folder, self.config.to_json(), *steps
        if key not in runs:
            runs[key] = load(self, steps)
        return runs[key]

    with mock.patch.object(Run, "load_trained", kept):
        yield


@contextlib.contextmanager
def translators_once():
    """Equal translators are one meanwhile: what it has compiled, it need not compile again."""
    from transformer.tasks import translation  # imports JAX, which not every test needs

    make, known = translation.make_translator, {}

    def kept(config, *tokenizers):
        key = config.model.to_json(), config.decode.to_json(), *(own.model for own in tokenizers)
        if key not in known:
            known[key] = make(config, *tokenizers)
        return known[key]

    with mock.patch.object(translation, "make_translator", kept):
        yield


class TinyRun(NamedTuple):
    """The shared run: nothing may be written to `workdir`; `copy` it to change it."""

    config: Path
    workdir: Path

    def copy(self, folder: Path) -> Path:
        """Returns the workdir of a copy."""
        shutil.copytree(self.workdir, folder)
        return folder


def shared_folder(tmp_path_factory, name: str, fill: Callable[[Path], None]) -> Path:
    """Returns a folder, filled by whichever process of pytest-xdist comes first.

    Args:
      name: of the folder, the same in every process.
      fill: writes into it; where it fails, all who ask for the folder do.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    done, error = folder / "done", folder / "error"
    try:
        folder.mkdir()
    except FileExistsError:
        while not done.exists():
            time.sleep(0.2)
    else:
        try:
            fill(folder)
        except BaseException:
            error.write_text(traceback.format_exc(), encoding="utf-8")
            raise
        finally:
            done.touch()
    assert not error.exists(), error.read_text("utf-8")
    return folder


def shared_run(tmp_path_factory) -> TinyRun:
    """Returns the run, trained once for all."""

    def train(root: Path):
        (root / "config.py").write_text(CONFIG.replace("CACHE", str(root / "cache")))
        ended = command(f"--config={root / 'config.py'}", f"--workdir={root / 'workdir'}")
        assert ended.code == 0, ended
        (root / "log.txt").write_text(ended.out + ended.err, encoding="utf-8")

    root = shared_folder(tmp_path_factory, "tiny_run", train)
    return TinyRun(root / "config.py", root / "workdir")


def forget_weights(folder: Path) -> None:
    """Deletes the weights that a run has stored apart, so that its checkpoints are read."""
    for name in ("weights.json", "weights.safetensors"):
        (folder / name).unlink()
