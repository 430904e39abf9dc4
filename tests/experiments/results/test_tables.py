"""A printed table, or one in Markdown, holds all of its text."""

import re
import sys

import pytest
from rich.table import Table

from experiments.process.text_io import print_table
from transformer.errors import markdown_text

CELLS = ("1603.551234567", "0.123456789 ± 0.00123", "123,456,789,012", "of several words", "7.4%")


def printed(capsys, monkeypatch, columns: int | None, made: Table) -> list[str]:
    """What a terminal of a given number of columns shows, line by line; with None, a pipe."""
    monkeypatch.setenv("COLUMNS", str(columns or 33))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: columns is not None)
    print_table(made)
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("columns", [80, None])
def test_a_name_is_printed_as_it_is(capsys, monkeypatch, columns):
    made, name = Table(title="[red]set"), "[bold]a[/x] :car:"
    made.add_column("[b]")
    made.add_row(name)
    text = "\n".join(printed(capsys, monkeypatch, columns, made))
    assert all(part in text for part in ("[red]set", "[b]", name))


def test_a_terminal_folds_what_is_wider_and_a_pipe_has_a_row_in_a_line(capsys, monkeypatch):
    made = Table()
    for _ in CELLS * 3:
        made.add_column("name", justify="right")
    made.add_row(*CELLS * 3)
    [row] = [line for line in printed(capsys, monkeypatch, None, made) if CELLS[0] in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [*CELLS * 3]
    folded = printed(capsys, monkeypatch, 100, made)
    assert max(map(len, folded)) <= 100
    assert "".join(folded).count("5") == "".join(CELLS * 3).count("5")  # nothing is cut


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("<b>x</b>", r"\<b>x\</b>"),
        ("a<b ^ c~d $e$", r"a\<b \^ c\~d \$e\$"),
        ("*x* `y` [z](u)", r"\*x\* \`y\` \[z\](u)"),
        ("_x_ a_b _", r"\_x\_ a_b \_"),
        ("R&D &amp; &#60;", r"R&D \&amp; \&#60;"),
        ("two\nlines", "two lines"),
        ("<0.001, p < 0.05, -4.02 ± 1", "<0.001, p < 0.05, -4.02 ± 1"),
    ],
)
def test_markdown_shows_a_text_as_it_is(text, markdown):
    assert markdown_text(text) == markdown
