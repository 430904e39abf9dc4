"""Errors that users can fix, and the formatting of their messages."""

import re

MAX_VALUE_LENGTH = 200  # maximum characters of a user-supplied value in a message
MAX_LINE_LENGTH = 1200  # maximum characters of a message
# Control characters and line separators, which would break a line or a table cell.
ENDS_OF_LINES = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
# Characters that Markdown may interpret as markup. Between letters or digits, `_` is literal.
MARKDOWN = re.compile(
    r"""[\\`*\[\]~^$] | (?<![^\W_])_ | _(?![^\W_]) | <(?=[a-zA-Z/!?]) | &(?=\#?\w+;)""", re.VERBOSE
)


class UserError(Exception):
    """An error in a config, file, checkpoint or input sentence.

    The message is one line that names the invalid value and a fix. The command prints the message
    without a traceback and exits with code 2.
    """


class RunError(UserError):
    """An error that affects a single run; the other runs of a sweep can continue."""


class LostError(UserError):
    """Another training process was lost. A script can restart all processes.

    The attribute `code` is the exit code EX_TEMPFAIL from <sysexits.h>.
    """

    code = 75


def shorten(text: object, most: int = MAX_VALUE_LENGTH) -> str:
    """Shortens a text to at most `most` characters by replacing its middle with "..."."""
    text = str(text)
    if len(text) <= most:
        return text
    tail = (most - 3) // 2
    return f"{text[: most - 3 - tail]}...{text[len(text) - tail :]}"


def markdown_text(text: str) -> str:
    """Returns text as a single line of escaped Markdown; in tables, `|` must also be escaped."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(ENDS_OF_LINES.sub(" ", text).split()))


def one_line(message: str) -> str:
    """Returns a message as one printable line; the middle of a long message is removed.

    Line breaks are replaced by spaces; control characters and lone surrogates are escaped, so that
    a value in the message cannot move the terminal cursor.
    """
    words = " ".join(message.split())
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
    return shorten(shown, MAX_LINE_LENGTH)
