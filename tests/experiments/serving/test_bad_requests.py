"""A bad request to the API gets one line, and the server stays up."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import SINGLE, gated, is_one_line, serving, wait_until

from experiments.serving import works

DEEP = b"[" * 3_000
MISTAKES = {
    "no JSON": (b'{"texts": [', 400, "not JSON"),
    "not UTF-8": (b'{"texts": ["\xff"]}', 400, "not JSON"),
    "deeply nested": (DEEP, 400, "not JSON"),
    "not a number": (b'{"texts": NaN}', 400, "NaN is not a number"),
    "many digits": (b'{"num_best": ' + b"9" * 3_900 + b"}", 400, ""),
    "no object": (b'["a"]', 400, "is a list: send an object with texts"),
    "nothing": (b'{"texts": null}', 400, "'texts' is missing: give the"),
    "no field": (b"{}", 400, "'texts' is missing"),
    "an unknown field": (b'{"text": "a"}', 400, "'text' is unknown: use texts, num_best"),
    "a single text": (b'{"texts": "a"}', 400, "texts is 'a': give a list"),
    "a number": (b'{"texts": ["a", 7]}', 400, "texts[1] is 7: give a text"),
    "half a character": (b'{"texts": ["\\ud83d"]}', 400, "\\ud83d"),
    "a long text": (json.dumps({"texts": ["a" * 201]}), 400, "201 characters, more than 200"),
    "many texts": (json.dumps({"texts": ["a"] * 12}), 400, "12 texts, more than 11"),
    "a large body": (json.dumps({"texts": ["a" * 4_000]}), 413, "more than 4,000 bytes"),
    "results": (b'{"texts": ["a"], "num_best": 9}', 400, "num_best=9 is not between 1 and 4"),
    "no results": (b'{"texts": ["a"], "num_best": 0}', 400, "num_best=0"),
    "true results": (b'{"texts": ["a"], "num_best": true}', 400, "true or false"),
    "a tag": (b'{"texts": ["a"], "source_tag": "<2de>"}', 400, "leave it out"),
    "no run": (b'{"texts": ["a"], "run": "x"}', 404, "choose one of translation, language"),
    "another run": (b'{"texts": ["a"], "run": "classification"}', 400, "not translate"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_bad_body_is_answered_by_one_line(small, mistake):
    body, status, says = MISTAKES[mistake]
    is_one_line(
        small.post("translate", body.encode() if isinstance(body, str) else body), status, says
    )
    assert small.post("translate", SINGLE).status == 200  # and the server stays up


def test_ten_megabytes_and_a_hundred_thousand_characters_are_refused(site):
    is_one_line(site.post("translate", b" " * 10_000_000), 413, "more than 1,048,576 bytes")
    long = site.post("translate", {"texts": ["a " * 50_000]})
    is_one_line(long, 400, "texts[0] has 100,000 characters, more than 5,000: split it")
    assert site.post("translate", SINGLE).status == 200


FIELD_MISTAKES = [
    ("score", {"texts": ["a"]}, "targets is missing: give a translation of each of the texts"),
    ("score", {"texts": ["a", "b"], "targets": ["a"]}, "targets has 1 texts, and texts has 2"),
    ("score", {"texts": ["one", "one zebra"], "run": "language_model"}, "texts[1] has zebra"),
    ("score", {"texts": ["one"], "targets": ["a"], "run": "language_model"}, "targets is for"),
    ("score", {"texts": ["one " * 12], "run": "language_model"}, "texts[0] has 13 tokens"),
    ("score", {"texts": ["a"], "source_tag": "<x>", "run": "language_model"}, "source_tag=<x>"),
    ("generate", {"texts": ["one zebra"]}, "texts[0] has zebra"),
    ("attention", {"text": "\u200b"}, "text is blank"),
    ("attention", {"text": ["a"]}, "text is a list"),
    ("attention", {"text": "one zebra", "run": "language_model"}, "text has zebra"),
    ("attention", {"text": "a", "target": "b", "run": "classification"}, "target is for"),
    ("attention", {"text": "a", "source_tag": "<x>"}, "source_tag=<x> is for runs with tags"),
    ("translate", {"texts": ["a"], "source_tag": "<x>"}, "source_tag=<x> is for runs with tags"),
    ("translate", {"texts": ["a"], "num_best": 9}, "num_best=9 is not between 1 and 4"),
    ("translate", {"texts": ["a "] * 11 + ["a"]}, "texts has 12 texts"),
    ("translate", {"text": "a"}, "'text' is unknown: use texts"),
    (
        "translate",
        {"texts": ["a b c d e f g h i j"] * 2},
        "texts has 20 tokens in all, more than 19",
    ),
]


def test_a_mistake_is_told_while_the_model_is_busy_and_names_its_field(small, monkeypatch):
    monkeypatch.setattr(works, "MAX_TOKENS", 19)
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(1) as pool:
        first = pool.submit(small.post, "translate", {"texts": ["a " * 19]})
        wait_until(lambda: len(batches) == 1)
        for operation, fields, says in FIELD_MISTAKES:
            is_one_line(small.post(operation, fields), 400, says)
        assert not first.done()
        gate.set()
        assert first.result().status == 200


def test_five_thousand_unknown_characters_are_answered_or_refused_at_once(site, loaded):
    tokenizer = loaded["translation"].trained.predictor.source_tokenizer
    [ids] = tokenizer.encode(["🙂" * 5_000])
    answer = site.post("translate", {"texts": ["🙂" * 5_000]})
    if len(ids) > works.MAX_TOKENS:
        is_one_line(answer, 400, f"texts has {len(ids):,} tokens in all, more than 8,192: send")
    else:
        assert answer.status == 200
    is_one_line(site.post("translate", {"texts": ["a " * 2_500] * 4}), 400, "has 10,000 tokens in")
    assert site.get("/api/runs").json()["limits"]["tokens"] == 8_192


def test_every_request_has_a_line_in_the_log_without_its_text(small, said):
    small.post("translate", {"texts": ["a b c"]})
    small.post("translate", {"texts": 7})
    small.get("/?text=secret")
    small.get("/health")
    small.ask("DELETE", "/health")
    small.get("/a%0Ab/" + "x" * 100)
    wait_until(lambda: len([line for line in said if line.endswith(" ms")]) == 5)
    found = [re.sub(r"\d+ ms$", "_ ms", line) for line in said if line.endswith(" ms")]
    assert found[:2] == ["POST /api/translate 200 _ ms", "POST /api/translate 400 _ ms"]
    assert found[2:4] == ["GET / 200 _ ms", "DELETE /health 405 _ ms"]  # not what monitors ask
    assert re.fullmatch(r"GET /a b/x+\.\.\.x+ 404 _ ms", found[4])


@pytest.mark.parametrize(
    "text", ["a\nb", "\x00a", "a\u2028b", "\ufffd", "🙂" * 50, "a. B. " * 30, "x" * 200]
)
def test_any_text_has_an_answer(small, text):
    assert small.post("translate", {"texts": [text]}).status == 200
    assert small.post("attention", {"text": text}).status in (200, 400)


PATHS = ("/nothing", "/../config.json", "/%2e%2e/config.json", "//etc/passwd", "/api/", "/api/x")
PATHS += ("/..%2f..%2fetc/passwd", "/static/../config.json", "/api/translate/..", "/config.json")


@pytest.mark.parametrize("path", PATHS)
def test_no_file_can_be_reached(site, path):
    is_one_line(site.get(path), 405 if path == "/api/translate" else 404, "/openapi.json")


def test_only_posts_are_translated(site):
    is_one_line(site.get("/api/translate"), 405, "GET is not for /api/translate: use POST")
    for method in ("PUT", "DELETE", "OPTIONS"):
        is_one_line(site.ask(method, "/api/translate", b"", {}), 405, "use POST")
    is_one_line(
        site.ask("POST", "/", b"{}", {"Content-Type": "application/json"}), 405, "use GET or HEAD"
    )


def test_another_site_cannot_post_or_read(site):
    own = f"http://127.0.0.1:{site.port}"
    assert site.post("translate", SINGLE, Origin=own).status == 200
    others = (
        "http://evil.example",
        "http://127.0.0.1:1",
        f"{own}.evil.example",
        "http://[",
        "null",
        "",
    )
    for origin in others:
        is_one_line(site.post("translate", SINGLE, Origin=origin), 403, "another site")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        is_one_line(site.post("translate", SINGLE, Content_Type=kind), 415, "application/json")
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = site.ask("OPTIONS", "/api/translate", headers=preflight)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_name_that_is_not_the_servers_is_refused(site, runs):
    for host in ("evil.example", f"evil.example:{site.port}", "127.0.0.1.evil.example", "", "[::"):
        is_one_line(site.ask("GET", "/api/runs", headers={"Host": host}), 421, "--server_name")
    for host in ("localhost", "LOCALHOST:9", "[::1]:8000"):
        assert site.ask("GET", "/api/runs", headers={"Host": host}).status == 200
    is_one_line(site.ask("GET", "/", headers={"Host": "10.0.0.7:80"}), 421)
    with serving(runs[:1], names=["own.example"], local=False) as running:
        for host in ("own.example", "10.0.0.7:80", "localhost"):
            assert running.ask("GET", "/", headers={"Host": host}).status == 200
        is_one_line(running.ask("GET", "/", headers={"Host": "evil.example"}), 421)
        proxy = {"Host": "127.0.0.1:8000", "Origin": "https://own.example"}
        assert running.post("translate", SINGLE, **proxy).status == 200
