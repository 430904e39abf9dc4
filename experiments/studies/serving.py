"""Measures a server under load: prints the tables of docs/results/serving.md.

A trained translator is served with `--mode=serve` in a process of its own. 1, 8 and 64 clients at
once, each with a connection that it keeps, ask it for the sentences of its test set; one client
asks for one after another. Then 64 clients go on, and the memory of the server is read.
"""

import asyncio
import http.client
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.studies.command import Parser, exit_code, whole
from transformer.data import held_out
from transformer.errors import UserError

CLIENTS = (1, 8, 64)
WARM_UP = 5  # a load of this fraction of the requests comes before each number of clients
PARTS = 6  # of the last load, after each of which the memory is read
MIB = 2**20


class Load(NamedTuple):
    """The seconds of each request, as clients saw them, of all, and the number of wrong answers."""

    clients: int
    seconds: list[float]
    whole: float
    wrong: int


class Server:
    """The command in a process of its own; a context that ends it with SIGTERM."""

    def __init__(self, folder: Path):
        command = [sys.executable, "launch.py", f"--workdir={folder}", "--mode=serve", "--port=0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.code: int | None = None

    def __enter__(self) -> "Server":
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
            if line == "ready\n":
                # Its log has a line per request: unread, a full pipe would stop the server.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                while not self._has_all_programs():
                    time.sleep(1)
                return self
        raise UserError("the server did not start: try --mode=serve with this folder")

    def __exit__(self, *exception: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.code = self.process.wait()

    def _has_all_programs(self) -> bool:
        """Whether nothing is left to compile, which would wait for no request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/health")
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found["compiled"] == found["programs"]

    def memory(self) -> float:
        """The resident memory of the process, in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB


class Client:
    """A connection that asks for one translation after another."""

    def __init__(self, port: int):
        self._port = port

    async def __aenter__(self) -> "Client":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._writer.close()

    async def ask(self, text: str) -> tuple[int, str]:
        """Returns the status of an answer, and the translation."""
        body = json.dumps({"texts": [text]}).encode()
        lines = (
            "POST /api/translate HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        self._writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        assert length is not None
        answer = json.loads(await self._reader.readexactly(int(length[1])))
        status = int(head.split()[1])
        return status, answer["translations"][0][0]["text"] if status == 200 else ""


async def load(port: int, texts: Sequence[str], wanted: dict[str, str], clients: int) -> Load:
    """Returns the load of clients that share the texts among them."""
    left, seconds, wrong = iter(texts), [], 0

    async def work() -> None:
        nonlocal wrong
        async with Client(port) as client:
            for text in left:
                start = time.perf_counter()
                status, found = await client.ask(text)
                seconds.append(time.perf_counter() - start)
                wrong += status != 200 or wanted.setdefault(text, found) != found

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return Load(clients, seconds, time.perf_counter() - start, wrong)


def measure(folder: Path, requests: int, total: int) -> tuple[list[Load], dict[int, float]]:
    """Returns the load of each number of clients and that of all requests after them, and memory.

    Args:
      requests: of each load.
      total: requests after which the memory is read for the last time.

    Returns:
      The loads, and the memory of the server in MiB by the number of requests before.
    """
    texts = [pair.source for pair in held_out.read_pairs(folder, "test")]
    wanted: dict[str, str] = {}  # the translation of each text when it is first asked for
    loads, memory, sent = [], {}, 0
    with Server(folder) as server:

        def send(count: int, clients: int) -> Load:
            nonlocal sent
            chosen = [texts[i % len(texts)] for i in range(sent, sent + count)]
            sent += count
            found = asyncio.run(load(server.port, chosen, wanted, clients))
            memory[sent] = server.memory()
            return found

        for clients in CLIENTS:  # so that no load is the first of its kind
            send(requests // WARM_UP, clients)
        loads = [send(requests, clients) for clients in CLIENTS]
        last, step = [], math.ceil((total - sent) / PARTS)
        while sent < total:
            last.append(send(min(step, total - sent), CLIENTS[-1]))
    seconds = [each for part in last for each in part.seconds]
    whole, wrong = (sum(column) for column in zip(*(part[2:] for part in last), strict=True))
    loads.append(Load(CLIENTS[-1], seconds, whole, wrong))
    if server.code:
        raise UserError(f"the server ended with exit code {server.code}, not 0: see its log")
    return loads, memory


def check_total(requests: int, total: int) -> None:
    """Raises UserError if no request is left for the last load of `measure`."""
    first = len(CLIENTS) * (requests // WARM_UP + requests)
    if total <= first:
        raise UserError(
            f"--total={total} leaves no request after the first {first:,}: raise it, or lower "
            f"--requests={requests}"
        )


def table(loads: Sequence[Load]) -> list[str]:
    """Returns the loads as a table in Markdown; the first is of one request after another."""
    lines = [
        "| clients | requests per second | ratio | p50, ms | p99, ms | lost or wrong |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    rates = [len(each.seconds) / each.whole for each in loads]
    for each, rate in zip(loads, rates, strict=True):
        p50, p99 = (1000 * value for value in np.percentile(each.seconds, (50, 99)))
        lines.append(
            f"| {each.clients} | {rate:.0f} | {rate / rates[0]:.2f} | {p50:.0f} | {p99:.0f} | "
            f"{each.wrong} |"
        )
    return lines


def run(arguments: Sequence[str]) -> None:
    """Prints both tables."""
    parser = Parser(__doc__)
    parser.add_argument("--workdir", type=Path, required=True, help="of a trained translator")
    parser.add_argument("--requests", type=whole(10, 10**6), default=600, help="of each load")
    parser.add_argument("--total", type=whole(100, 10**7), default=10_000)
    flags = parser.parse_args(arguments)
    check_total(flags.requests, flags.total)
    loads, memory = measure(flags.workdir, flags.requests, flags.total)
    print("\n".join(table(loads)))
    print("\n| requests | memory, MiB |\n|---:|---:|")
    print("\n".join(f"| {sent:,} | {mebibytes:,.0f} |" for sent, mebibytes in memory.items()))


if __name__ == "__main__":
    sys.exit(exit_code(run, sys.argv[1:]))
