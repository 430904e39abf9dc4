"""The application: its routes, and how a request becomes a job of the batcher."""

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from experiments.process import explain
from experiments.serving.batching import Batcher, FullError, Job
from experiments.serving.guard import Guard
from experiments.serving.limits import FIELDS, Limits, read_fields
from experiments.serving.metrics import Metrics
from experiments.serving.page import policy, write_page
from experiments.serving.programs import Programs
from experiments.serving.schema import schema
from experiments.serving.works import MAX_TOKENS, RunWork, Served
from transformer.errors import UserError, shorten

GONE = 499  # the status of a request whose client has gone, for the metrics alone
MEMORY = "the length of the texts"  # or, who runs the server, the size of the beam


@dataclasses.dataclass(frozen=True)
class Service:
    """The objects that the routes use."""

    runs: Sequence[Served]
    batcher: Batcher
    programs: Programs
    metrics: Metrics
    limits: Limits


def build(service: Service, names: Collection[str] = (), is_local: bool = True) -> ASGIApp:
    """Returns the application.

    Args:
      names, is_local: see `Guard`.
    """
    service.metrics.watch(lambda: service.batcher.waiting)
    routes = _fixed_routes(service)
    routes += [
        Route(f"/api/{name}", _operation(service, name), methods=["POST"]) for name in FIELDS
    ]
    handlers = {HTTPException: _refused, UserError: _refused, ClientDisconnect: _gone}
    handlers |= {Exception: _failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, names, is_local, [route.path for route in routes], service.metrics)


def _fixed_routes(service: Service) -> list[Route]:
    """The routes whose answers need no model."""
    text = write_page(service.runs, service.limits.characters)
    described = {
        "runs": [run.describe() for run in service.runs],
        "limits": {**service.limits._asdict(), "tokens": MAX_TOKENS},
    }
    page_headers = {"Content-Security-Policy": policy(text)}

    async def health(request: Request) -> Response:
        found = service.programs.state()
        return JSONResponse(found, 200 if found["status"] == "ready" else 503)

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    def fixed(make: Callable[[], Response]) -> Callable:
        async def answer(request: Request) -> Response:
            return make()

        return answer

    return [
        Route("/", fixed(lambda: HTMLResponse(text, headers=page_headers))),
        Route("/favicon.ico", fixed(lambda: Response(status_code=204))),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/openapi.json", fixed(lambda: JSONResponse(schema()))),
        Route("/api/runs", fixed(lambda: JSONResponse(described | service.programs.state()))),
    ]


def _operation(service: Service, name: str) -> Callable:
    """The function that answers requests of an operation."""

    async def answer(request: Request) -> Response:
        fields = await read_fields(request, FIELDS[name], service.limits)
        work = _work(service.runs, name, fields)
        try:
            job = service.batcher.submit(work, fields)
        except FullError:
            waiting = f"{service.limits.waiting} requests wait"
            raise HTTPException(
                503, f"{waiting}, as many as may: try again in a second", {"Retry-After": "1"}
            ) from None
        try:
            found = await _wait(request, job, service.limits.seconds)
        finally:
            service.batcher.cancel(job)
        return Response(found, media_type="application/json")

    return answer


def _work(runs: Sequence[Served], name: str, fields: Mapping[str, Any]) -> RunWork:
    """The work of a run for an operation.

    Raises:
      HTTPException: there is no such run.
      UserError: no run has the operation, or not the one that is named.
    """
    having = [run for run in runs if name in run.works]
    if "run" not in fields:
        if not having:
            names = dict.fromkeys(each for run in runs for each in run.works)
            raise UserError(f"no run here has {name}: use {', '.join(names)}")
        return having[0].works[name]
    chosen = [run for run in runs if run.name == fields["run"]]
    if not chosen:
        given, names = shorten(fields["run"], 60), ", ".join(run.name for run in runs)
        raise HTTPException(404, f"there is no run {given!r}: choose one of {names}")
    if name not in chosen[0].works:
        raise UserError(
            f"{chosen[0].name} is a run of {chosen[0].run.config.task}, which has "
            f"{', '.join(chosen[0].works)}, not {name}"
        )
    return chosen[0].works[name]


async def _wait(request: Request, job: Job, seconds: float) -> bytes:
    """Returns the answer of a job.

    Raises:
      HTTPException: it takes too long.
      ClientDisconnect: nobody waits for it any more.
    """
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({job.future, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    if job.future.done():
        return job.future.result()
    if gone.done():
        raise ClientDisconnect
    raise HTTPException(
        504, f"no answer in {seconds:g} seconds: send fewer or shorter texts at once, or wait"
    )


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(request: Request, error: Exception) -> Response:
    """The answer to a request that cannot be answered as it is."""
    if not isinstance(error, HTTPException):
        return JSONResponse({"error": explain(error, "", MEMORY)}, 400)
    path, message = shorten(request.url.path, 60), error.detail
    if error.status_code == 404 and message == "Not Found":
        message = f"there is no {path}: see /openapi.json"
    if error.status_code == 405:
        allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
        message = f"{request.method} is not for {path}: use {' or '.join(allowed)}"
    return JSONResponse({"error": message}, error.status_code, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=GONE)


async def _failed(request: Request, error: Exception) -> Response:
    """The answer if something is wrong with the server; its log has the traceback."""
    reason = explain(error, "the server", MEMORY) or "an error of the server: see its log"
    return JSONResponse({"error": reason}, 500)
