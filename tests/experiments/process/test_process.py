"""A full disk, a pipe that nobody reads, too little memory: one line or silence."""

import contextlib
import errno
import io
import logging
import os
import subprocess
import sys

import jax
import pytest

from experiments.process.process import explain, logging_to
from places import ROOT
from tiny_run import command, refused
from transformer.errors import MAX_LINE_LENGTH, one_line, shorten
from transformer.runs.logs import MetricsWriter

MAIN = """
import logging, sys
from experiments.process.process import exit_code, logging_to, run_process

def say(line):
    with logging_to("stdout"):
        logging.getLogger("transformer.x").info(line)

def main():
    {}
    return 0

sys.exit(run_process(main))
"""
FULL = (
    "error: standard output: No space left on device: check the path, its permissions, the room on "
    "its disk and `ulimit -n`\n2\n"
)
# Wider than the buffer of a pipe.
LOG = "say('x' * 10**6); say('y'); print('worked', file=sys.stderr)"


def shell(program: str, redirected: str) -> str:
    """Runs a program in a process whose streams a shell redirects; returns its stderr and code."""
    line = f'exec 9>&2; {{ "$0" -c "$1"; echo "$?" >&9; }} {redirected}'
    arguments = ["bash", "-c", line, sys.executable, MAIN.format(program)]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, timeout=60).stderr.decode()


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "redirected", "said"),
    [
        ("print('x' * 10**6)", "| head -c 1", "0\n"),
        # The log is not the answer: the work goes on.
        (LOG, "| head -c 1", "worked\n0\n"),
        ("print('\\udcff'); print('\\udcff', file=sys.stderr)", "", "\\udcff\n0\n"),
        ("print('x')", ">/dev/full", FULL),
        ("return exit_code(lambda: print('x', flush=True), 'a folder', '')", ">/dev/full", FULL),
    ],
)
def test_a_process_ends_in_silence_or_one_line_whatever_its_streams_are(program, redirected, said):
    assert shell(program, redirected) == said


@pytest.mark.full
def test_a_program_that_fails_still_has_a_traceback():
    assert "ZeroDivisionError" in shell("1 / 0", "")  # the control


def test_a_mode_s_lines_go_to_its_stream_as_it_is_then_and_to_no_other(capsys):
    logger = logging.getLogger("experiments.x")
    with logging_to("stdout"):
        logger.info("a %d", 1)
        with contextlib.redirect_stdout(io.StringIO()) as bar:
            logger.warning("c")
    logger.info("d")
    assert (*capsys.readouterr(), bar.getvalue()) == ("a 1\n", "", "c\n")


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
    fail("INTERNAL: a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        command(*arguments, stdin=b"a\n")


# -- what is quoted


def test_a_message_is_one_printable_line_that_keeps_its_ends():
    assert shorten("x" * 200) == "x" * 200
    assert shorten("abcdefghij", 7) == "ab...ij"
    assert one_line("a\nb\r\x1b[2Jc \udcff é") == "a b \\x1b[2Jc \\udcff é"
    line = one_line(f"--input {'long' * 3000} is not a file: name a text file")
    assert len(line) == MAX_LINE_LENGTH
    assert line.endswith("is not a file: name a text file")


def test_a_full_disk_is_blamed_on_the_log_of_metrics(tmp_path, monkeypatch):
    def fail(*arguments, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = MetricsWriter(tmp_path, 0)
    monkeypatch.setattr("json.dumps", fail)
    with pytest.raises(OSError, match="No space") as caught:
        writer.write(1, "train", {"loss": 1.0})
    writer.close()
    assert caught.value.filename == str(tmp_path / "metrics.jsonl")
