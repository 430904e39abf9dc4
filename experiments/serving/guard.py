"""Who may ask: checks of where a request is from, the headers of answers, their numbers and log.

The server has no accounts. So that no page of another site can use it through a browser, a name in
`Host` must be one of its own (against DNS rebinding), and a request that changes nothing but costs
time must be JSON and of no other origin; nothing is answered with CORS headers.
"""

import contextlib
import ipaddress
import logging
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from experiments.serving.metrics import Metrics
from transformer.errors import one_line, shorten

logger = logging.getLogger(__name__)

SHOWN = 60  # characters of a value in a message
POLLED = ("/api/runs", "/health", "/metrics")  # which pages and monitors ask for all the time
LOCAL = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """The application behind these checks.

    Args:
      names: by which clients reach the server, besides those of the machine itself.
      is_local: whether only this machine reaches it; otherwise, any address as a number is
        allowed, too, for that needs no DNS.
      routes: the paths that metrics name.
    """

    def __init__(
        self,
        app: ASGIApp,
        names: Collection[str],
        is_local: bool,
        routes: Collection[str],
        metrics: Metrics,
    ):
        self._app, self._metrics, self._routes = app, metrics, frozenset(routes)
        self._names = {name.lower() for name in (*LOCAL, *names)}
        self._is_local = is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, start = 500, time.perf_counter()

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            refusal = self._refuse(scope["method"], Headers(scope=scope))
            if refusal is None:
                await self._app(scope, receive, send_on)
            else:
                code, message = refusal
                await JSONResponse({"error": message}, code)(scope, receive, send_on)
        finally:
            seconds = time.perf_counter() - start
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.request(route, status, seconds)
            if route not in POLLED or status not in (200, 503):
                asked = shorten(one_line(f"{scope['method']} {scope['path']}"), SHOWN)
                with contextlib.suppress(OSError):  # the log may be closed
                    logger.info(f"{asked} {status} {1000 * seconds:.0f} ms")

    def _refuse(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Returns status and reason of a request that is not answered; None of the others."""
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_own(_name_of(f"//{host}")):
            return 421, (
                f"Host {_shown(host)} is not a name of this server: start it with "
                "--server_name=NAME to allow one"
            )
        if method in ("GET", "HEAD"):
            return None
        origin = headers.get("origin")
        if origin is not None and not self._is_own_origin(origin, host):
            return 403, (
                f"Origin {_shown(origin)} is another site: only this server's own page and "
                "programs can post"
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return 415, f"Content-Type {_shown(kind)} is not JSON: send application/json"
        return None

    def _is_own(self, name: str) -> bool:
        if name in self._names:
            return True
        return not self._is_local and _is_address(name)

    def _is_own_origin(self, origin: str, host: str) -> bool:
        """Whether an origin is that of the page: the server's, or the proxy's before it."""
        if not origin.startswith(("http://", "https://")):
            return False
        own = _name_of(origin) in self._names - set(LOCAL)
        return own or origin.partition("://")[2].lower() == host.lower()


def _name_of(url: str) -> str:
    """The name or address in a URL, in lower case; '' if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _shown(value: str) -> str:
    return repr(shorten(one_line(value), SHOWN))
