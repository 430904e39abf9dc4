"""What a person sees before and while a command runs."""

import io
import sys

import numpy as np
import pytest

from conftest import tiny_model
from transformer.progress import Progress, line_progress, parameter_table


def test_the_parameters_are_counted_by_part_and_the_layers_of_a_stack_together():
    params = {
        "decoder_layers_0": {"a": np.zeros((30, 40)), "b": {"c": np.zeros(5)}},
        "decoder_layers_1": {"a": np.zeros((30, 40)), "b": {"c": np.zeros(5)}},
        "norm": {"scale": np.zeros(7)},
    }
    assert parameter_table(params).splitlines() == [
        "decoder_layers (2)  2,410",
        "norm                    7",
        "all parameters      2,417",
    ]


def test_the_parts_of_a_model_add_up_to_all_its_parameters():
    _, variables = tiny_model(num_encoder_layers=3)
    *parts, total = parameter_table(variables["params"]).splitlines()
    assert any(line.startswith("encoder_layers (3) ") for line in parts)
    counts = [int(line.split()[-1].replace(",", "")) for line in (*parts, total)]
    assert sum(counts[:-1]) == counts[-1] > 0


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


@pytest.mark.parametrize(
    ("stderr", "start", "said"),
    [
        (io.StringIO, 0, ["compiling ..."]),
        (io.StringIO, 9, []),  # no step is left
        (Terminal, 0, []),  # the bar says so
    ],
)
def test_lines_begin_with_the_compilation_that_the_first_step_waits_for(
    stderr, start, said, monkeypatch
):
    monkeypatch.setattr(sys, "stderr", stderr())
    monkeypatch.setenv("TERM", "xterm")
    lines = []
    with Progress(9, start, lines.append, "tokens"):
        assert lines == said
    assert ("compiling" in sys.stderr.getvalue()) == (stderr is Terminal)
