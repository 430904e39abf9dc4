"""A command as a process: its streams, signals and memory, and one-line error messages."""

import contextlib
import ctypes
import functools
import gc
import logging
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transformer import signals
from transformer.errors import LostError, UserError, one_line, shorten
from transformer.files import naming

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt, see <malloc.h>
COMPILED = "/jax/core/compile/backend_compile_duration"  # name of the event in jax
# New objects between two searches for cycles of garbage. With Python's default, 700, such searches
# take 0.3 of the five seconds to a training's second step.
BETWEEN_COLLECTIONS = 200_000
LONG_COMPILATION = 0.1  # seconds; shorter ones free little memory


def explain(error: BaseException, place: str, memory: str) -> str | None:
    """Returns a user error and its fix in one line; None for a bug.

    Args:
      place: the name for a system error that has no file name.
      memory: the settings to lower if the memory is too small.
    """
    if isinstance(error, UserError):
        return one_line(str(error))
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return f"the memory is too small: lower {memory}"
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # raised by pathlib
        return "a path begins with ~, and there is no such home: write it in full"
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.endswith("xla_bridge.py"):  # jax failed to start its devices
        platforms = one_line(os.environ.get("JAX_PLATFORMS", ""))
        why = f" ({shorten(one_line(str(error)))})" if str(error) else ""
        return f"JAX_PLATFORMS={platforms} finds no device here{why}: unset it, or set it to cpu"
    if isinstance(error, OSError):
        what = one_line(f"{error.filename or place}: {error.strerror or error}")
        return f"{what}: check the path, its permissions, the room on its disk and `ulimit -n`"
    return None


def exit_code(run: Callable[[], int], place: str, memory: str) -> int:
    """Returns the exit code of a command: 2, after a line on stderr, for a user error.

    It is `LostError.code` if another process of a training is lost; see `explain`.
    """
    try:
        return run()
    except Exception as error:
        if isinstance(error, BrokenPipeError) or (line := explain(error, place, memory)) is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return LostError.code if isinstance(error, LostError) else 2


def _print_unraisable(error: Any) -> None:
    """Prints an error that cannot be caught, unless it comes from an event loop.

    If a checkpoint file cannot be written, Orbax closes its loop, and then tensorstore's threads
    raise errors for each of the other files; the first error is raised in any case.
    """
    frames = traceback.extract_tb(error.exc_traceback)
    if not frames or "asyncio" not in Path(frames[-1].filename).parts:
        sys.__unraisablehook__(error)


class _Lines(logging.Handler):
    """Prints lines to a stream of `sys`, looked up each time since a progress bar may replace it.

    If the reader is gone, as after Ctrl-C with `| tee`, the work continues and is saved. A line
    is written at once with its end, so that lines of several threads do not mix.
    """

    def __init__(self, stream: str):
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(f"{self.format(record)}\n", end="", file=getattr(sys, self._stream), flush=True)


@contextlib.contextmanager
def logging_to(stream: str) -> Iterator[None]:
    """Prints the program's log to "stdout" or "stderr" in this context."""
    handler = _Lines(stream)
    with contextlib.ExitStack() as before:
        for logger in map(logging.getLogger, {"transformer", __name__.partition(".")[0]}):
            before.callback(logger.setLevel, logger.level)
            before.callback(setattr, logger, "propagate", logger.propagate)
            before.callback(logger.removeHandler, handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(handler)
        yield


@functools.cache  # a process may run many commands
def keep_program_memory() -> None:
    """Makes the process keep the memory of jax's programs, which run many times on a CPU.

    Each call of a compiled program allocates its temporary arrays as one block of up to hundreds
    of megabytes. glibc keeps such blocks only for the main thread, so programs are run in the
    calling thread. Memory that other threads have freed is returned to the system after each long
    compilation. Call this before jax has started its backend.
    """
    import jax  # imported here, so that a misspelt flag is reported first

    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda padding: None)

    def after_compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == COMPILED and duration_secs > LONG_COMPILATION:
            trim(ctypes.c_size_t(sys.maxsize))  # the end of the main thread's heap stays

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.monitoring.register_event_duration_secs_listener(after_compilation)
    keep_freed_memory()


def keep_programs(folder: Path) -> None:
    """Makes JAX cache compiled programs in a folder, so that a second start is fast.

    They are native code: whoever can write there can run code here. JAX verifies a checksum of each
    when it unpacks it; it warns of a damaged one, and compiles it again.
    """
    import jax

    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # these have no checksum
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory in the process; does nothing with another C library.

    By default, glibc returns a large block to the kernel when it is freed, and the kernel clears
    the pages of the next one at the first write: a third of the time of a small model's step.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_MMAP_MAX, 0)  # large blocks come from the heap, like small ones
        library.mallopt(M_TRIM_THRESHOLD, -1)  # the heap never shrinks


def peak_memory() -> int:
    """Returns the peak memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would include the parent's memory before exec
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_process(main: Callable[[], int]) -> int:
    """Runs a command as the process's main function; returns its exit code.

    Ctrl-C, and a closed pipe of the output (`| head`), end it without a message.
    """
    gc.set_threshold(BETWEEN_COLLECTIONS)
    sys.unraisablehook = _print_unraisable
    for stream in (sys.stdin, sys.stdout, sys.stderr):  # UTF-8 in any locale
        errors = "backslashreplace" if stream is sys.stderr else "surrogateescape"
        stream.reconfigure(encoding="utf-8", errors=errors)  # type: ignore[union-attr]
    raw: Any = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)  # -u: unbuffered
    raw.write = naming("standard output")(raw.write)  # a full disk's error has no name
    try:
        with signals.EndSignals():
            code = main()
        sys.stdout.flush()
        return code
    except signals.Interrupted as interrupted:
        signals.end(interrupted.code)
    except BrokenPipeError:  # the reader has got what it asked for
        code = 0
    except OSError as error:  # raised by the last flush
        print(f"error: {explain(error, '', '')}", file=sys.stderr)
        code = 2
    # The rest of the buffer would raise the error again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
