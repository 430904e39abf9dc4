"""Who may ask: checks of where a request is from, with its line in the log and its numbers.

The server has no accounts. So that no page of another site can use it through a browser, a name in
`Host` must be one of its own (against DNS rebinding), and a request that changes nothing but costs
time must be JSON and of no other origin; nothing is answered with CORS headers.
"""

import asyncio
import logging
import re
import time
from collections.abc import Collection

from fastapi.responses import JSONResponse
from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer.errors import one_line, shorten
from .schema import BODY, quote

logger = logging.getLogger(__name__)

BODY_SECONDS = 10.0  # seconds until a body has arrived
POLLED = ("/api/runs", "/health", "/metrics")  # which pages and monitors ask for all the time
LOCAL = {"localhost", "127.0.0.1", "::1"}
ADDRESS = re.compile(r"[\d.]+|.*:.*")  # no name of DNS
HOST = re.compile(r"(?:\[([\da-f:.]+)\]|([\w.-]+))(?::\d*)?", re.ASCII | re.IGNORECASE)

REQUESTS = Counter("transformer_requests", "Requests that were answered.", ["route", "status"])
DURATIONS = Histogram(
    "transformer_request_seconds",
    "Time of a request.",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)


class Access:
    """The application behind these checks.

    Clients reach the server by these names, besides those of the machine itself, and by any address
    as a number, which needs no DNS, unless it is local: reached by this machine alone.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], is_local: bool):
        self._app, self._is_local = app, is_local
        self._names = {name.lower() for name in names} - LOCAL

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status, size = time.perf_counter(), 500, 0
        deadline: float | None = asyncio.get_running_loop().time() + BODY_SECONDS

        async def receive_body() -> Message:
            nonlocal deadline, size
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                late = f"the body did not arrive in {BODY_SECONDS:g} seconds: send it faster"
                raise HTTPException(408, late) from None
            size += len(message.get("body", b""))
            if size > BODY:
                large = f"the body has more than {BODY:,} bytes: send fewer texts at once"
                raise HTTPException(413, large)
            if not message.get("more_body"):
                deadline = None
            return message

        async def send_on(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        refusal = self._refuse(scope["method"], Headers(scope=scope))
        app = JSONResponse({"error": refusal[1]}, refusal[0]) if refusal else self._app
        # The server of the connection sends no body of an answer to HEAD.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await app(inner, receive_body, send_on)
        finally:
            seconds = time.perf_counter() - start
            route = getattr(inner.get("route"), "path", "other")
            REQUESTS.labels(route, str(status)).inc()
            DURATIONS.labels(route).observe(seconds)
            if route not in POLLED or status not in (200, 503):
                request = shorten(one_line(f"{scope['method']} {scope['path']}"), 60)
                logger.info(f"{request} {status} {1000 * seconds:.0f} ms")

    def _refuse(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Returns status and reason of a request that is not answered; None of the others."""
        host, origin = headers.get("host", ""), headers.get("origin")
        name = _host_name(host)
        if name not in LOCAL | self._names and (self._is_local or not ADDRESS.fullmatch(name)):
            fix = "start it with --server_name=NAME to allow one"
            return 421, f"Host {quote(host)} is not a name of this server: {fix}"
        if method != "POST":
            return None
        if origin is not None:  # that of the page is the server's, or the proxy's before it
            scheme, _, place = origin.lower().partition("://")
            is_same = place == host.lower() or _host_name(place) in self._names
            if scheme not in ("http", "https") or not is_same:
                rule = "only this server's own page and programs can post"
                return 403, f"Origin {quote(origin)} is another site: {rule}"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return 415, f"Content-Type {quote(kind)} is not JSON: send application/json"
        return None


def _host_name(host: str) -> str:
    """The name or address in a `Host`, in lower case; '' if it has more than that and a port."""
    match = HOST.fullmatch(host)
    return (match[1] or match[2]).lower() if match else ""
