"""The prompt at which somebody types lines."""

import contextlib
import importlib
import io
import sys
from collections.abc import Iterator

ABOUT = "type a line and press Enter for its answer; Ctrl-D ends\n"
PROMPT = "> "


def show(text: str) -> None:
    """Writes a part of the prompt, apart from the answers."""
    print(text, end="", file=sys.stderr, flush=True)


def typed_lines() -> Iterator[list[bytes]]:
    """Yields each line that is typed on a terminal, or the lines that are pasted together.

    The line can be edited, and the arrow keys bring back former ones, if this Python has readline.
    """
    # It lets `input` edit, and read more than 4,096 characters.
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")
    # A wrong byte is found where the lines of files are checked, too.
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    show(ABOUT)
    while True:
        try:
            text = input(PROMPT)
        except EOFError:
            show("\n")
            return
        yield text.encode(sys.stdin.encoding, "surrogateescape").split(b"\n")
