"""The server: its routes and its page, how a request becomes an answer of a run, and its end."""

import asyncio
import base64
import contextlib
import errno
import gc
import hashlib
import ipaddress
import logging
import queue
import re
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from transformer import signals
from transformer.errors import UserError, one_line, shorten
from ..process.process import explain
from . import access, batching, schema
from .page import render_page
from .routes import MAX_REQUEST_TOKENS, Served

ANSWER_SECONDS = 30.0  # until an answer
GONE = 499  # a request whose client has gone, for the metrics alone
MEMORY_FIX = "the length of the texts"  # or, who runs the server, the size of the beam
MESSAGES = {  # by what the libraries say
    "Not Found": "there is no {path}: see /openapi.json",
    "Method Not Allowed": "{method} is not for {path}: use {allow}",
    "There was an error parsing the body": "the body is not JSON: send an object",
}
REQUEST_LIMITS = {
    "body": schema.BODY,
    "texts": schema.TEXTS,
    "characters": schema.CHARACTERS,
    "waiting": batching.MAX_WAITING,
    "seconds": ANSWER_SECONDS,
    "reading": access.BODY_SECONDS,
    "tokens": MAX_REQUEST_TOKENS,
}
IDLE_SECONDS = 10.0
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def build(
    runs: Sequence[Served],
    batcher: batching.Batcher,
    names: Collection[str] = (),
    is_local: bool = True,
) -> FastAPI:
    """Returns the application; see `Access` for the names."""
    handlers = {HTTPException: _refused, RequestValidationError: _invalid}
    handlers |= {UserError: _failed, Exception: _failed}
    app = FastAPI(
        title="transformer-jax",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=handlers,
    )
    app.add_middleware(access.Access, names=names, is_local=is_local)
    _add_fixed_routes(app, runs, batcher.programs)
    planners = ThreadPoolExecutor(1), ThreadPoolExecutor(1)  # of texts, and of pictures
    for name, (summary, fields, answer) in schema.API.items():
        app.add_api_route(
            f"/api/{name}",
            _endpoint(name, fields, runs, batcher, planners),
            methods=["POST"],
            name=name,
            summary=summary,
            response_model=answer,
            responses={"default": {"model": schema.Error}},
        )
    return app


def _add_fixed_routes(app: FastAPI, runs: Sequence[Served], programs: batching.Programs) -> None:
    """Adds the routes whose answers need no model."""
    described = [run.describe() for run in runs]
    text = render_page(described, schema.CHARACTERS)
    description = {"runs": described, "limits": REQUEST_LIMITS}

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(text, headers={"Content-Security-Policy": policy(text)})

    @app.get("/favicon.ico", include_in_schema=False, status_code=204)
    async def no_icon() -> None: ...

    @app.get("/health", summary="200 if the common programs are compiled, else 503")
    async def health() -> JSONResponse:
        state = programs.state()
        return JSONResponse(state, 200 if state["status"] == "ready" else 503)

    @app.get("/metrics", summary="Numbers in the text format of Prometheus")
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/api/runs", summary="The runs, their operations, the limits, and the state")
    async def list_runs() -> JSONResponse:
        return JSONResponse(description | programs.state())


def _endpoint(
    name: str,
    model: type[schema.Request],
    runs: Sequence[Served],
    batcher: batching.Batcher,
    planners: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
) -> Callable:
    """The function that answers requests of an operation."""

    async def answer(request: Request, fields: model) -> JSONResponse:  # type: ignore[valid-type]
        run = _choose(runs, name, fields.run)
        route, values = run.routes[name], fields.model_dump(exclude_none=True)
        # In a thread: a mistake is answered at once, whatever is being computed or decoded.
        loop, end = asyncio.get_running_loop(), time.monotonic() + ANSWER_SECONDS
        planner = planners[bool(values.keys() & {"picture", "pictures"})]
        planning = loop.run_in_executor(planner, route.plan, values)
        plan = await _wait(request, planning, end)
        try:
            future = batcher.submit(route, plan)
        except queue.Full:
            message = f"{batching.MAX_WAITING} requests wait, as many as may: try again in a second"
            raise HTTPException(503, message, {"Retry-After": "1"}) from None
        results = await _wait(request, asyncio.wrap_future(future), end)
        return JSONResponse({"run": run.name, **plan.answer(results)})

    return answer


def _choose(runs: Sequence[Served], operation: str, name: str | None) -> Served:
    """The run of a name, or the first that has an operation."""
    candidates = [run for run in runs if name in (None, run.name)]
    if not candidates:
        names = ", ".join(run.name for run in runs)
        raise HTTPException(404, f"there is no run {schema.quote(name)}: choose one of {names}")
    for run in candidates:
        if operation in run.routes:
            return run
    names = dict.fromkeys(each for run in candidates for each in run.routes)
    raise UserError(f"{name or 'no run here'} has {', '.join(names)}, not {operation}")


async def _wait(request: Request, answer: asyncio.Future[Any], end: float) -> Any:
    """Returns an answer, which is cancelled if it is not there in time or its client has gone."""
    gone = asyncio.ensure_future(_disconnected(request))
    ready, _ = await asyncio.wait(
        {answer, gone}, timeout=end - time.monotonic(), return_when=asyncio.FIRST_COMPLETED
    )
    gone.cancel()
    if answer in ready:
        return answer.result()
    answer.cancel()
    if gone in ready:
        raise HTTPException(GONE, "the client has gone")
    fix = "send fewer or shorter texts, or smaller pictures, at once, or wait"
    raise HTTPException(504, f"no answer in {ANSWER_SECONDS:g} seconds: {fix}")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _error(message: str, status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": one_line(message)}, status, headers)


async def _refused(request: Request, error: HTTPException) -> Response:
    path, allow = shorten(request.url.path, 60), (error.headers or {}).get("Allow", "")
    message = MESSAGES.get(error.detail, "").format(method=request.method, path=path, allow=allow)
    return _error(message or error.detail, error.status_code, error.headers)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    _, fields, _ = schema.API[request.scope["route"].name]
    return _error(schema.explain(error.errors()[0], fields.model_fields), 400)


async def _failed(request: Request, error: Exception) -> Response:
    """The answer to a user's mistake, or an error of the server; its log has the traceback."""
    message = explain(error, "the server", MEMORY_FIX) or "an error of the server: see its log"
    return _error(message, 400 if isinstance(error, UserError) else 500)


# -- the page


def policy(text: str) -> str:
    """Returns the Content-Security-Policy of a page: its scripts and styles alone, by digest."""
    sources = []
    for element in ("script", "style"):
        contents = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digests = (hashlib.sha256(content.encode()).digest() for content in contents)
        listed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
        sources.append(f"{element}-src {listed}")
    others = "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; {'; '.join(sources)}; {others}"


# -- until a signal comes


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
) -> tuple[uvicorn.Server, batching.Batcher]:
    """Returns a server of runs, and the batcher whose `run` a thread must call."""
    batcher = batching.Batcher(batching.Programs(runs))
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
