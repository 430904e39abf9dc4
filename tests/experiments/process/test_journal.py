"""An output file survives an interruption: the same command goes on, and other ones are refused."""

import errno
import shutil

import pytest

import transformer
from experiments.process import text_io
from tiny_run import command
from transformer.inference.translator import Translator
from transformer.runs.workdir import locked

LINES = ["We sleep.", "", "They must watch TV.", "Laura may drive to Munich.", "We sleep not."]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(text_io, "LINES_AT_ONCE", 2)
    transformer.load("quickstart").export("bundle", tmp_path / "run")
    (tmp_path / "in").write_text("\n".join(LINES) + "\n")
    return tmp_path


def translate(place, *flags):
    files = f"--input={place / 'in'}", f"--output={place / 'out'}"
    return command(f"--workdir={place / 'run'}", "--mode=translate", *files, *flags)


def interrupt(monkeypatch, after: int):
    seen, own = [], Translator.translate

    def stop(self, variables, lines, **options):
        seen.append(list(lines))
        if len(seen) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return own(self, variables, lines, **options)

    monkeypatch.setattr(Translator, "translate", stop)
    return seen


def test_a_command_goes_on_after_the_lines_that_are_finished(place, monkeypatch):
    assert translate(place).code == 0
    whole = (place / "out").rename(place.parent / "whole").read_bytes()
    with monkeypatch.context() as patch:
        interrupt(patch, 1)
        ended = translate(place)
        assert f"error: {place / 'out'}: No space left on device: check the path" in ended.err
        assert not (place / "out").exists()
    lines = place / "out.unfinished" / "lines"
    lines.write_text(lines.read_text() + "half a li")  # as a kill leaves it
    texts = interrupt(monkeypatch, 9)
    assert "going on after 2 lines" in translate(place).err
    assert [text for some in texts for text in some] == LINES[2:]
    assert (place / "out").read_bytes() == whole
    assert sorted(path.name for path in place.iterdir()) == ["in", "out", "run"]


@pytest.mark.parametrize("change", ["input", "weights", "decode keys", "flags"])
def test_a_command_that_differs_is_refused_and_nothing_is_lost(change, place, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, 2)
        translate(place)
    before, flags = (place / "out.unfinished" / "lines").read_bytes(), []
    if change == "input":
        (place / "in").write_text("We sleep.\n" * 5)
    elif change == "weights":
        (place / "run" / "weights.json").write_text("{}")
    else:
        flags = ["--prefix_column" if change == "flags" else "--config.decode.beam_size=2"]
    ended = translate(place, *flags)
    assert f"of other {change}: repeat that command, or delete" in ended.err
    assert (place / "out.unfinished" / "lines").read_bytes() == before


def test_two_commands_for_one_output_and_early_errors_leave_nothing(place, monkeypatch):
    with locked(place / f"out{text_io.UNFINISHED}"):
        assert "another process writes to" in translate(place).err
    shutil.rmtree(place / f"out{text_io.UNFINISHED}")
    interrupt(monkeypatch, 0)
    assert translate(place).code == 2
    assert sorted(path.name for path in place.iterdir()) == ["in", "run"]
