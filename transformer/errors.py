"""What a user can put right, and how it is said."""

MAX_VALUE_LENGTH = 200  # characters of a user's value that a message quotes
MAX_LINE_LENGTH = 1200  # characters of a message


class UserError(Exception):
    """A mistake in a config, file, checkpoint or sentence.

    Its message is one line that names the value and the fix; the command prints it, without a
    traceback, and exits with code 2.
    """


class RunError(UserError):
    """What is wrong lies in this one run: others of a sweep may go on."""


def shorten(text: object, most: int = MAX_VALUE_LENGTH) -> str:
    """Returns a text of at most `most` characters: of a longer one the middle is left out."""
    text = str(text)
    if len(text) <= most:
        return text
    tail = (most - 3) // 2
    return f"{text[: most - 3 - tail]}...{text[len(text) - tail :]}"


def one_line(message: str) -> str:
    """Returns a message as one line that a terminal can show, and whose end, the fix, is there.

    Ends of lines become spaces; control characters and halves of characters are written as
    escapes, so that a value cannot move the cursor.
    """
    words = " ".join(message.split())
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
    return shorten(shown, MAX_LINE_LENGTH)
