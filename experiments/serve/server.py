"""Listens, serves by uvicorn, and ends as the signals of a command say."""

import asyncio
import contextlib
import errno
import gc
import ipaddress
import logging
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from experiments.serve.app import ANSWER_SECONDS, build
from experiments.serve.batching import Batcher, Programs
from experiments.serve.operations import Served
from transformer import signals
from transformer.errors import UserError

IDLE_SECONDS = 10.0
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address."""
    if not 0 <= port < 2**16:
        raise UserError(f"--port={port} is not between 0 and 65535: choose another")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address, family=family)
    except (OSError, UnicodeError) as error:  # the second of a name that no host can have
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise UserError(f"--port={port} is in use: choose another") from None
        raise UserError(
            f"cannot listen at --host={host} --port={port} ({error}): use --host=127.0.0.1 and a "
            "port from 1024 on"
        ) from None
    # Its connections inherit this; without it, an answer waits 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_local(listening: socket.socket) -> bool:
    """Returns whether only this machine reaches an address."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


class _Connection(H11Protocol):
    """A connection that is cut if for `IDLE_SECONDS` it answers nothing, or nothing is read."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(IDLE_SECONDS, self._cut_if_idle, None, 0)

    def _cut_if_idle(self, cycle: Any, unsent: int) -> None:
        """Cuts it if its request and the bytes to be sent are those of the last look."""
        now = self.transport.get_write_buffer_size()
        if self.cycle is cycle and now == unsent and (now or not self._is_answering()):
            self.transport.abort()
        if self in self.connections:
            self.loop.call_later(IDLE_SECONDS, self._cut_if_idle, self.cycle, now)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def eof_received(self) -> bool:
        """Returns whether it stays open. A browser, which sends `Origin`, has gone if it closes."""
        if not self._is_answering() or self.cycle.more_body or b"origin" in dict(self.headers):
            return False
        self.cycle.keep_alive = bool(self.conn.trailing_data[0])  # the next request
        return True


class _Stop(signals.StopSignals):
    answer = "finishing the running requests, then ending; repeat it to end at once"

    def __init__(self, server: uvicorn.Server):
        super().__init__()
        self._server = server

    def _handle(self, number: int, frame: object) -> None:
        super()._handle(number, frame)
        self._server.should_exit = True


def serve_runs(runs: Sequence[Served], listening: socket.socket, names: Sequence[str]) -> None:
    """Serves runs until a signal comes, and then finishes the running requests."""
    # The answers say which tokens are not read: the library's log would show the texts.
    logging.getLogger("transformer.inference").setLevel(logging.ERROR)
    server, batcher = make_server(runs, names, is_local(listening))
    signals.call_aside(lambda: batcher.run(_freeze))
    with _Stop(server):
        asyncio.run(server.serve([listening]))
    batcher.close()


def _freeze() -> None:
    """Exempts all objects from garbage collections, each of which holds up requests for 0.5 s."""
    gc.collect()
    gc.freeze()


def make_server(
    runs: Sequence[Served], names: Sequence[str], local: bool
) -> tuple[uvicorn.Server, Batcher]:
    """Returns a server of runs, and the batcher whose `run` a thread must call."""
    batcher = Batcher(Programs(runs))
    server = uvicorn.Server(
        uvicorn.Config(
            build(runs, batcher, names, local),
            http=_Connection,
            loop="asyncio",  # uvloop would take the signals
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=list(SECURITY_HEADERS.items()),
            timeout_graceful_shutdown=int(ANSWER_SECONDS),
        )
    )
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]  # see _Stop
    return server, batcher
