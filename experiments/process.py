"""A command as a process: its streams, signals, and one-line error messages."""

import contextlib
import ctypes
import errno
import functools
import gc
import io
import logging
import os
import stat
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from transformer import signals
from transformer.errors import UserError, one_line, shorten

# What to do about an error of the system, by its number.
REMEDIES = {
    errno.ENOSPC: "make room on its disk, or name another place",
    errno.EDQUOT: "make room in your quota, or name another place",
    errno.EMFILE: "allow more open files with `ulimit -n`",
    errno.EACCES: "check its permissions",
    errno.EBADF: "name a file with --input or --output",
    errno.EROFS: "name a place that can be written to",
}
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of glibc's mallopt, see <malloc.h>
COMPILED = "/jax/core/compile/backend_compile_duration"  # jax's name of the event
# Objects made since the last search for those that only refer to each other. By default 700: of the
# five seconds to a training's second step, such searches took 0.3.
BETWEEN_COLLECTIONS = 200_000
LONG_COMPILATION = 0.1  # seconds; the many short ones free little
BROKEN_PIPE = 0  # the exit code where nobody reads on, as in `| head`: what was asked for was given
CLOSED = "nobody reads standard output any more: the command goes on without it, until Ctrl-C"
INTERRUPTED = 130
STREAMS: Mapping[int | str, str] = {
    1: "standard output",
    2: "standard error",
}  # in errors, by descriptor


class _NamedOutput(io.FileIO):
    """A stream whose errors name it, as those of a file do.

    What is written to a terminal that is closed is lost: its signal may come a moment later, and
    decides what the command does.
    """

    def write(self, data) -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            # Of a file, this error says that its disk is damaged.
            if error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self.fileno()).st_mode):
                _discard(self)
                return len(data)
            error.filename = STREAMS.get(self.name, self.name)
            raise


def named_output(file: str | int, errors: str = "surrogateescape") -> io.TextIOWrapper:
    """Returns a UTF-8 stream to a device, a pipe or a descriptor, whose errors name it.

    Args:
      errors: what to do about text that is not UTF-8; by default, bytes of a path come out as they
        are.
    """
    raw = _NamedOutput(file, "w", closefd=isinstance(file, str))
    options = {"encoding": "utf-8", "errors": errors, "line_buffering": raw.isatty()}
    return io.TextIOWrapper(io.BufferedWriter(raw), **options)


def explain(error: BaseException, place: str, memory: str) -> str | None:
    """Returns the error and its fix in one line; None of an error of the program.

    Args:
      place: of an error of the system that names no file.
      memory: the settings to lower if the memory is too small.
    """
    if isinstance(error, UserError):
        return one_line(str(error))
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    ):
        return f"the memory is too small: lower {memory}"
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # pathlib's
        return "a path begins with ~, and there is no such home: write it in full"
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.endswith("xla_bridge.py"):  # where jax starts its devices
        platforms = one_line(os.environ.get("JAX_PLATFORMS", ""))
        why = f" ({shorten(one_line(str(error)))})" if str(error) else ""
        return f"JAX_PLATFORMS={platforms} finds no device here{why}: unset it, or set it to cpu"
    if isinstance(error, OSError):
        what = one_line(f"{error.filename or place}: {error.strerror or error}")
        general = "check the path, its permissions and the space on its disk"
        return f"{what}: {REMEDIES.get(error.errno or 0, general)}"
    return None


def exit_code(run: Callable[[], int], place: str, memory: str) -> int:
    """Returns the exit code of a command, or 2 after one line about a user error.

    Args:
      place, memory: see `explain`.
    """
    try:
        return run()
    except BrokenPipeError:
        raise
    except Exception as error:
        line = explain(error, place, memory)
        if line is None:
            raise
        with contextlib.suppress(OSError):  # the code says so, too
            print(f"error: {line}", file=sys.stderr)
        return 2


class _Lines(logging.Handler):
    """Prints lines to a stream of `sys`, as it is then: a progress bar takes its place.

    If nobody reads them any more, as after `| head` or Ctrl-C with `| tee`, the work goes on
    without them. Any other error of the stream ends the command, as that of an answer does. A line
    is written at once with its end, so that lines of several loggers and threads do not mix.
    """

    def __init__(self, stream: str):
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        stream = getattr(sys, self._stream)
        try:
            stream.write(f"{self.format(record)}\n")
            stream.flush()
        except BrokenPipeError:
            _discard(stream)
            if self._stream == "stdout":
                _Lines("stderr").emit(logging.makeLogRecord({"msg": CLOSED}))


