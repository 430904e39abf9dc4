"""The commands of the first hour run, on a tiny run in place of the quickstart."""

import shlex

import pytest
from pages import BLOCK, commands_of

import tiny_run
from places import ROOT
from tiny_run import command, shared_run, without_pictures

pytestmark = pytest.mark.full
PAGE = (ROOT / "docs/first_hour.md").read_text("utf-8")
LINES = [line for _, block in BLOCK.findall(PAGE) for line in block.splitlines()]


@pytest.fixture
def place(tmp_path, tmp_path_factory, monkeypatch):
    """A folder in which `make demo` has trained a tiny run."""
    (tmp_path / "configs").mkdir()
    config = tiny_run.CONFIG.replace("CACHE", str(tmp_path / "cache"))
    (tmp_path / "configs" / "quickstart.py").write_text(config)
    shared_run(tmp_path_factory).copy(tmp_path / "runs" / "quickstart")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(words: list[str]) -> bytes:
    """What `echo` or `printf` writes."""
    if words[0] == "printf":
        return words[1].encode().decode("unicode_escape").encode()
    assert words[0] == "echo"
    return f"{' '.join(words[1:])}\n".encode()


def answers(line: str) -> str:
    """What a line of the page prints, if it is a command of ours."""
    *before, words = commands_of(line)
    stdin = written(before[0]) if before else b""
    assert words[:2] == ["python", "launch.py"]
    with without_pictures():
        ended = command(*words[2:], stdin=stdin)
    assert ended.code == 0, ended.err
    return ended.out


def test_the_commands_of_the_first_hour_run(place):
    assert LINES[:2] == ["make demo", "source .venv/bin/activate"]
    first, best, score, worse, *attention = map(answers, LINES[2:8])
    assert first.count("\n") == 1
    assert [line.split("\t")[0] for line in best.splitlines()] == ["1"] * 3
    scores = [line.split("\t") for line in (score + worse).splitlines()]
    assert [tokens.isdecimal() for _, tokens in scores] == [True, True]
    assert ["explorer.html" in files for files in attention] == [True, True]


@pytest.mark.slow
def test_the_change_of_the_first_hour_runs(place):
    train, attention = LINES[8:]
    answers(train)
    assert "explorer.html" in answers(attention)
    assert (place / "runs" / "without" / "results.json").exists()


def test_make_demo_is_the_training_that_the_page_changes():
    rules = (ROOT / "Makefile").read_text("utf-8")
    assert "$(BIN)/python launch.py --config=configs/quickstart.py --workdir=$(WORKDIR)" in rules
    assert "WORKDIR ?= runs/quickstart" in rules
    [change] = [line for line in LINES if "--config=" in line]
    assert shlex.split(change)[2] == "--config=configs/quickstart.py"
