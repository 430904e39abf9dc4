"""The pages of the documentation, and the code in them."""

import re
import shlex
from collections.abc import Iterator

from places import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
REDIRECTION = re.compile(r"(?<!\S)2?[<>]+ *[^\s<>]+")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def code_of(page: str) -> Iterator[str]:
    """The commands and spans of code of a page, each on one line."""
    for language, text in BLOCK.findall(page):
        if language in ("", "bash"):
            yield from text.replace("\\\n", " ").splitlines()
    for span in re.findall(r"`([^`]+)`", BLOCK.sub("", page)):
        yield " ".join(span.replace("\\|", "|").split())


def commands_of(line: str) -> list[list[str]]:
    """The words of each command of a line; none if it is no line of a shell."""
    lexer = shlex.shlex(REDIRECTION.sub("", line), posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return []
    found: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("|&;"):
            found.append([])
        else:
            found[-1].append(word)
    return found
