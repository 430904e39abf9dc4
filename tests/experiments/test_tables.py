"""A table that is printed holds all of its text, however wide it is and however narrow the screen.

A terminal has as many columns as `COLUMNS` says, a pipe as many as the table needs.
"""

import re
import sys

import pytest
from rich.console import Console
from rich.table import Table

from experiments.text_io import print_table

CELLS = ("1603.551234567", "0.123456789 ± 0.00123", "123,456,789,012", "of several words", "7.4%")
NAMES = ("perplexity", "bleu", "tokens per second", "exact match", "accuracy")


def table(repeats: int) -> Table:
    made = Table(title="step 1,200", caption="a caption")
    made.add_column("layer")
    made.add_column("head")
    for name in NAMES * repeats:
        made.add_column(name, justify="right")
    for row in ("1", "mean"):
        made.add_row(f"layer{row}", f"head{row}", *CELLS * repeats, end_section=row == "1")
    return made


def printed(capsys, monkeypatch, columns: int | None, show) -> list[str]:
    """What a terminal of a given number of columns shows, line by line; with None, a pipe."""
    monkeypatch.setenv("COLUMNS", str(columns or 33))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: columns is not None)
    show()
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [line for line in text.splitlines() if line.strip()]


def words(lines: list[str]) -> list[str]:
    return re.findall(r"[^\s│┃┏┓┡┩└┘├┤━─┳╇┴┼]+", " ".join(lines))


@pytest.mark.parametrize("columns", [80, None])
def test_a_name_is_printed_as_it_is(capsys, monkeypatch, columns):
    made, name = Table(title="[red]set"), "[bold]a[/x] :car:"
    made.add_column("[b]")
    made.add_row(name)
    text = "\n".join(printed(capsys, monkeypatch, columns, lambda: print_table(made)))
    assert all(part in text for part in ("[red]set", "[b]", name))


@pytest.mark.parametrize("columns", [80, 45, 200])
@pytest.mark.parametrize("repeats", [1, 3])
def test_no_word_of_a_table_is_cut_on_a_narrow_terminal(capsys, monkeypatch, columns, repeats):
    made = table(repeats)
    shown = printed(capsys, monkeypatch, columns, lambda: print_table(made, keys=2))
    assert max(map(len, shown)) <= columns
    found = words(shown)
    for cell in (*CELLS, *NAMES):
        for word in cell.split():
            assert found.count(word) >= 2 * repeats - (cell in NAMES) * repeats
    # Each part says what its rows are.
    parts = sum(line.startswith("┏") for line in shown)
    assert parts > (columns == 45)
    assert found.count("layer1") == found.count("headmean") == parts
    assert (found.count("step"), found.count("caption")) == (1, 1)
    # The control: as rich prints it, long numbers are cut.
    plain = printed(capsys, monkeypatch, columns, lambda: Console(width=columns).print(made))
    assert (CELLS[0] in words(plain)) == (columns == 200 and repeats == 1)


def test_what_is_wider_than_the_terminal_goes_on_in_the_next_line(capsys, monkeypatch):
    made = Table()
    made.add_column("token")
    made.add_column("cosine")
    made.add_row("x", "0123456789" * 5)
    shown = printed(capsys, monkeypatch, 30, lambda: print_table(made))
    assert max(map(len, shown)) <= 30
    assert "0123456789" * 5 in "".join(re.findall(r"\d+", " ".join(shown)))


def test_a_pipe_has_a_row_in_a_line(capsys, monkeypatch):
    made = table(3)
    shown = printed(capsys, monkeypatch, None, lambda: print_table(made, keys=2))
    [row] = [line for line in shown if "layer1" in line]
    assert words([row]) == ["layer1", "head1", *" ".join(CELLS * 3).split()]
