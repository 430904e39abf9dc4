"""A full disk, a pipe that nobody reads, too little memory: one line or silence."""

import contextlib
import errno
import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from matplotlib.figure import Figure

from experiments.display.plotting import save_figure
from experiments.process.process import explain, logging_to
from places import ROOT
from tiny_run import command, refused, shared_run
from transformer.errors import MAX_LINE_LENGTH, one_line, shorten
from transformer.runs.logs import MetricsWriter

MAIN = """
import logging, signal, sys
from experiments.process.process import exit_code, logging_to, run_process

def say(line):
    with logging_to("stdout"):
        logging.getLogger("transformer.x").info(line)

def main():
    {}
    return 0

sys.exit(run_process(main))
"""

ENDING = "ending; the same command begins again, or goes on from what is saved"
FULL = (
    "error: standard output: No space left on device: check the path, its permissions, the room on "
    "its disk and `ulimit -n`\n2\n"
)
# Wider than the buffer of a pipe.
LOG = "say('x' * 10**6); say('y'); print('worked', file=sys.stderr)"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


def shell(program: str, redirected: str) -> subprocess.CompletedProcess:
    """Runs a program in a process of its own whose streams a shell redirects."""
    line = f'exec 9>&2; {{ "$0" -c "$1"; echo "$?" >&9; }} {redirected}'
    arguments = ["bash", "-c", line, sys.executable, MAIN.format(program)]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, timeout=60)


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "redirected", "said"),
    [
        ("print('x')", "", "0\n"),
        ("print('x' * 10**6)", "| head -c 1", "0\n"),
        # The log is not the answer: the work goes on.
        (LOG, "| head -c 1", "worked\n0\n"),
        ("print('x'); signal.raise_signal(signal.SIGINT)", "", f"SIGINT: {ENDING}\n130\n"),
        ("print('\\udcff'); print('\\udcff', file=sys.stderr)", "", "\\udcff\n0\n"),
        ("print('x')", ">/dev/full", FULL),
        ("return exit_code(lambda: print('x', flush=True), 'a folder', '')", ">/dev/full", FULL),
    ],
)
def test_a_process_ends_in_silence_or_one_line_whatever_its_streams_are(program, redirected, said):
    assert shell(program, redirected).stderr.decode() == said


def test_a_program_that_fails_still_has_a_traceback():
    assert "ZeroDivisionError" in shell("1 / 0", "").stderr.decode()  # the control


def test_a_mode_s_lines_go_to_its_stream_as_it_is_then_and_to_no_other(capsys):
    logger = logging.getLogger("experiments.x")
    with logging_to("stdout"):
        logger.info("a %d", 1)
        with contextlib.redirect_stdout(io.StringIO()) as bar:
            logger.warning("c")
    logger.info("d")
    assert (*capsys.readouterr(), bar.getvalue()) == ("a 1\n", "", "c\n")


# -- errors


def test_an_error_of_the_system_names_its_file_with_the_fix():
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/figure.png")
    says = "/a/figure.png: No space left on device: check the path, its permissions, the room on "
    assert explain(full, "/run", "").startswith(says)
    assert explain(OSError("odd"), "/run", "").startswith("/run: odd: check the path")


def test_too_little_memory_is_one_line_and_another_error_is_none(tiny, monkeypatch):
    def fail(message):
        def search(*arguments, **settings):
            raise jax.errors.JaxRuntimeError(message)

        monkeypatch.setattr("transformer.inference.search.continue_search", search)

    arguments = ["--mode=translate", f"--workdir={tiny.workdir}"]
    fail("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes.")
    ended = refused(*arguments, stdin=b"a\n", says="lower --config.decode.batch_size or")
    assert len(ended.err.splitlines()) == 1
    assert explain(MemoryError(), "", "x") == "the memory is too small: lower x"
    fail("INTERNAL: a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        command(*arguments, stdin=b"a\n")


# -- what is quoted


def test_a_long_value_keeps_its_ends_and_a_long_message_its_fix():
    assert shorten("x" * 200) == "x" * 200
    assert len(shorten("x" * 201)) == 200
    assert shorten("abcdefghij", 7) == "ab...ij"
    line = one_line(f"--input {'long' * 3000} is not a file: name a text file")
    assert len(line) == MAX_LINE_LENGTH
    assert line.startswith("--input long")
    assert line.endswith("is not a file: name a text file")


def test_a_value_cannot_break_a_message_or_move_the_cursor():
    assert one_line("a\nb\r\x1b[2Jc \udcff é") == "a b \\x1b[2Jc \\udcff é"


# -- files


def full_disk(path, monkeypatch):
    """Lets every write of a file of this name fail as on a full disk, which names no file."""
    sync = os.fsync

    def fail(descriptor):
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.startswith(path.name):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs names of descriptors")
@pytest.mark.parametrize("name", ["out.txt", "links.png", "metrics.jsonl"])
def test_a_full_disk_is_blamed_on_the_file_and_leaves_nothing_partial(
    tiny, tmp_path, monkeypatch, name
):
    path = tmp_path / name
    full_disk(path, monkeypatch)
    if name == "metrics.jsonl":
        writer = MetricsWriter(tmp_path, 0)
        monkeypatch.setattr("json.dumps", lambda *_, **__: fail_as_full())
        with pytest.raises(OSError, match="No space") as caught:
            writer.write(1, "train", {"loss": 1.0})
        writer.close()
        assert caught.value.filename == str(path)
        return
    if name == "links.png":
        with pytest.raises(OSError, match="No space") as caught:
            save_figure(Figure(), path)
        assert caught.value.filename == str(path)
    else:
        arguments = ["--mode=translate", f"--workdir={tiny.workdir}", f"--output={path}"]
        ended = refused(*arguments, stdin=b"a\n", says=f"{path}: No space left on device: check")
        assert str(tiny.workdir) not in ended.err
    assert list(tmp_path.iterdir()) == []


def fail_as_full():
    raise OSError(errno.ENOSPC, "No space left on device")
