"""The process of a command: its streams, signals, memory and one-line error messages."""

import contextlib
import ctypes
import functools
import gc
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transformer import signals
from transformer.errors import LostError, UserError, one_line, shorten
from transformer.files import naming

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of glibc's mallopt, see <malloc.h>
COMPILED = "/jax/core/compile/backend_compile_duration"  # name of the event in JAX
# Number of allocations between garbage collections. With Python's default, 700, collections take
# 0.3 of the five seconds until the second training step.
BETWEEN_COLLECTIONS = 200_000
LONG_COMPILATION = 0.1  # seconds; shorter compilations free little memory


def explain(error: BaseException, place: str, memory: str) -> str | None:
    """Returns a one-line message that tells how to fix a user error, or None for a bug.

    Args:
      place: the name to report for a system error without a file name.
      memory: the settings to lower if memory is exhausted.
    """
    if isinstance(error, UserError):
        return one_line(str(error))
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return f"the memory is too small: lower {memory}"
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # raised by pathlib
        return "a path begins with ~, and there is no such home: write it in full"
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.endswith("xla_bridge.py"):  # JAX failed to start its devices
        platforms = one_line(os.environ.get("JAX_PLATFORMS", ""))
        why = f" ({shorten(one_line(str(error)))})" if str(error) else ""
        return f"JAX_PLATFORMS={platforms} finds no device here{why}: unset it, or set it to cpu"
    if isinstance(error, OSError):
        what = one_line(f"{error.filename or place}: {error.strerror or error}")
        return f"{what}: check the path, its permissions, the room on its disk and `ulimit -n`"
    return None


def exit_code(run: Callable[[], int], place: str, memory: str) -> int:
    """Runs a command and returns the exit code; a user error is printed, and its code is 2.

    `LostError.code` means that another process is lost. `place` and `memory` are for `explain`.
    """
    try:
        return run()
    except Exception as error:
        if isinstance(error, BrokenPipeError) or (line := explain(error, place, memory)) is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return LostError.code if isinstance(error, LostError) else 2


def _print_unraisable(error: Any) -> None:
    """Prints an unraisable exception, unless it comes from an event loop.

    If a checkpoint file cannot be written, Orbax closes its event loop, and TensorStore's threads
    then raise an error for each of the other files; the first error is raised in any case.
    """
    frames = traceback.extract_tb(error.exc_traceback)
    if not frames or "asyncio" not in Path(frames[-1].filename).parts:
        sys.__unraisablehook__(error)


class _Lines(logging.Handler):
    """Prints log lines to the current stream in `sys`, which progress bars may replace.

    If the reading process is gone, e.g. after Ctrl-C with `| tee`, the command continues. Each line
    is written together with its line break, so that lines of several threads do not mix.
    """

    def __init__(self, stream: str):
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(f"{self.format(record)}\n", end="", file=getattr(sys, self._stream), flush=True)


@contextlib.contextmanager
def logging_to(stream: str) -> Iterator[None]:
    """Prints the program's log to "stdout" or "stderr" within this context."""
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


@functools.cache  # a process may run several commands
def keep_program_memory() -> None:
    """Makes the process retain memory between the calls of compiled programs on a CPU.

    Each call of a compiled program allocates its temporary arrays as one block of up to hundreds of
    megabytes. glibc retains such blocks only for the main thread, so programs are run in the
    calling thread. Memory freed by other threads is returned to the system after each long
    compilation. Call this before JAX initialises its backend.
    """
    import jax  # imported here, so that a misspelt flag is reported first

    # `ctypes.pythonapi` also has the functions of the C library, except on Windows.
    trim = getattr(ctypes.pythonapi, "malloc_trim", lambda padding: None)

    def after_compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == COMPILED and duration_secs > LONG_COMPILATION:
            trim(ctypes.c_size_t(sys.maxsize))  # the top of the main thread's heap stays

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.monitoring.register_event_duration_secs_listener(after_compilation)
    keep_freed_memory()


def keep_programs(folder: Path) -> None:
    """Enables JAX's compilation cache in a folder, so that later starts are fast.

    The entries are native code: anyone who can write to the folder can run code here. JAX verifies
    the checksum of an entry when loading it; a damaged entry causes a warning and recompilation.
    """
    import jax

    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # they have no checksums
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def keep_freed_memory() -> None:
    """Makes glibc retain freed memory in the process; has no effect with other C libraries.

    By default, glibc returns a freed large block to the kernel, and the kernel clears the pages of
    the next block at the first write. This takes a third of the step time of a small model.
    """
    if hasattr(ctypes.pythonapi, "mallopt"):
        ctypes.pythonapi.mallopt(M_MMAP_MAX, 0)  # large blocks come from the heap, like small ones
        ctypes.pythonapi.mallopt(M_TRIM_THRESHOLD, -1)  # the heap never shrinks


def peak_memory() -> int:
    """Returns the peak memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would include the parent's memory before exec
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_process(main: Callable[[], int]) -> int:
    """Runs a command as the main function of the process; returns its exit code.

    Ctrl-C or a closed output pipe (`| head`) ends the command without a message.
    """
    gc.set_threshold(BETWEEN_COLLECTIONS)
    sys.unraisablehook = _print_unraisable
    for stream in (sys.stdin, sys.stdout, sys.stderr):  # UTF-8 in any locale
        errors = "backslashreplace" if stream is sys.stderr else "surrogateescape"
        stream.reconfigure(encoding="utf-8", errors=errors)  # type: ignore[union-attr]
    raw: Any = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)  # python -u has no buffer
    raw.write = naming("standard output")(raw.write)  # adds a name to disk errors
    try:
        with signals.EndSignals():
            code = main()
        sys.stdout.flush()
        return code
    except signals.Interrupted as interrupted:
        signals.end(interrupted.code)
    except BrokenPipeError:  # the reader needs no more output
        code = 0
    except OSError as error:  # raised by the last flush
        print(f"error: {explain(error, '', '')}", file=sys.stderr)
        code = 2
    # Flushing the rest of the buffer at exit would raise the error again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
