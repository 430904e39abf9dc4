"""Tables as Markdown show every text as it is."""

import pytest

from experiments.results.table import Table, markdown_table
from transformer.errors import markdown_text


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("<b>x</b>", r"\<b>x\</b>"),
        ("a<b ^ c~d $e$", r"a\<b \^ c\~d \$e\$"),
        ("*x* `y` [z](u)", r"\*x\* \`y\` \[z\](u)"),
        ("_x_ a_b _", r"\_x\_ a_b \_"),
        ("a\\b", r"a\\b"),
        ("R&D &amp; &#60;", r"R&D \&amp; \&#60;"),
        ("two\nlines", "two lines"),
        # Numbers and sentences stay readable.
        ("<0.001, p < 0.05, -4.02 ± 1", "<0.001, p < 0.05, -4.02 ± 1"),
    ],
)
def test_markdown_shows_a_text_as_it_is(text, markdown):
    assert markdown_text(text) == markdown


def test_a_bar_stays_within_its_cell_of_a_markdown_table():
    table = markdown_table(Table("", ["a", "b"], [["x|y", "1"]]))
    assert table.splitlines() == ["| a | b |", "| --- | ---: |", r"| x\|y | 1 |"]
