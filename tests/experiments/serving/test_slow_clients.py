"""Many, slow and vanished clients of the API: others do not wait for them."""

import math
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

from serving import PATIENCE, SINGLE, SMALL, gated, is_one_line, serving, wait_until

from experiments.serving import server
from experiments.serving.limits import DRAINED, Limits
from experiments.serving.works import Translate


def test_a_full_queue_is_told_when_to_come_back_and_nothing_is_lost(small, monkeypatch):
    many = 1_000
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(SMALL.waiting + 1) as pool:
        kept = [pool.submit(small.post, "translate", {"texts": ["a"]})]
        wait_until(lambda: len(batches) == 1)
        for number in range(1, SMALL.waiting + 1):
            kept.append(pool.submit(small.post, "translate", {"texts": ["a b"]}))
            wait_until(lambda number=number: small.batcher.waiting == number)
        with ThreadPoolExecutor(16) as others:
            refused = list(others.map(lambda _: small.post("translate", SINGLE), range(many)))
        for answer in refused:
            is_one_line(answer, 503, "5 requests wait", "try again")
            assert answer.headers["retry-after"] == "1"
        assert small.get("/health").status in (200, 503)
        gate.set()
        assert [each.result().status for each in kept] == [200] * (SMALL.waiting + 1)
    assert small.post("translate", SINGLE).status == 200


def test_an_answer_that_takes_too_long_is_given_up(runs, monkeypatch):
    limits = SMALL._replace(seconds=0.2)
    with serving(runs, limits) as running:
        with gated(monkeypatch) as (gate, _):
            is_one_line(running.post("translate", SINGLE), 504, "no answer in 0.2 seconds")
            gate.set()
        wait_until(lambda: running.post("translate", SINGLE).status == 200)


def send(port: int, data: bytes) -> socket.socket:
    """A connection in which something is sent."""
    made = socket.create_connection(("127.0.0.1", port), PATIENCE)
    made.sendall(data)
    return made


def request(length: int) -> bytes:
    lines = (
        "POST /api/translate HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {length}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_a_client_that_goes_away_is_dropped_from_the_queue(small, monkeypatch):
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(2) as pool:
        first = pool.submit(small.post, "translate", {"texts": ["a"]})
        wait_until(lambda: len(batches) == 1)
        gone = send(small.port, request(len(SINGLE)) + SINGLE)
        wait_until(lambda: small.batcher.waiting == 1)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()  # with a reset, as of a program that is killed before it has read all
        wait_until(lambda: small.batcher.waiting == 0)
        gate.set()
        assert first.result().status == 200
    assert batches == [[("a", 1)]]
    wait_until(lambda: b'status="499"' in small.get("/metrics").body)


def test_a_client_that_has_closed_its_sending_side_gets_its_answer(small):
    with send(small.port, request(len(SINGLE)) + SINGLE) as made:
        made.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: made.recv(4096), b""))  # to the end of the connection
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"translations"' in answer


def test_a_body_of_fifty_megabytes_is_refused_with_a_reason_and_no_reset(site):
    with send(site.port, request(50_000_000)) as made:
        for _ in range(50):
            made.sendall(b" " * 1_000_000)
        assert made.recv(12) == b"HTTP/1.1 413"


def test_a_client_that_hangs_is_let_go(small):
    half = b"POST /api/translate HTTP/1.1\r\nHost: local"
    with send(small.port, b"") as silent, send(small.port, half) as slow:
        body = send(small.port, request(len(SINGLE)) + SINGLE[:-3])
        assert small.post("translate", SINGLE).status == 200  # others do not wait for them
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""
        with body:
            assert body.recv(12) == b"HTTP/1.1 408"


def test_a_large_body_without_its_length_is_refused_while_it_arrives(small):
    lines = request(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    with send(small.port, lines + chunk * (DRAINED + 1)) as made:
        assert made.recv(12) == b"HTTP/1.1 413"


def test_what_is_no_http_is_refused_and_the_server_stays_up(small):
    with send(small.port, b"\x16\x03\x01\x00\xa5 tls?\r\n\r\n") as made:
        assert made.recv(12) == b"HTTP/1.1 400"
    assert small.post("translate", SINGLE).status == 200


def test_an_error_of_the_program_is_one_line_for_the_client(small, monkeypatch):
    def fail(self, group, payloads):
        raise ZeroDivisionError("a secret")

    with monkeypatch.context() as patched:
        patched.setattr(Translate, "compute", fail)
        answer = small.post("translate", SINGLE)
    is_one_line(answer, 500, "see its log")
    assert b"secret" not in answer.body
    assert small.post("translate", SINGLE).status == 200


def test_the_default_limits_are_those_that_are_documented():
    limits = Limits()
    assert limits.body == 2**20
    assert (limits.texts, limits.characters, limits.waiting) == (64, 5_000, 256)
    assert math.ceil(limits.seconds) == 30
    assert server.KEEP_ALIVE == 5
