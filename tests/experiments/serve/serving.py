"""A server of runs within this process, a client that reads its answers whole, and checks."""

import asyncio
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import uvicorn

from experiments.serve.model_thread import Worker
from experiments.serve.routes import Served
from experiments.serve.serve import LOCAL
from experiments.serve.server import listen, make_server
from transformer.operations import Translate

PATIENCE = 60  # seconds: nothing is as slow as that unless it is wrong
SINGLE = json.dumps({"texts": ["a"]}).encode()  # a translation of one text


class Answer(NamedTuple):
    """An answer: its status, its headers in lower case, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Running(NamedTuple):
    """A server that runs in threads of its own."""

    server: uvicorn.Server
    worker: Worker
    port: int

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        """Returns the answer to a request, in a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers))
            found = connection.getresponse()
            named = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, named, found.read())

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, operation: str, fields: Any, **headers: str) -> Answer:
        """Posts JSON to an operation; a header's name has `_` for `-`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        kind = {"Content-Type": "application/json"}
        return self.ask("POST", f"/api/{operation}", body, kind | given)


def wait_until(holds: Callable[[], bool]) -> None:
    """Returns once a condition holds; fails if it never does."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never holds"
        time.sleep(0.005)


@contextlib.contextmanager
def serving(runs: list[Served], names=LOCAL, origins=()) -> Iterator[Running]:
    """Serves runs meanwhile."""
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    server, worker = make_server(runs, names, origins)
    threads = [
        threading.Thread(target=worker.run),
        threading.Thread(target=lambda: asyncio.run(server.serve([listening]))),
    ]
    for thread in threads:
        thread.start()
    try:
        yield Running(server, worker, port)
    finally:
        server.should_exit = True
        threads[1].join(PATIENCE)
        worker.close()
        threads[0].join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads)


@contextlib.contextmanager
def gated(monkeypatch):
    """Translations wait meanwhile until the gate is open; yields it and the batches."""
    gate, batches, compute = threading.Event(), [], Translate.compute

    def wait(self, items, *arguments, **options):
        batches.append(items)
        assert gate.wait(PATIENCE)
        return compute(self, items, *arguments, **options)

    monkeypatch.setattr(Translate, "compute", wait)
    try:
        yield gate, batches
    finally:
        gate.set()


def is_one_line(answer, status: int, *says: str) -> None:
    """Checks an error: its status, and that its one line says all of this."""
    assert answer.status == status, answer
    assert list(answer.json()) == ["error"]
    line = answer.json()["error"]
    assert "\n" not in line
    assert "--" not in line  # who asks has no command line
    for part in says:
        assert part in line
