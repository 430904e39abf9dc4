"""Tables as Markdown and LaTeX show every text as it is."""

import pytest

from experiments.display.text_table import latex_table, latex_text, markdown_table, markdown_text


def test_latex_cells_are_escaped():
    text = latex_table(["a_b", "x"], [["50%", "1 ± 2"], ["\\cmd{&}", "<0.001"]], 1)
    assert r"a\_b & x \\" in text
    assert r"50\% & 1 \ensuremath{\pm} 2 \\" in text
    assert r"\textbackslash{}cmd\{\&\} & \textless{}0.001 \\" in text
    assert text.startswith("\\begin{tabular}{lr}\n\\toprule")
    assert latex_text("a|b`c^~") == (
        r"a\textbar{}b\textasciigrave{}c\textasciicircum{}\textasciitilde{}"
    )
    # After the end of a row these would be its arguments.
    assert latex_text("[1]*") == "{[}1]{*}"


def test_numbers_of_latex_have_minus_signs_and_names_keep_their_hyphens():
    rows = [["pre-norm -1", "-4.02 to -0.17", "+1.00", "-", "1e-5"]]
    line = latex_table(["a"] * 5, rows, 1).splitlines()[4]
    assert line == r"pre-norm -1 & $-$4.02 to $-$0.17 & +1.00 & -- & 1e-5 \\"


def test_a_rule_divides_the_rows_of_different_first_cells():
    lines = latex_table(["m", "n"], [["a", "1"], ["a", "2"], ["b", "3"]], 1).splitlines()
    rows = [r"m & n \\", r"\midrule", r"a & 1 \\", r"a & 2 \\", r"\midrule", r"b & 3 \\"]
    assert lines[1:-1] == [r"\toprule", *rows, r"\bottomrule"]


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
    table = markdown_table(["a", "b"], [["x|y", "1"]], 1)
    assert table.splitlines() == ["| a | b |", "| --- | ---: |", r"| x\|y | 1 |"]
