"""Tables as Markdown and as LaTeX."""

import itertools
import re
from collections.abc import Iterable, Sequence

# And what else tears a line or a cell apart.
ENDS_OF_LINES = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
LATEX = {
    "\\": r"\textbackslash{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"\ensuremath{\pm}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: f"{{{character}}}" for character in "[*"},  # which may follow the end of a row
}
MINUS = re.compile(r"(?<![\w.])-(?=[\d.])")  # of a number, which is no hyphen
NO_NUMBER = "-"  # the cell of a column of numbers that has none
# What Markdown may take for markup. Between letters or digits, `_` is a letter.
MARKDOWN = re.compile(
    r"""[\\`*\[\]~^$] | (?<![^\W_])_ | _(?![^\W_]) | <(?=[a-zA-Z/!?]) | &(?=\#?\w+;)""", re.VERBOSE
)


def one_line(text: str) -> str:
    """Returns the text without ends of lines."""
    return " ".join(ENDS_OF_LINES.sub(" ", text).split())


def markdown_text(text: str) -> str:
    """Returns a text as Markdown that shows it as it is, on one line; a table escapes `|`."""
    return MARKDOWN.sub(r"\\\g<0>", one_line(text))


def markdown_table(titles: Sequence[str], rows: Iterable[Iterable[str]], names: int) -> str:
    """Returns a table of cells in Markdown, of which those after the first `names` stand right."""

    def line(texts: Iterable[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    ruler = line("---" if column < names else "---:" for column, _ in enumerate(titles))
    return "\n".join([line(titles), ruler, *map(line, rows)])


def latex_table(titles: Sequence[str], rows: Iterable[Sequence[str]], names: int) -> str:
    """Returns a `tabular` of plain text, with the rules of the package booktabs.

    The first `names` columns hold text, the others numbers. A rule divides rows that differ in the
    first cell.
    """

    def line(texts: Sequence[str]) -> str:
        numbers = (
            "--" if text == NO_NUMBER else MINUS.sub("$-$", latex_text(text))
            for text in texts[names:]
        )
        return " & ".join([*map(latex_text, texts[:names]), *numbers]) + r" \\"

    groups = itertools.groupby(rows, key=lambda row: row[0])
    body = "\n\\midrule\n".join("\n".join(map(line, group)) for _, group in groups)
    columns = "l" * names + "r" * (len(titles) - names)
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", line(titles), r"\midrule"]
    return "\n".join([*parts, body, r"\bottomrule", r"\end{tabular}"])


def latex_text(text: str) -> str:
    """Returns a text as LaTeX that shows it as it is, on one line."""
    return "".join(LATEX.get(c, c) for c in one_line(text))
