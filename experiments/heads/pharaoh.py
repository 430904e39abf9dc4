"""Word links in files of the Pharaoh format: one sentence pair per line, its links between blanks.

A link is written i-j, source word i and target word j, both from zero; one that is only possible is
ipj or i?j, as in alignments by people who could say which they were sure of. Words are what blanks
part in the text that the links are of.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from transformer.analysis.alignment import GoldLinks
from transformer.data.files.text import read_lines
from transformer.errors import UserError

LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)


def read_links(path: Path, sizes: Sequence[tuple[int, int]], pairs: str) -> list[GoldLinks]:
    """Returns the links of each sentence pair.

    Args:
      sizes: how many words each pair has, in its source and in its target.
      pairs: the name of the pairs, for messages.

    Raises:
      UserError: a link is malformed or points past its sentence, or lines are too few or too many.
    """
    if not path.is_file():
        raise UserError(
            f"--links {path} is not a file: name one in Pharaoh format, such as 0-0 1-2"
        )
    lines = list(read_lines(path))
    if len(lines) != len(sizes):
        raise UserError(
            f"--links {path} has {len(lines):,} lines, and {pairs} {len(sizes):,} pairs: each pair "
            "needs its line, a blank one if it has no link"
        )
    return [
        _parse(line, size, f"--links {path}, line {number}")
        for number, (line, size) in enumerate(zip(lines, sizes, strict=True), 1)
    ]


def _parse(line: str, size: tuple[int, int], place: str) -> GoldLinks:
    """The links of a line."""
    sure, possible = [], []
    for text in line.split():
        link = LINK.fullmatch(text)
        if link is None:
            raise UserError(
                f"{place}: {text[:40]!r} is not a link: write source-target, two word numbers from "
                "zero such as 0-0, or 0p0 for a link that is only possible"
            )
        i, j = int(link[1]), int(link[3])
        if i >= size[0] or j >= size[1]:
            raise UserError(
                f"{place}: link {text} points past the sentence, which has {size[0]} source words "
                f"and {size[1]} target words between blanks: count them from zero"
            )
        (sure if link[2] == "-" else possible).append((i, j))
    return GoldLinks(sure, possible)


def format_links(links: Iterable[tuple[int, int]]) -> str:
    """Returns the line of a pair."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))
