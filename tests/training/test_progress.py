"""What a person sees before and while a command runs."""

import io
import re
import sys

import numpy as np
import pytest

from transformer.training import progress
from transformer.training.progress import Progress, line_progress, parameter_counts


def test_the_parameters_are_counted_by_part_and_the_layers_of_a_stack_together():
    params = {
        "decoder_layers_0": {"a": np.zeros((30, 40)), "b": {"c": np.zeros(5)}},
        "decoder_layers_1": {"a": np.zeros((30, 40)), "b": {"c": np.zeros(5)}},
        "norm": {"scale": np.zeros(7)},
    }
    assert parameter_counts(params) == {"decoder_layers (2)": 2410, "norm": 7}


class Terminal(io.StringIO):
    """Text that takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "hidden", "shown"),
    [(Terminal, False, True), (io.StringIO, False, False), (Terminal, True, False)],
)
def test_lines_have_a_bar_where_stderr_is_a_terminal(stderr, hidden, shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stderr())
    monkeypatch.setenv("TERM", "xterm")
    with line_progress(7, hidden) as advance:
        advance(3)
        advance(4)
    text = sys.stderr.getvalue()
    assert ("7/7" in text) == shown
    assert shown or text == ""


NUMBERS = {
    "loss": 2.5,
    "tokens_per_second": 1200.0,
    "seconds_per_step": 0.25,
    "learning_rate": 1e-3,
    "seconds": 40.0,
}


class Phasors:
    """A clock that stands still until it is set."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress, "time", self)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    return Phasors(monkeypatch)


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())


def test_a_terminal_s_bar_moves_at_every_step_and_says_compiling_only_meanwhile(
    clock, monkeypatch, said
):
    terminal, seen = Terminal(), 0
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")

    def shown(bar) -> str:
        """What has come to the terminal since the last look."""
        nonlocal seen
        bar._bar.refresh()
        text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue())
        text, seen = text[seen:], len(text)
        return text

    with Progress(9, 0, "tokens") as bar:
        assert "compiling" not in shown(bar)
        with bar.busy("compiling"):
            assert "compiling" in shown(bar)
            clock.now += 240
            bar.tick()
            assert "compiling, 240 s" in shown(bar)
        assert "compiling" not in shown(bar)
        for step in (1, 2, 3):
            clock.now += 1
            bar.step(step)
            text = shown(bar)
            assert f"{step}/9" in text
            assert f"0:00:0{9 - step} left" in text  # a second each, without the compilation
        bar.update(3, NUMBERS)
        assert "loss 2.500  1,200 tokens/s  0.25 s/step" in shown(bar)
    assert said == []


@pytest.mark.usefixtures("elsewhere")
def test_elsewhere_there_is_a_line_at_each_log_interval_and_at_least_every_half_minute(clock, said):
    with Progress(1000, 0, "tokens") as lines:
        with lines.busy("compiling"):
            assert said == ["compiling ..."]
            for _ in range(61):
                clock.now += 1
                lines.tick()
        assert said[1:] == ["step 0/1000  compiling, 30 s", "step 0/1000  compiling, 60 s"]
        with lines.busy("compiling"):  # for batches of another shape
            pass
        assert len(said) == 3
        for step in range(1, 64):
            clock.now += 1
            lines.step(step)
        assert [line.split()[1] for line in said[3:]] == ["29/1000", "59/1000"]
        lines.update(64, NUMBERS)
        assert said[5].startswith("step 64/1000  loss 2.500  1,200 tokens/s  0.25 s/step  rate")
        lines.note(64, {"loss": 2.0, "bleu": 17.76})
        assert said[6] == "validation at step 64: loss 2  bleu 17.76"


@pytest.mark.usefixtures("elsewhere")
def test_the_time_left_counts_evaluations(clock, said):
    with Progress(100, 20, "tokens") as lines:
        for step in range(21, 31):
            clock.now += 1
            lines.step(step)
        with lines.busy("evaluation at step 30"):
            clock.now += 40
        clock.now += 1
        lines.step(31)  # 51 seconds for 11 steps; 69 are left
        assert said[-1] == "step 31/100  0:05:20 left"
    with Progress(100, 0, "tokens", limit=60) as lines:
        clock.now += 40
        lines.step(1)
    assert said[-1] == "step 1/100  0:00:20 left"
