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

from experiments import text_io
from experiments.text_io import input_file, open_output
from places import LAUNCH
from runs import count_programs
from tiny_run import shared_run
from transformer import workdir
from transformer.errors import RunError, UserError
from transformer.inference.batching import compile_ahead, static_rows


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
        end.close()
        assert list(chunks) == [(6, ["last"])]


def test_what_prepares_for_more_lines_is_called_once_and_only_if_one_is_waited_for():
    with pipe() as (end, lines):
        calls, called = [], threading.Event()
        chunks = lines.chunks(prepare=lambda: (calls.append(1), called.set()))
        end.write(b"a\n")
        next(chunks)
        assert not calls  # a line was there
        threading.Timer(0.1, end.write, [b"b\n"]).start()
        assert next(chunks) == (2, ["b"])
        assert called.wait(10)
        threading.Timer(0.1, end.close).start()
        assert list(chunks) == []
        assert calls == [1]


def test_many_lines_that_wait_in_a_pipe_come_together_and_a_long_one_whole():
    texts = [*map(str, range(2500)), "x" * 10**6]
    with pipe() as (end, lines):
        end.write("\n".join(texts[:-1]).encode() + b"\n")
        chunks = lines.chunks()
        assert next(chunks) == (1, texts[:-1])
        threading.Thread(target=lambda: (end.write(texts[-1].encode()), end.close())).start()
        assert list(chunks) == [(2501, texts[-1:])]


def test_a_file_keeps_its_large_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(text_io, "LINES_AT_ONCE", 100)
    (tmp_path / "text").write_text("x\n" * 250)
    with (tmp_path / "text").open("rb") as stream:
        lines = text_io.Lines(stream, tmp_path / "text")
        assert lines.total == 250
        assert [len(chunk) for _, chunk in lines.chunks()] == [100, 100, 50]


def test_the_lines_of_a_pipe_before_a_bad_one_come_first():
    with pipe() as (end, lines):
        end.write(b"a\nb\n\xff\nc\n")
        chunks = lines.chunks()
        assert next(chunks) == (1, ["a", "b"])
        with pytest.raises(UserError, match="line 3"):
            next(chunks)


def refuse_six(line, place):
    if line == "6":
        raise UserError(f"{place} is 6")
    return line


@pytest.mark.parametrize("bad", ["byte", "tag", "parse", "none"])
def test_a_bad_line_of_a_file_is_found_before_its_first_chunk(bad, monkeypatch):
    monkeypatch.setattr(text_io, "LINES_AT_ONCE", 2)
    sixth = b"\xff" if bad == "byte" else b"6"
    stream = io.BytesIO(b"1\n2\n3\n4\n5\n" + sixth + b"\n7\n")
    lines = text_io.Lines(stream, "a file", *([refuse_six] if bad == "tag" else []))
    chunks = lines.chunks(*([lambda line, n: refuse_six(line, f"line {n}")] * (bad == "parse")))
    assert lines.total == 7
    if bad == "none":  # the control
        assert next(chunks) == (1, ["1", "2"])
        return
    with pytest.raises(UserError, match="line 6"):
        next(chunks)


def start(*arguments, **streams):
    return subprocess.Popen(
        [sys.executable, LAUNCH, *map(str, arguments)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        **streams,
    )


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
from experiments import text_io

for lines in text_io.typed_lines():
    print("got", lines, flush=True)
"""


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


def test_rows_are_a_power_of_two_up_to_those_of_a_batch():
    assert [static_rows(count, 48) for count in (0, 1, 2, 3, 5, 32, 33, 500)] == [
        *(1, 1, 2, 4, 8, 32, 48, 48)
    ]


def test_a_sentence_costs_one_row_of_a_translator_and_a_full_chunk_costs_what_it_did(
    tiny, monkeypatch
):
    config = workdir.load_config(tiny.workdir)
    run = workdir.load_trained(tiny.workdir, config)
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
    monkeypatch.setattr("transformer.inference.translator.share", lambda v, most: (1, most))
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


def test_a_line_of_another_length_is_translated_without_compiling_once_prepared(tiny):
    run = workdir.load_trained(tiny.workdir, workdir.load_config(tiny.workdir))
    translator = run.predictor
    short, long = "a b", "a b c d " * 5
    programs = (translator._search._start, translator._search._continue)
    translator.translate(run.variables, [short])
    counts = [program._cache_size() for program in programs]
    translator.translate(run.variables, [long])
    assert [program._cache_size() for program in programs] == [n + 1 for n in counts]  # control
    run = workdir.load_trained(tiny.workdir, workdir.load_config(tiny.workdir))
    run.predictor.prepare(run.variables)
    programs = (run.predictor._search._start, run.predictor._search._continue)
    counts = [program._cache_size() for program in programs]
    run.predictor.translate(run.variables, [short])
    run.predictor.translate(run.variables, [long])
    assert [program._cache_size() for program in programs] == counts


@pytest.mark.parametrize("prepared", [False, True])
def test_a_pair_of_another_length_is_scored_without_compiling_once_prepared(tiny, prepared):
    run = workdir.load_trained(tiny.workdir, workdir.load_config(tiny.workdir))
    if prepared:
        run.predictor.prepare_score(run.variables)
    with count_programs() as programs:
        for line in ("a b", "a b c d " * 5):
            list(run.predictor.score(run.variables, [line], [line]))
    assert len(programs) == (0 if prepared else 2)


def test_what_is_compiled_ahead_stops_at_the_first_length_that_is_too_large():
    lengths = []

    def run(length):
        lengths.append(length)
        if length == 64:
            raise RunError("too large")

    compile_ahead(run, 200, 20)
    assert lengths == [32, 64]
    lengths.clear()
    compile_ahead(run, 50)
    assert lengths == [16, 32, 50]


# -- what a text may be


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "a b\nc\n".encode("utf-16"),
            "UTF-16: convert the file, for example with `iconv -f UTF-16",
        ),
        ("a b\nc\n".encode("utf-16-le"), "not UTF-8 but UTF-16"),
        ("a b\nc\n".encode("utf-16-be"), "not UTF-8 but UTF-16"),
        ("été\n".encode("latin-1"), "line 1: byte 0xE9 is not UTF-8"),
        (b"a\n\xed\xa0\x80\n", "line 2: byte 0xED is not UTF-8"),  # half a surrogate
        (gzip.compress(b"a\n", mtime=0), "is a gzip file: unpack"),
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
        (b"a", ["a"]),
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


def test_a_file_of_the_home_folder_is_read_and_written(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_output("~/out.txt") as output:
        output.write("text")
    assert input_file("~/out.txt") == tmp_path / "out.txt"
    assert (tmp_path / "out.txt").read_text() == "text"


def test_output_to_a_link_is_written_to_the_file_that_it_leads_to(tmp_path):
    file, link = tmp_path / "out.txt", tmp_path / "link.txt"
    file.write_text("old")
    link.symlink_to(file)
    with open_output(str(link)) as output:
        output.write("new")
        assert file.read_text() == "old"  # whole or as it was
    assert link.is_symlink()
    assert file.read_text() == "new"
