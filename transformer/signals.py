"""Handles SIGINT and SIGTERM with an immediate message, even while XLA compiles."""

import contextlib
import math
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)
COPY_SECONDS = 1.0  # seconds within which a second signal counts as a duplicate
ASIDE = "aside"  # name of the threads that may still run when the process exits

T = TypeVar("T")


class StoppedError(Exception):
    """A signal arrived before the work was done."""


class Interrupted(KeyboardInterrupt):
    """A signal terminates the command, which then exits with `code`."""

    def __init__(self, number: int):
        super().__init__(name(number))
        self.code = 128 + number


class _Answering:
    """A context manager that prints a message on a signal; a second signal ends the process.

    Python runs signal handlers between two bytecode instructions of the main thread, so they may be
    delayed by a minute while XLA compiles. Therefore, a separate thread reads signals from a
    socket, which unlike a pipe also works on Windows with Python 3.11.
    """

    answer = ""
    grace = math.inf  # seconds from the message to the end of the process

    def __init__(self):
        self.received: int | None = None
        self._over = threading.Event()

    def __enter__(self):
        readable, self._socket = socket.socketpair()
        self._socket.setblocking(False)
        self._watcher = threading.Thread(target=self._watch, args=(readable,), daemon=True)
        self._watcher.start()
        self._handlers = {number: signal.signal(number, self._handle) for number in SIGNALS}
        self._outer_fd = signal.set_wakeup_fd(self._socket.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *exception) -> None:
        signal.set_wakeup_fd(self._outer_fd)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._over.set()
        self._socket.close()
        self._watcher.join(COPY_SECONDS)

    def _watch(self, readable: socket.socket) -> None:
        first = 0.0
        while byte := readable.recv(1):
            if byte[0] not in SIGNALS:
                continue
            if first and time.monotonic() - first > COPY_SECONDS:
                end(128 + byte[0])
            if not first:
                first = time.monotonic()
                with contextlib.suppress(OSError):  # stderr is a closed pipe
                    print(f"{name(byte[0])}: {self.answer}", file=sys.stderr, flush=True)
                if self.grace < math.inf and not self._over.wait(self.grace):
                    end(128 + byte[0])
        readable.close()

    def _handle(self, number: int, frame: Any) -> None:
        """Handles a signal in the main thread, as soon as Python can run handlers."""


class StopSignals(_Answering):
    """A context manager that stores a signal in `received` instead of ending the process."""

    answer = "saving, then stopping; repeat it to stop at once"

    def __init__(self):
        super().__init__()
        self._events: queue.SimpleQueue = queue.SimpleQueue()  # safe in signal handlers

    def wait_for(self, work: Callable[[], T], waiting: Callable[[], None]) -> T:
        """Returns the result of `work()`, which runs in a thread so that no signal is delayed.

        Raises StoppedError if a signal arrives first; the result of `work()` is then discarded.

        Args:
          waiting: called once per second while `work()` runs.
        """
        if self.received is None:
            result = call_aside(work)
            result.add_done_callback(self._events.put)
            while self.received is None:
                if result.done():
                    return result.result()
                try:
                    self._events.get(timeout=1.0)
                except queue.Empty:
                    waiting()
        raise StoppedError

    def _handle(self, number: int, frame: Any) -> None:
        self.received = self.received or number
        self._events.put(None)


class EndSignals(_Answering):
    """A context manager: a signal raises `Interrupted`; the process ends after `grace` seconds."""

    answer = "ending; the same command begins again, or goes on from what is saved"
    grace = 3.0

    def _handle(self, number: int, frame: Any) -> None:
        if self.received is None:
            self.received = number
            raise Interrupted(number)


def name(number: int) -> str:
    """Returns the name of a signal."""
    return signal.Signals(number).name


def call_aside(work: Callable[[], T]) -> Future[T]:
    """Calls `work()` in a daemon thread, which does not delay the exit of the process."""
    result: Future[T] = Future()

    def call() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # raised by `Future.result`
            result.set_exception(error)

    threading.Thread(target=call, name=ASIDE, daemon=True).start()
    return result


def leave(code: int) -> NoReturn:
    """Exits the process, immediately if a thread of `call_aside` is still running."""
    if any(thread.name == ASIDE for thread in threading.enumerate()):
        end(code)
    sys.exit(code)


def end(code: int) -> NoReturn:
    """Flushes all output, and exits the process without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