def _discard(stream: Any) -> None:
    """Sends nowhere what a stream has in its buffer and what it still gets."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def logging_to(stream: str) -> Iterator[None]:
    """Within it, the log of the program is printed to "stdout" or "stderr"."""
    streams = {
        "transformer": stream,
        "experiments": stream,
        "experiments.compile_cache": "stderr",  # about no run, so never among its lines
    }
    with contextlib.ExitStack() as before:
        for name, own in streams.items():
            logger, handler = logging.getLogger(name), _Lines(own)
            before.callback(logger.setLevel, logger.level)
            before.callback(setattr, logger, "propagate", logger.propagate)
            before.callback(logger.removeHandler, handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(handler)
        yield


def hush(unraisable: Any) -> None:
    """Prints an error that cannot be caught, except of late reads of a damaged checkpoint.

    A signal that arrives while Python collects garbage is obeyed, and its exception is not shown.
    """
    late = str(unraisable.exc_value) == "Event loop is closed"
    if not late and not isinstance(unraisable.exc_value, signals.Interrupted):
        sys.__unraisablehook__(unraisable)


def keep_program_memory() -> None:
    """Makes the process keep the memory of jax's programs, which run many times on a CPU.

    Each execution of a compiled program allocates its temporary arrays as one block: for a
    training step, hundreds of megabytes. See `keep_freed_memory`; glibc keeps large blocks for its
    main thread alone, so a program runs in the thread that calls it. What a compilation has freed,
    other threads' mostly, goes back to the system. Call this before jax has started its backend.
    """
    import jax  # here, so that a misspelt flag is answered before it

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    keep_freed_memory()
    _listen_to_compilations()


@functools.cache  # a process may run many commands
def _listen_to_compilations() -> None:
    """Gives freed memory back after a long compilation, and after the first step from then on.

    The end of the main thread's heap stays, where the blocks of programs are. That of a first step
    may have something behind it, and is then too small for the next step.
    """
    import jax

    from transformer.devices.programs import STEP

    compiled = False

    def after_compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:
        nonlocal compiled
        if event == COMPILED and duration_secs > LONG_COMPILATION:
            compiled = True
            _trim()

    def after_step(event: str, **kwargs: str | int) -> None:
        nonlocal compiled
        if event == STEP and compiled:
            compiled = False
            _trim()

    jax.monitoring.register_event_duration_secs_listener(after_compilation)
    jax.monitoring.register_event_listener(after_step)


def _trim() -> None:
    """Gives all freed memory but the end of the main thread's heap back to the system."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(sys.maxsize))


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for the process; does nothing with another C library.

    By default, it returns a large block to the kernel when it is freed, and the kernel clears the
    pages of the next one when they are first written: a third of the time of a small model's step.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_MMAP_MAX, 0)  # large blocks come from the heap, like small ones
        library.mallopt(M_TRIM_THRESHOLD, -1)  # which never shrinks


def share_freed_memory() -> None:
    """Makes all threads reuse the memory that any of them has freed, with glibc.

    By default, threads have up to eight heaps per core, and none of them gives back what it has
    freed: the memory of a server grows for thousands of requests. Call this before jax has started
    its backend.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_ARENA_MAX, 2)


def run_process(main: Callable[[], int]) -> int:
    """Returns the exit code of a command that has the process to itself.

    An answer to a pipe that nobody reads any more (`| head`) and Ctrl-C end it without a word.
    Streams that are closed are those of the null device, so that no file gets their descriptors.
    """
    gc.set_threshold(BETWEEN_COLLECTIONS)
    _open_streams()
    try:
        with signals.EndSignals():
            code = main()
        if code == 0:  # otherwise one line has said what is wrong
            sys.stdout.flush()
    except signals.Interrupted as interrupted:
        signals.end(interrupted.code)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:  # of the last flush
        print(f"error: {explain(error, 'standard output', '')}", file=sys.stderr)
        code = 2
    # What is left in their buffers is flushed once more at exit, and would fail once more.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _discard(stream)
    return code


def _open_streams() -> None:
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    # Text is UTF-8, whatever the terminal says.
    sys.stdout = named_output(1)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr.isatty():
        sys.stderr = named_output(2, errors="backslashreplace")
    elif isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
