"""Tables as Markdown and as LaTeX."""

import re
from collections.abc import Iterable, Sequence

# And what else tears a line or a cell apart.
ENDS_OF_LINES = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"\ensuremath{\pm}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def one_line(text: str) -> str:
    """The text without ends of lines."""
    return " ".join(ENDS_OF_LINES.sub(" ", text).split())


def markdown_table(titles: Sequence[str], rows: Iterable[Iterable[str]], names: int) -> str:
    """A table in Markdown.

    Args:
      names: the first columns, which hold text; the others are aligned to the right.
    """

    def line(texts: Iterable[str]) -> str:
        return "| " + " | ".join(one_line(text).replace("|", "\\|") for text in texts) + " |"

    ruler = line("---" if column < names else "---:" for column, _ in enumerate(titles))
    return "\n".join([line(titles), ruler, *map(line, rows)])


def latex_table(titles: Sequence[str], rows: Iterable[Iterable[str]], names: int) -> str:
    """A `tabular` in LaTeX, with the rules of the package booktabs; see `markdown_table`."""

    def line(texts: Iterable[str]) -> str:
        cells = ("".join(LATEX.get(c, c) for c in one_line(text)) for text in texts)
        return " & ".join(cells) + r" \\"

    columns = "l" * names + "r" * (len(titles) - names)
    body = [r"\toprule", line(titles), r"\midrule", *map(line, rows), r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}"])
