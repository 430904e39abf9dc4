"""Listens, serves and stops: uvicorn with a time for headers, and signals as commands have them."""

import asyncio
import contextlib
import errno
import gc
import ipaddress
import logging
import math
import resource
import socket
from collections.abc import Iterator, Sequence

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from experiments.serving.app import Service, build
from experiments.serving.batching import Batcher
from experiments.serving.limits import Limits
from experiments.serving.metrics import Metrics
from experiments.serving.programs import Programs
from experiments.serving.works import Served
from transformer import signals
from transformer.errors import UserError

logger = logging.getLogger(__name__)

KEEP_ALIVE = 5  # seconds for which a connection without a request stays open


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address.

    Raises:
      UserError: it is in use, or is not one of this machine.
    """
    if not 0 <= port < 2**16:
        raise UserError(f"--port={port} is not between 0 and 65535: choose another")
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
        with contextlib.ExitStack() as opened:  # closes it if it cannot listen
            # With its protocol, for then asyncio sends without Nagle's algorithm: 40 ms an answer.
            found = opened.enter_context(socket.socket(family, kind, protocol))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen()
            opened.pop_all()
    except OSError as error:
        raise UserError(_reason(error, host, port)) from None
    except UnicodeError:  # of a name that no host can have
        raise UserError(f"--host={host} is not an address of this machine: use 127.0.0.1") from None
    return found


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 2**16 - 1 else port - 1
        return f"--port={port} is in use: choose another, such as --port={other}"
    if error.errno == errno.EACCES:
        return f"--port={port} is for the administrator: choose one from 1024 on"
    return f"--host={host} is not an address of this machine ({error.strerror}): use 127.0.0.1"


def is_local(listening: socket.socket) -> bool:
    """Whether only this machine reaches an address."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def address_of(listening: socket.socket) -> str:
    """Returns the address of the page."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Protocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request headers do not arrive in time."""

    seconds = Limits().reading

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._late.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection: a client that has sent all, as `nc -N`, still reads."""
        if (waits := self.conn.their_state is h11.DONE) and self.cycle:
            self.cycle.keep_alive = False
        return waits

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._late.cancel()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._late = self.loop.call_later(self.seconds, self._close)

    def _close(self) -> None:
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """A server that leaves signals to the command."""

    def __init__(self, app: ASGIApp, limits: Limits):
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=type("Protocol", (_Protocol,), {"seconds": limits.reading}),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=math.ceil(limits.seconds),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _StopServing(signals.StopSignals):
    answer = "finishing the running requests, then ending; repeat it to end at once"

    def __init__(self, server: Server):
        super().__init__()
        self._server = server

    def _handle(self, number: int, frame: object) -> None:
        super()._handle(number, frame)
        self._server.should_exit = True


def serve_runs(
    runs: Sequence[Served], listening: socket.socket, names: Sequence[str], limits: Limits
) -> None:
    """Serves runs until a signal comes, and then finishes the running requests."""
    _allow_connections()
    server, batcher = make_server(runs, names, is_local(listening), limits)
    batcher.when_idle(_exempt_from_collections)  # after all programs are compiled
    signals.call_aside(batcher.run)
    with _StopServing(server), _without_warnings():
        asyncio.run(server.serve([listening]))
    batcher.close()


def _exempt_from_collections() -> None:
    """Has Python's garbage collections pass over the objects that there are now.

    A full one would walk all of JAX's and of the programs', while all requests wait half a second.
    """
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Within it, the library does not warn of texts: the answers say what of them is not read."""
    library = logging.getLogger("transformer.inference")
    before = library.level
    library.setLevel(logging.ERROR)
    try:
        yield
    finally:
        library.setLevel(before)


def make_server(
    runs: Sequence[Served], names: Sequence[str], local: bool, limits: Limits
) -> tuple[Server, Batcher]:
    """Returns a server of runs, and the batcher whose `run` a thread must call."""
    metrics = Metrics()
    batcher = Batcher(limits.waiting, metrics.batch)
    service = Service(runs, batcher, Programs(runs, batcher.when_idle), metrics, limits)
    return Server(build(service, names, local), limits), batcher


def _allow_connections() -> None:
    """Lets the process have as many open files, and so connections, as the system permits."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
