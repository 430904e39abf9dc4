"""A bad request to the API gets one line, and the server stays up."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import SINGLE, gated, is_one_line, serving, wait_until

from experiments.serve import routes
from experiments.serve.schema import BODY

LONG = json.dumps({"texts": ["a" * 5_001]}).encode()
MISTAKES = [
    (b"", 400, "the body: Field required, got null; see /openapi.json"),
    (b'{"texts": [', 400, "the body is not JSON (Expecting value): send an object"),
    (b"[" * 3_000, 400, "error parsing the body, see /openapi.json"),  # nested too deeply
    (b"{}", 400, "texts: Field required, got {}; see /openapi.json"),
    (b'{"texts": [], "a\\nb": "a"}', 400, "a b: Extra inputs"),
    (b'{"texts": ["a", 7]}', 400, "texts[1]: Input should be a valid string, got 7"),
    (LONG, 400, "texts[0]: String should have at most 5000 characters"),
    (b'{"texts": [' + b'"a", ' * 64 + b'"a"]}', 400, "texts: List should have at most 64 items"),
    (b'{"texts": ["a"], "num_best": 0}', 400, "num_best=0"),
    (b'{"texts": ["a"], "run": "x"}', 404, 'no run "x": choose one of translation, language'),
]
FIELD_MISTAKES = [
    ("score", {"texts": ["a"]}, "targets has 0 texts, and texts has 1: give a translation of each"),
    ("score", {"texts": ["one"], "targets": ["a"], "run": "language_model"}, "targets is for"),
    ("translate", {"texts": ["a "] * 20}, "texts has 20 tokens in all, more than 19"),
]


@pytest.mark.full
def test_a_mistake_is_one_line_at_once_while_the_model_is_busy(site, monkeypatch):
    monkeypatch.setattr(routes, "MAX_REQUEST_TOKENS", 19)
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.post, "translate", {"texts": ["a " * 19]})
        wait_until(lambda: len(batches) == 1)
        for body, status, says in MISTAKES:
            is_one_line(site.post("translate", body), status, says)
        for operation, fields, says in FIELD_MISTAKES:
            is_one_line(site.post(operation, fields), 400, says)
        assert not first.done()
        gate.set()
        assert first.result().status == 200


def test_a_mistake_in_a_question_about_a_text_is_one_line(site):
    for fields, says in (
        ({"text": "\u200b"}, "the text is blank"),
        ({"text": "one zebra", "run": "language_model"}, "text has zebra"),
        ({"text": "a", "target": "b", "run": "classification"}, "has no target"),
    ):
        is_one_line(site.post("attention", fields), 400, says)


def test_a_body_that_is_too_large_is_refused(site):
    for body in (b" " * 10_000_000, iter([b" " * BODY, b" "])):  # the second one in chunks
        answer = site.ask("POST", "/api/translate", body, {"Content-Type": "application/json"})
        is_one_line(answer, 413, "more than 1,048,576 bytes: send fewer texts at once")
    assert site.post("translate", b" " * (BODY - len(SINGLE)) + SINGLE).status == 200


def test_every_request_has_a_line_in_the_log_without_its_text(site, said):
    site.post("translate", {"texts": ["a b c"]})
    site.post("translate", {"texts": 7})
    site.get("/?text=secret")
    site.get("/health")
    site.ask("DELETE", "/health")
    site.get("/a%0Ab/" + "x" * 100)
    wait_until(lambda: any(" 404 " in line for line in said))
    lines = [re.sub(r"\d+ ms$", "_ ms", line) for line in said if line.endswith(" ms")]
    lines = lines[-5:]  # a line may be of a request before these
    assert lines[:2] == ["POST /api/translate 200 _ ms", "POST /api/translate 400 _ ms"]
    assert lines[2:4] == ["GET / 200 _ ms", "DELETE /health 405 _ ms"]  # not what monitors ask
    assert re.fullmatch(r"GET /a b/x+\.\.\.x+ 404 _ ms", lines[4])


def test_no_file_can_be_reached_and_only_posts_are_translated(site):
    paths = ["/nothing", "/../config.json", "/%2e%2e/config.json", "//etc/passwd", "/docs", "/api/"]
    for path in (*paths, "/..%2f..%2fetc/passwd", "/static/../config.json", "/health/"):
        is_one_line(site.get(path), 404, "see /openapi.json")
    for method in ("GET", "PUT", "DELETE", "OPTIONS"):
        answer = site.ask(method, "/api/translate")
        is_one_line(answer, 405, f"{method} /api/translate: Method Not Allowed")
        assert answer.headers["allow"] == "POST"


def test_another_site_cannot_post_or_read(site):
    own = f"http://127.0.0.1:{site.port}"
    assert site.post("translate", SINGLE, Origin=own).status == 200
    others = ("http://evil.example", "http://127.0.0.1:1", f"{own}.evil.example", "http://[")
    for origin in (*others, "null", ""):
        is_one_line(site.post("translate", SINGLE, Origin=origin), 403, "another site")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        is_one_line(site.post("translate", SINGLE, Content_Type=kind), 415, "application/json")
    kind = {"Content_Type": "application/json; charset=utf-8"}
    assert site.post("translate", SINGLE, **kind).status == 200
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = site.ask("OPTIONS", "/api/translate", headers=preflight)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.full
def test_a_name_that_is_not_the_servers_is_refused(site, runs):
    others = ("evil.example", f"evil.example:{site.port}", "127.0.0.1.evil.example", "", "[::")
    for host in (*others, "10.0.0.7:80", "localhost/evil.com"):
        assert site.ask("GET", "/api/runs", headers={"Host": host}).status == 400
    for host in ("localhost", "LOCALHOST:9", "[::1]:8000"):
        assert site.ask("GET", "/api/runs", headers={"Host": host}).status == 200
    with serving(runs[:1], ["own.example"]) as running:
        proxy = {"Host": "own.example", "Origin": "https://own.example"}
        assert running.post("translate", SINGLE, **proxy).status == 200
        assert running.ask("GET", "/", headers={"Host": "evil.example"}).status == 400
