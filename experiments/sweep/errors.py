"""Classifies errors in a sweep: user errors, lack of memory, and their messages."""

import errno
from collections.abc import Iterator

from transformer.errors import UserError

# Of the machine or its disk: every trial that follows would fail by it as well.
OF_ALL = frozenset(
    (
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EPIPE),
        *(errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOLCK),
    )
)
FULL = ("No space left on device", "Disk quota exceeded")  # in errors that are not OSError
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory")
MAX_LENGTH = 300  # characters of a reason


class SweepError(UserError):
    """What is wrong concerns all trials of a sweep."""


def concerns_all(error: Exception) -> bool:
    """Whether other trials would fail with the same error."""
    return any(
        isinstance(each, SweepError | BrokenPipeError)
        or (isinstance(each, OSError) and each.errno in OF_ALL)
        or any(text in str(each) for text in FULL)
        for each in _causes(error)
    )


def is_out_of_memory(error: Exception) -> bool:
    """Whether host or device had no memory left."""
    return any(
        isinstance(each, MemoryError)
        or (isinstance(each, OSError) and each.errno == errno.ENOMEM)
        or (not isinstance(each, UserError) and any(text in str(each) for text in OUT_OF_MEMORY))
        for each in _causes(error)
    )


def reason(error: Exception) -> str:
    """One line that says what went wrong, for people."""
    text = " ".join(str(error).split())[:MAX_LENGTH]
    if is_out_of_memory(error):
        text = text or type(error).__name__
        return f"out of memory ({text}): lower --config.data.batch_tokens, or take a smaller model"
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it was raised for."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
