"""Many, slow and vanished clients of the API: others do not wait for them."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import PATIENCE, SINGLE, gated, is_one_line, serving, wait_until

from experiments.serve import model_thread, server
from transformer.inference.prefixes import Prefix
from transformer.operations import Translate


@pytest.mark.full
def test_a_full_queue_is_told_when_to_come_back_and_nothing_is_lost(site, monkeypatch):
    most = 5
    monkeypatch.setattr(model_thread, "MAX_WAITING", most)
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(most + 1) as pool:
        clients = [pool.submit(site.post, "translate", SINGLE)]
        wait_until(lambda: len(batches) == 1)
        clients += [pool.submit(site.post, "translate", SINGLE) for _ in range(most)]
        wait_until(lambda: site.worker.waiting == most)
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


def send(port: int, data: bytes) -> socket.socket:
    """A connection in which a translation of one text is asked for with this body."""
    lines = (
        "POST /api/translate HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(SINGLE)}",
    )
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    return connection


def test_a_client_that_goes_away_is_dropped_from_the_queue(site, monkeypatch):
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.post, "translate", {"texts": ["b"]})
        wait_until(lambda: len(batches) == 1)
        gone = send(site.port, SINGLE)
        wait_until(lambda: site.worker.waiting == 1)
        gone.close()
        wait_until(lambda: site.worker.waiting == 0)
        gate.set()
        assert first.result().status == 200
    assert batches == [[("b", Prefix())]]
    wait_until(lambda: b'status="499"' in site.get("/metrics").body)


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
