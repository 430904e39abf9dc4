"""Lines that are typed or arrive through a pipe are answered one by one, and cost no more rows."""

import contextlib
import gzip
import io
import os
import pty
import subprocess
import sys
import threading
import time

import pytest

from experiments.process import text_io
from experiments.process.text_io import open_output
from places import LAUNCH, ROOT
from tiny_run import shared_run
from transformer import files
from transformer.errors import UserError
from transformer.runs import workdir
from transformer.runs.run import Run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


# -- what has arrived


@contextlib.contextmanager
def pipe():
    """A pipe: what writes to it, and the lines that are read from it."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as end, os.fdopen(reading, "rb") as stream:
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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"1\n00:00:01,000 --> 00:00:02,000\nHi\n", r"is a file of subtitles \(SRT.*pysubs2"),
        (b"PK\x03\x04" + bytes(9) + b"word/document.xml", r"is a Word document \(DOCX\)"),
        (b'<?xml version="1.0"?>\n<tmx version="1.4">\n', r"is a \.tmx file: "),
        (gzip.compress(b"Hi\n"), "is a gzip file: name an unpacked"),
    ],
    ids=["srt", "docx", "tmx", "gzip"],
)
def test_what_has_no_line_of_text_is_refused_before_one_is_answered(content, says):
    with pytest.raises(UserError, match=f"a file {says}"):
        next(text_io.Lines(io.BytesIO(content), "a file").chunks())
    with pipe() as (end, lines):
        end.write(content)
        end.close()
        with pytest.raises(UserError, match=f"standard input {says}"):
            next(lines.chunks())


def start(*arguments, **streams):
    return subprocess.Popen(
        [sys.executable, LAUNCH, *map(str, arguments)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        **streams,
    )


@pytest.mark.full
def test_each_line_of_an_open_pipe_is_answered_before_the_next_is_written(tiny):
    arguments = ["--mode=score", f"--workdir={tiny.workdir}"]
    pipe = subprocess.PIPE
    with start(*arguments, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        for number in range(3):
            process.stdin.write(b"a b\t" + b"a " * number + b"\n")
            process.stdin.flush()
            # Old code would wait here for the end of the input.
            assert process.stdout.readline().endswith(f"\t{number + 1}\n".encode())
        process.stdin.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")


def read_until(terminal: int, text: bytes, seconds: float = 60) -> bytes:
    """What a terminal shows up to and with a text."""
    seen, end = b"", time.monotonic() + seconds
    while text not in seen:
        assert time.monotonic() < end, seen
        seen += os.read(terminal, 4096)
    return seen


@pytest.mark.full
def test_a_terminal_says_how_to_end_and_has_an_answer_to_each_line(tiny):
    ours, theirs = pty.openpty()
    arguments = ["--mode=translate", f"--workdir={tiny.workdir}"]
    streams = dict.fromkeys(("stdin", "stderr"), theirs)
    with start(*arguments, stdout=subprocess.PIPE, **streams) as process:
        os.close(theirs)
        read_until(ours, b"Ctrl-D ends")
        for line in (b"a b c\n", b"\n"):
            os.write(ours, line)
            answer = process.stdout.readline()  # without a prompt
            assert (answer == b"\n") == (line == b"\n")
        os.write(ours, b"\x04")
        assert process.stdout.read() == b""
        assert process.wait(60) == 0
    os.close(ours)


ECHO = """
from experiments.process import text_io

for lines in text_io.typed_lines():
    print("got", lines, flush=True)
"""


@pytest.mark.full
def test_a_typed_line_can_be_called_back_and_pasted_lines_come_together():
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    env = os.environ | {"TERM": "xterm", "PYTHONUTF8": "1"}
    root = LAUNCH.parent
    with subprocess.Popen([sys.executable, "-c", ECHO], cwd=root, env=env, **streams) as process:
        os.close(theirs)
        assert b"Ctrl-D ends" in read_until(ours, b"> ")
        os.write(ours, "été\n".encode())
        assert f"got {['été'.encode()]}".encode() in read_until(ours, b"\n> ")
        os.write(ours, b"\x1b[A!\n")  # the arrow up
        assert f"got {['été!'.encode()]}".encode() in read_until(ours, b"\n> ")
        os.write(ours, b"\x1b[200~a\nb\x1b[201~\n")  # as terminals mark what is pasted
        assert b"got [b'a', b'b']" in read_until(ours, b"\n> ")
        os.write(ours, b"\x04")
        assert process.wait(60) == 0
    os.close(ours)


# -- rows


def test_a_sentence_costs_one_row_of_a_translator_and_a_full_chunk_costs_what_it_did(
    tiny, monkeypatch
):
    config = workdir.load_config(tiny.workdir)
    run = Run(tiny.workdir, config).load_trained()
    translator, variables = run.predictor, run.variables
    seen = []
    search, nll = translator._search.search, translator._row_nll
    monkeypatch.setattr(
        translator._search,
        "search",
        lambda v, source, *rest, **more: (
            seen.append(len(source)),
            search(v, source, *rest, **more),
        )[1],
    )
    monkeypatch.setattr("transformer.inference.translator.share", lambda most: (1, most))
    monkeypatch.setattr(
        translator, "_row_nll", lambda v, batch: (seen.append(len(batch.source)), nll(v, batch))[1]
    )
    translator.translate(variables, ["a b", ""])
    list(translator.score(variables, ["a b"], ["a"]))
    assert seen == [1, 1]
    seen.clear()
    translator.translate(variables, ["a b"] * 3)
    translator.translate(variables, ["a b"] * 20)  # config.decode.batch_size=8
    assert seen == [4, 8, 8, 8]


# -- what a text may be


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a b\nc\n".encode("utf-16-le"), "not UTF-8 but UTF-16"),
        ("été\n".encode("latin-1"), "line 1: byte 0xE9 is not UTF-8"),
        (b"a\n\xed\xa0\x80\n", "line 2: byte 0xED is not UTF-8"),  # half a surrogate
    ],
)
def test_a_text_in_another_encoding_is_named_with_what_converts_it(content, says):
    with pytest.raises(UserError, match=f"a file.* ?{says}"):
        list(text_io.Lines(io.BytesIO(content), "a file").chunks())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\r\r\nb\rc\r\n", ["a", "b\rc"]),
        (b"\x00\n\x00a\x00\n", ["\x00", "\x00a\x00"]),
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
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    says = f"--output {tmp_path / 'link'}: {tmp_path / 'none'} is not a folder"
    with pytest.raises(UserError, match=says), open_output(str(tmp_path / "link")):
        pass
    with open_output(str(tmp_path / "loop")) as file:
        file.write("a")
    assert (tmp_path / "loop").read_text() == "a"
