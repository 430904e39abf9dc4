"""Errors that the user can fix, and the format of their messages."""

import re

MAX_VALUE_LENGTH = 200  # maximum characters of a user's value in a message
MAX_LINE_LENGTH = 1200  # maximum characters of a message
# Other characters that would break a line or a cell.
ENDS_OF_LINES = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
# Characters that Markdown may read as markup. Between letters or digits, `_` is a letter.
MARKDOWN = re.compile(
    r"""[\\`*\[\]~^$] | (?<![^\W_])_ | _(?![^\W_]) | <(?=[a-zA-Z/!?]) | &(?=\#?\w+;)""", re.VERBOSE
)


class UserError(Exception):
    """A mistake in a config, file, checkpoint or sentence.

    The message is one line that names the value and the fix; the command prints it, without a
    traceback, and exits with code 2.
    """


class RunError(UserError):
    """An error of only this run: other runs of a sweep can continue."""


class LostError(UserError):
    """Another training process is lost; `code` signals scripts that all can be started again.

    The code is EX_TEMPFAIL of <sysexits.h>.
    """

    code = 75


def shorten(text: object, most: int = MAX_VALUE_LENGTH) -> str:
    """Returns a text of at most `most` characters; the middle of a longer text is left out."""
    text = str(text)
    if len(text) <= most:
        return text
    tail = (most - 3) // 2
    return f"{text[: most - 3 - tail]}...{text[len(text) - tail :]}"


def markdown_text(text: str) -> str:
    """Returns text as Markdown that displays it literally, on one line; tables must escape `|`."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(ENDS_OF_LINES.sub(" ", text).split()))


def one_line(message: str) -> str:
    """Returns a message as one printable line; a long one is shortened in the middle.

    Line breaks become spaces; control characters and lone surrogates become escapes, so that a
    value cannot move the cursor.
    """
    words = " ".join(message.split())
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
    return shorten(shown, MAX_LINE_LENGTH)
