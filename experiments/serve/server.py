"""The HTTP server: routes, web page, request handling, access control and shutdown."""

import asyncio
import contextlib
import functools
import logging
import queue
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Histogram, generate_latest
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer import signals
from transformer.errors import UserError, one_line, shorten
from ..process.process import explain
from . import model_thread, schema
from .libretranslate import PATHS, LibreTranslate, find_pairs
from .model_thread import Programs, Worker
from .routes import ALIGN, CONFIDENCE, MAX_REQUEST_TOKENS, Served
from .serve import render_page

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0  # maximum seconds to receive and answer a request
Names = Sequence[str]
POLLED = ("/api/runs", "/health", "/metrics")  # polled by pages and monitors
GONE = 499  # status if the client has disconnected, used only in metrics
MEMORY_FIX = "the length of the texts"  # for clients; the operator can also lower the beam size
REQUEST_LIMITS = {
    "body": schema.BODY,
    "texts": schema.TEXTS,
    "characters": schema.CHARACTERS,
    "waiting": model_thread.MAX_WAITING,
    "seconds": ANSWER_SECONDS,
    "tokens": MAX_REQUEST_TOKENS,
}
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'",
}
REQUESTS = Counter("transformer_requests", "Requests that were answered.", ["route", "status"])
DURATIONS = Histogram("transformer_request_seconds", "Time of a request.", ["route"])


def build(runs: Sequence[Served], worker: Worker, hosts: Names, origins: Names = ()) -> FastAPI:
    """Returns the application for requests with these host names; see `Access` for `origins`."""
    handlers = {HTTPException: _refused, RequestValidationError: _invalid}
    handlers |= {ValidationError: _invalid, UserError: _failed, Exception: _failed}
    app = FastAPI(
        title="transformer-jax",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=handlers,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(Access, origins=origins)
    _add_fixed_routes(app, runs, worker.programs)
    for name, (summary, fields) in schema.API.items():
        app.add_api_route(
            f"/api/{name}",
            _endpoint(name, fields, runs, worker),
            methods=["POST"],
            name=name,
            summary=summary,
            responses={"default": {"model": schema.Error}},
        )
    if pairs := find_pairs(runs):
        LibreTranslate(pairs, functools.partial(_compute, worker)).add_routes(app)
    return app


def _add_fixed_routes(app: FastAPI, runs: Sequence[Served], programs: Programs) -> None:
    """Adds the routes that do not run a model."""
    described = [run.describe() for run in runs]
    text = render_page(described, schema.CHARACTERS)
    description = {"runs": described, "limits": REQUEST_LIMITS}

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(text)

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
    name: str, model: type[schema.Request], runs: Sequence[Served], worker: Worker
) -> Callable:
    """Returns the request handler for an operation."""

    async def answer(request: Request, fields: model) -> JSONResponse:  # type: ignore[valid-type]
        run, values = _choose(runs, name, fields.run), fields.model_dump(exclude_none=True)
        names = {"confidence": CONFIDENCE, "alignments": ALIGN}
        routes = [route for field, route in names.items() if values.pop(field, False)] or [name]
        result, *others = [await _compute(worker, request, run, x, values) for x in routes]
        for other in others:
            for row, more in zip(result["translations"], other["translations"], strict=True):
                row[0] = more[0] | row[0]
        return JSONResponse(result)

    return answer


async def _compute(worker: Worker, request: Request, run: Served, name: str, fields: dict) -> dict:
    """Returns the response of an operation of a run."""
    # In a thread, so that errors are returned at once, even while other requests are running.
    plan = await asyncio.to_thread(run.routes[name].plan, fields)
    try:
        future = worker.submit(run.routes[name], plan)
    except queue.Full:
        message = f"{model_thread.MAX_WAITING} requests wait: try again in a second"
        raise HTTPException(503, message, {"Retry-After": "1"}) from None
    results = await _wait(request, asyncio.wrap_future(future))
    return {"run": run.name, **plan.answer(results)}


def _choose(runs: Sequence[Served], operation: str, name: str | None) -> Served:
    """Returns the run with this name or, if `name` is None, the first run with the operation."""
    candidates = [run for run in runs if name in (None, run.name)]
    if not candidates:
        names = ", ".join(run.name for run in runs)
        raise HTTPException(404, f"there is no run {schema.quote(name)}: choose one of {names}")
    for run in candidates:
        if operation in run.routes:
            return run
    names = dict.fromkeys(each for run in candidates for each in run.routes)
    raise UserError(f"{name or 'no run here'} has {', '.join(names)}, not {operation}")


