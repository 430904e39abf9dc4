"""Many, slow and vanished clients of the API: others do not wait for them."""

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import PATIENCE, SINGLE, gated, is_one_line, serving, wait_until

from experiments.serve import access, batching, server
from transformer.operations import Translate


@pytest.mark.full
def test_a_full_queue_is_told_when_to_come_back_and_nothing_is_lost(site, monkeypatch):
    most = 5
    monkeypatch.setattr(batching, "MAX_WAITING", most)
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(most + 1) as pool:
        clients = [pool.submit(site.post, "translate", SINGLE)]
        wait_until(lambda: len(batches) == 1)
        clients += [pool.submit(site.post, "translate", SINGLE) for _ in range(most)]
        wait_until(lambda: site.batcher.waiting == most)
        with ThreadPoolExecutor(16) as others:
            refused = list(others.map(lambda _: site.post("translate", SINGLE), range(100)))
        for answer in refused:
            is_one_line(answer, 503, "5 requests wait", "try again")
            assert answer.headers["retry-after"] == "1"
        assert site.get("/health").status in (200, 503)
        gate.set()
        assert [client.result().status for client in clients] == [200] * (most + 1)


def test_an_answer_that_takes_too_long_is_given_up(site, monkeypatch):
    assert site.post("translate", SINGLE).status == 200  # and its programs are compiled
    with monkeypatch.context() as patched, gated(monkeypatch):
        patched.setattr(server, "ANSWER_SECONDS", 0.2)
        is_one_line(site.post("translate", SINGLE), 504, "no answer in 0.2 seconds")
    assert site.post("translate", SINGLE).status == 200


def send(port: int, data: bytes, *headers: str) -> socket.socket:
    """A connection in which a translation of one text is asked for with this body."""
    lines = (
        "POST /api/translate HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(SINGLE)}",
        *headers,
    )
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    return connection


@pytest.mark.parametrize("is_browser", [True, False])
def test_a_client_that_goes_away_is_dropped_from_the_queue(site, monkeypatch, is_browser):
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.post, "translate", {"texts": ["b"]})
        wait_until(lambda: len(batches) == 1)
        gone = send(site.port, SINGLE, *["Origin: http://localhost"] * is_browser)
        wait_until(lambda: site.batcher.waiting == 1)
        if not is_browser:  # a reset, as of a program that is killed before it has read all
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        wait_until(lambda: site.batcher.waiting == 0)
        gate.set()
        assert first.result().status == 200
    assert batches == [["b"]]
    wait_until(lambda: b'status="499"' in site.get("/metrics").body)


def test_a_body_that_does_not_arrive_is_given_up(site, monkeypatch):
    monkeypatch.setattr(access, "BODY_SECONDS", 0.5)
    with send(site.port, SINGLE[:-3]) as slow:
        assert site.post("translate", SINGLE).status == 200  # others do not wait for it
        assert slow.recv(12) == b"HTTP/1.1 408"


def is_cut(connection: socket.socket, more: bytes) -> bool:
    """Whether a connection has ended; if not, sends more."""
    connection.settimeout(0.02)
    try:
        return not connection.recv(10_000)
    except ConnectionError:
        return True
    except TimeoutError:
        connection.sendall(more)
        return False


def test_an_idle_connection_is_cut_and_one_that_waits_for_its_answer_is_not(runs, monkeypatch):
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.3)
    with (
        gated(monkeypatch) as (gate, batches),
        serving(runs[:1]) as running,
        send(running.port, SINGLE) as waits,
    ):
        begun = b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        wait_until(lambda: len(batches) == 1)
        for data in (b"", b"G", begun, begun + b"\r\n"):  # the last is answered at once
            with socket.create_connection(("127.0.0.1", running.port), PATIENCE) as idle:
                idle.sendall(data)
                wait_until(lambda idle=idle, more=data[:1]: is_cut(idle, more))
        gate.set()
        assert waits.recv(12) == b"HTTP/1.1 200"


def test_a_client_that_reads_nothing_of_its_answers_is_cut(runs, monkeypatch):
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.3)
    with serving(runs[:1]) as running, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", running.port))
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        wait_until(lambda: running.server.server_state.connections)
        wait_until(lambda: not running.server.server_state.connections)


@pytest.mark.parametrize("requests", [1, 2])
def test_a_client_that_closes_its_half_gets_its_answer(site, monkeypatch, requests):
    with gated(monkeypatch) as (gate, batches), send(site.port, SINGLE) as client:
        for _ in range(requests - 1):
            client.sendall(b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: len(batches) == 1)
        client.shutdown(socket.SHUT_WR)
        time.sleep(0.1)
        gate.set()
        answer = b"".join(iter(lambda: client.recv(10_000), b""))
    assert answer.count(b"HTTP/1.1 200") == requests


def test_a_running_request_is_finished_after_the_signal(runs, monkeypatch):
    def refuses() -> bool:
        try:
            socket.create_connection(("127.0.0.1", running.port), 1).close()
        except OSError:
            return True
        return False

    with (
        gated(monkeypatch) as (gate, batches),
        serving(runs[:1]) as running,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(running.post, "translate", SINGLE)
        wait_until(lambda: len(batches) == 1)
        running.server.should_exit = True  # which the handler of signals sets
        wait_until(refuses)
        assert not answer.done()
        gate.set()
        assert answer.result().status == 200


def test_an_error_of_the_program_is_one_line_for_the_client(site, monkeypatch):
    def fail(self, items, *arguments, **options):
        raise ZeroDivisionError("a secret")

    with monkeypatch.context() as patched:
        patched.setattr(Translate, "compute", fail)
        answer = site.post("translate", SINGLE)
    is_one_line(answer, 500, "see its log")
    assert b"secret" not in answer.body
    assert site.post("translate", SINGLE).status == 200
