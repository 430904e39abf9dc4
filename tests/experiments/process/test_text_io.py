"""Lines that are typed or arrive through a pipe are answered one by one."""

import contextlib
import gzip
import io
import os
import pty
import subprocess
import sys
import threading

import pytest

from experiments.process import text_io
from experiments.process.text_io import open_output
from places import LAUNCH, ROOT
from transformer import files
from transformer.errors import UserError

# -- what has arrived


class Pipe(io.BufferedReader):
    """A pipe that says what pipes say on Windows."""

    def seekable(self):
        return True


@contextlib.contextmanager
def pipe():
    """A pipe: what writes to it, and the lines that are read from it."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as end, Pipe(io.FileIO(reading)) as stream:
        yield end, text_io.Lines(stream, "standard input")


def test_what_has_arrived_is_taken_at_once_and_an_open_pipe_is_not_waited_for():
    with pipe() as (end, lines):
        chunks = lines.chunks()
        end.write("zwölf\n".encode())
        assert next(chunks) == (1, ["zwölf"])  # though the pipe is open
        end.write(b"a\r\n\nb\nhal")
        assert next(chunks) == (2, ["a", "", "b"])
        end.write(b"f\nlast")
        assert next(chunks) == (5, ["half"])
        end.write(b"\n\xff\nc\n")
        assert next(chunks) == (6, ["last"])  # before the bad one
        with pytest.raises(UserError, match="line 7"):
            next(chunks)


def test_what_has_no_line_of_text_is_refused_before_one_is_answered():
    content, says = gzip.compress(b"Hi\n"), "is a gzip file: name an unpacked"
    with pytest.raises(UserError, match=f"a file {says}"):
        next(text_io.Lines(io.BytesIO(content), "a file").chunks())
    with pipe() as (end, lines):
        end.write(content)
        end.close()
        with pytest.raises(UserError, match=f"standard input {says}"):
            next(lines.chunks())


@pytest.mark.full
def test_a_terminal_says_how_to_end_and_has_an_answer_to_each_line(tiny):
    ours, theirs = pty.openpty()
    command = [sys.executable, LAUNCH, "--mode=translate", f"--workdir={tiny.workdir}"]
    streams = {"stdin": theirs, "stderr": theirs, "stdout": subprocess.PIPE}
    env = os.environ | {"JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(command, env=env, **streams) as process:
        os.close(theirs)
        shown = b""
        while b"Ctrl-D ends" not in shown:
            shown += os.read(ours, 4096)
        for line in (b"a b c\n", b"\n"):
            os.write(ours, line)
            answer = process.stdout.readline()  # without a prompt
            assert (answer == b"\n") == (line == b"\n")
        os.write(ours, b"\x04")
        assert process.stdout.read() == b""
        assert process.wait(60) == 0
    os.close(ours)


# -- what a text may be


def test_a_text_in_another_encoding_is_named_with_its_line():
    content = b"a\n\xed\xa0\x80\n"  # half a surrogate
    with pytest.raises(UserError, match="a file, line 2: byte 0xED is not UTF-8"):
        list(text_io.Lines(io.BytesIO(content), "a file").chunks())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\r\r\nb\rc\r\n", ["a", "b\rc"]),
        (b"b\n\x00a\x00\n", ["b", "\x00a\x00"]),
        (b"x" * 10**6 + b"\ny", ["x" * 10**6, "y"]),
        ("\ufeffa\u2028b\x85c\n".encode(), ["a\u2028b\x85c"]),
    ],
)
def test_odd_lines_are_the_same_from_a_file_and_from_a_pipe(content, expected):
    lines = text_io.Lines(io.BytesIO(content), "a file")
    assert [line for _, chunk in lines.chunks() for line in chunk] == expected
    with pipe() as (end, lines):
        threading.Thread(target=lambda: (end.write(content), end.close())).start()
        assert [line for _, chunk in lines.chunks() for line in chunk] == expected


def test_output_to_a_link_is_written_to_the_file_that_it_leads_to(tmp_path):
    file, link = tmp_path / "out.txt", tmp_path / "link.txt"
    file.write_text("old")
    link.symlink_to(file)
    with open_output(str(link)) as output:
        output.write("new")
        assert file.read_text() == "old"  # whole or as it was
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_what_killed_processes_left_next_to_an_output_is_deleted(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from transformer import files\n"
        "file = files.whole_file(Path(sys.argv[1], 'out.txt')); file.__enter__()\n"
        "folder = files.partial_folder(Path(sys.argv[1], 'out')); folder.__enter__()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], cwd=ROOT)
    assert len(list(tmp_path.iterdir())) == 2
    others = ["other.txt.1.partial", f"out.txt.{os.getpid()}.{files.PARTIAL}"]
    for name in others:  # of another output, and of a process that lives
        (tmp_path / name).touch()
    with open_output(str(tmp_path / "out.txt")) as file:
        file.write("a")
    with files.partial_folder(tmp_path / "out") as folder:
        folder.rename(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"out.txt", "out", *others} - {others[1]}


def test_a_link_to_nowhere_is_named_as_it_was_given(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "none" / "file")
    says = f"--output {tmp_path / 'link'}: {tmp_path / 'none'} is not a folder"
    with pytest.raises(UserError, match=says), open_output(str(tmp_path / "link")):
        pass