async def _wait(request: Request, answer: asyncio.Future[Any]) -> Any:
    """Waits for a result; cancels the computation on a timeout or if the client disconnects."""
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise HTTPException(GONE, "the client has gone: nobody reads the answer")
        return answer.result()
    finally:
        gone.cancel()
        answer.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _error(message: str, status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": one_line(message)}, status, headers)


async def _refused(request: Request, error: HTTPException) -> Response:
    message = error.detail
    if ": " not in message:  # a library's message, without value and fix
        path = shorten(request.url.path, 60)
        message = f"{request.method} {path}: {message}, see /openapi.json"
    return _error(message, error.status_code, error.headers)


async def _invalid(request: Request, error: RequestValidationError | ValidationError) -> Response:
    return _error(schema.explain(error.errors()[0]), 400)


async def _failed(request: Request, error: Exception) -> Response:
    """Returns the response for a user error, or for a server error, which is logged."""
    message = explain(error, "the server", MEMORY_FIX) or "an error of the server: see its log"
    return _error(message, 400 if isinstance(error, UserError) else 500)


# -- access


class Access:
    """Access control middleware: checks the origin of requests, and logs and counts them.

    The server has no accounts. To prevent other websites from using it through a browser, `Host`
    must be one of the server's names (against DNS rebinding; Starlette's middleware checks it).
    POST requests, which cost compute time, must be JSON and must not come from another origin.
    LibreTranslate's routes also accept forms, and websites of `origins` ('*': all) by CORS.
    """

    def __init__(self, app: ASGIApp, origins: Names):
        self._app, self._origins = app, origins
        self._shared = CORSMiddleware(app, origins, ("GET", "POST"), ("*",)) if origins else app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status, size = time.perf_counter(), 500, 0

        async def receive_body() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > schema.BODY:
                large = f"the body has more than {schema.BODY:,} bytes: send fewer texts at once"
                raise HTTPException(413, large)
            return message

        async def send_on(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        app = self._shared if scope["path"].startswith(PATHS) else self._app
        app = _refuse(scope, self._origins) or app
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await app(scope, receive_body, send_on)
        except TimeoutError:
            fix = "send fewer or shorter texts, or smaller pictures, at once, or wait"
            late = _error(f"no answer in {ANSWER_SECONDS:g} seconds: {fix}", 504)
            await late(scope, receive, send_on)
        finally:
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "other")
            REQUESTS.labels(route, str(status)).inc()
            DURATIONS.labels(route).observe(seconds)
            if route not in POLLED or status not in (200, 503):
                request = shorten(one_line(f"{scope['method']} {scope['path']}"), 60)
                logger.info(f"{request} {status} {1000 * seconds:.0f} ms")


def _refuse(scope: Scope, origins: Names) -> Response | None:
    """Returns the response if a POST request is rejected, or None if it is valid."""
    if scope["method"] != "POST":
        return None
    headers, has_forms = Headers(scope=scope), scope["path"].startswith(PATHS)
    host, origin = headers.get("host", "").lower(), headers.get("origin")
    sites = f"http://{host}", f"https://{host}", *(origins if has_forms else ())
    if origin is not None and "*" not in sites and origin.lower() not in sites:
        rule = "only this server's own page and programs can post"
        return _error(f"Origin {schema.quote(origin)} is another site: {rule}", 403)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != schema.JSON and not (has_forms and kind in ("", *schema.FORMS)):
        return _error(f"Content-Type {schema.quote(kind)} is not JSON: send application/json", 415)
    return None


# -- serving until a signal is received


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address."""
    try:
        if not 0 <= port < 2**16:
            raise OverflowError("a port is between 0 and 65535")
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address, family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UserError(
            f"cannot listen at --host={host} --port={port} ({error}): use --host=127.0.0.1 and "
            "another port, from 1024 to 65535"
        ) from None
    # Connections inherit this option; without it, responses are delayed by 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _Stop(signals.StopSignals):
    answer = "finishing the running requests, then ending; repeat it to end at once"

    def __init__(self, server: uvicorn.Server):
        super().__init__()
        self._server = server

    def _handle(self, number: int, frame: object) -> None:
        super()._handle(number, frame)
        self._server.should_exit = True


def serve_runs(runs: Sequence[Served], listening: socket.socket, *access: Names) -> None:
    """Serves runs until a signal, then finishes the requests; see `build` for `access`."""
    # Responses report truncated tokens. The library would log them with the texts.
    logging.getLogger("transformer.inference").setLevel(logging.ERROR)
    server, worker = make_server(runs, *access)
    signals.call_aside(worker.run)
    with _Stop(server):
        asyncio.run(server.serve([listening]))
    worker.close()


def make_server(runs: Sequence[Served], *access: Names) -> tuple[uvicorn.Server, Worker]:
    """Returns a server and its worker; `worker.run` must be called in a thread; see `build`."""
    worker = Worker(Programs(runs))
    server = uvicorn.Server(
        uvicorn.Config(
            build(runs, worker, *access),
            http="h11",
            loop="asyncio",  # uvloop would handle the signals
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
    return server, worker
