"""The application: its routes and its page, and how a request becomes an answer of a run."""

import asyncio
import base64
import hashlib
import queue
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from experiments.process import explain
from experiments.serve import access, batching, schema
from experiments.serve.operations import MAX_REQUEST_TOKENS, Served
from experiments.serve.page import render_page
from transformer.errors import UserError, one_line, shorten

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
        operation, values = run.operations[name], fields.model_dump(exclude_none=True)
        # In a thread: a mistake is answered at once, whatever is being computed or decoded.
        loop, end = asyncio.get_running_loop(), time.monotonic() + ANSWER_SECONDS
        planner = planners[bool(values.keys() & {"picture", "pictures"})]
        planning = loop.run_in_executor(planner, operation.plan, values)
        plan = await _wait(request, planning, end)
        try:
            future = batcher.submit(operation, plan)
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
        if operation in run.operations:
            return run
    names = dict.fromkeys(each for run in candidates for each in run.operations)
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
