"""The page and the API of runs: answers are those of the runs, and bad requests get one line."""

import base64
import contextlib
import json
import math
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from serving import PATIENCE, serving, wait_until

import transformer
from experiments.attention import page
from experiments.serving import server, works
from experiments.serving.limits import DRAINED, FIELDS, Limits
from experiments.serving.page import policy
from experiments.serving.programs import Programs
from experiments.serving.works import ROWS, Served, Translate
from places import ROOT
from task_runs import train_runs
from transformer.data import held_out

SMALL = Limits(body=4_000, texts=11, characters=200, waiting=5, seconds=20.0, reading=0.5)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A run of each task; two names for the translator."""
    return {task: transformer.load(folder) for task, folder in train_runs(tmp_path_factory).items()}


@pytest.fixture(scope="module")
def runs(loaded):
    return [Served(name, run) for name, run in loaded.items()]


@pytest.fixture(scope="module")
def site(runs):
    with serving(runs) as running:
        yield running


@pytest.fixture
def small(runs):
    """A server with narrow limits."""
    with serving(runs, SMALL) as running:
        yield running


@contextlib.contextmanager
def gated(monkeypatch):
    """Translations wait meanwhile until the gate is open; yields it and the batches."""
    gate, batches, compute = threading.Event(), [], Translate.compute

    def wait(self, group, payloads):
        batches.append(payloads)
        assert gate.wait(PATIENCE)
        return compute(self, group, payloads)

    monkeypatch.setattr(Translate, "compute", wait)
    try:
        yield gate, batches
    finally:
        gate.set()


def planned(site) -> list:
    """The requests that wait to be computed."""
    return [job for job in site.batcher._jobs if job.plan is not None]


def is_one_line(answer, status: int, *says: str) -> None:
    """Checks an error: its status, and that its one line says all of this."""
    assert answer.status == status, answer
    assert list(answer.json()) == ["error"]
    line = answer.json()["error"]
    assert "\n" not in line
    assert status == 421 or "--" not in line  # who asks has no command line
    for part in says:
        assert part in line


# -- answers


def test_translations_are_those_of_the_run(site, loaded):
    texts = ["a b c", "", "b a", "d e f g h"]
    found = site.post("translate", {"texts": texts}).json()
    assert found["run"] == "translation"
    assert [best[0]["text"] for best in found["translations"]] == loaded["translation"].translate(
        texts
    )
    assert list(map(len, found["translations"])) == [1, 1, 1, 1]
    best = site.post("translate", {"texts": texts, "num_best": 3}).json()["translations"]
    own = loaded["translation"].translate(texts, num_best=3)
    assert [[each["text"] for each in row] for row in best] == [[e.text for e in r] for r in own]
    scores = [each["score"] for row in best for each in row]
    assert scores == pytest.approx([each.score for row in own for each in row], abs=1e-4)
    assert list(map(len, best)) == [3, 1, 3, 3]


def test_scores_classes_and_continuations_are_those_of_the_run(site, loaded):
    pairs = {"texts": ["a b", "c d e"], "targets": ["b a", "e"]}
    found = site.post("score", pairs).json()["scores"]
    own = loaded["translation"].score(*pairs.values())
    assert [each["tokens"] for each in found] == [each.tokens for each in own]
    log_probs = [each["log_prob"] for each in found]
    assert log_probs == pytest.approx([each.log_prob for each in own], abs=1e-4)
    texts = ["the plot is superb .", "", "the cast is dull !"]
    found = site.post("classify", {"texts": texts, "num_best": 2}).json()["classes"]
    own = loaded["classification"].classify(texts, num_best=2)
    assert [[each["label"] for each in row] for row in found] == [[e.label for e in r] for r in own]
    prompts = ["one", "two blue", "one"]
    found = site.post("generate", {"texts": prompts}).json()["continuations"]
    alone = [loaded["language_model"].generate([text])[0] for text in prompts]
    assert [row[0]["text"] for row in found] == alone
    lines = {"texts": ["one red cat"], "run": "language_model"}
    [found] = site.post("score", lines).json()["scores"]
    assert found["tokens"] == 4


def test_attention_is_that_of_the_run_bit_for_bit(site, loaded):
    found = site.post("attention", {"text": "a b c", "target": "c d"}).json()
    own = loaded["translation"].attention("a b c", "c d")
    assert found["written"] == ["▁c", "▁d", "</s>"]
    assert found["notes"] == []
    for kind, weights in own.weights.items():
        array = found["frames"][0]["weights"][kind]
        numbers = np.frombuffer(base64.b64decode(array["float32"]), "<f4")
        np.testing.assert_array_equal(numbers.reshape(array["shape"]), weights)
    for run in ("language_model", "classification"):
        assert site.post("attention", {"text": "one", "run": run}).status == 200


LONG = "a " * 40  # tokens, and its end; the translator reads 32
SHORT = "a b"


def test_an_answer_says_how_many_tokens_are_not_read(site, loaded):
    pairs = {"texts": [LONG, SHORT, SHORT], "targets": [SHORT, SHORT, LONG]}
    none = {"source": 0, "target": 0}
    found = site.post("score", pairs).json()
    assert found["unread"] == [{"source": 9, "target": 0}, none, {"source": 0, "target": 9}]
    alone = site.post("score", {"texts": ["a " * 31], "targets": [SHORT]}).json()
    assert alone["unread"] == [none]
    assert alone["scores"][0]["log_prob"] == pytest.approx(found["scores"][0]["log_prob"], abs=1e-4)
    lines = {"texts": ["one red cat"], "run": "language_model"}
    assert site.post("score", lines).json()["unread"] == [none]
    tokenizer = loaded["classification"].trained.predictor.tokenizer
    long = "the plot is superb . " * 4
    [ids] = tokenizer.encode([long])
    assert len(ids) >= 20
    found = site.post("classify", {"texts": ["the plot", long]}).json()
    assert found["unread"] == [0, len(ids) + 1 - 12]  # with begin-of-sentence
    texts = {"texts": [SHORT, LONG]}
    assert site.post("translate", texts).json()["unread"] == [0, 0]  # it is split
    whole = transformer.load(loaded["translation"].folder, {"decode.split_sentences": "never"})
    with serving([Served("whole", whole)]) as running:
        assert running.post("translate", texts).json()["unread"] == [0, 9]


def test_attention_counts_all_tokens_that_are_not_read_or_left_out(site, monkeypatch):
    asked = {"text": LONG, "target": "b " * 50}
    found = site.post("attention", asked).json()
    assert found["unread"] == found["omitted"] == {"source": 9, "target": 19}
    assert found["notes"] == [
        "too long for the model, which does not read the last 9 source tokens and 19 target tokens"
    ]
    monkeypatch.setattr(page, "MAX_CHARACTERS", 20_000)
    found = site.post("attention", asked).json()
    assert found["unread"] == {"source": 9, "target": 19}
    rows, columns = len(found["target"]), len(found["source"])
    assert 1 < columns < 32
    # With </s> and <s>, 41 source tokens and 51 target tokens.
    assert found["omitted"] == {"source": 41 - columns, "target": 51 - rows}
    assert len(found["notes"]) == 2
    assert f"last {32 - columns} source tokens" in found["notes"][1]
    line = site.post("attention", {"text": "the plot " * 9, "run": "classification"}).json()
    assert line["unread"]["source"] > 0
    assert site.post("attention", {"text": SHORT}).json()["notes"] == []


def test_a_translation_may_be_longer_than_a_text(small):
    target = "b " * 150
    assert len(target) > SMALL.characters
    pair = {"text": SHORT, "target": target}
    assert small.post("attention", pair).json()["unread"] == {"source": 0, "target": 150 + 1 - 32}
    lists = {"texts": [SHORT], "targets": [target]}
    assert small.post("score", lists).status == 200
    is_one_line(small.post("score", {**lists, "texts": [target]}), 400, "texts[0] has 300 char")


def test_answers_have_the_fields_of_the_schema(site):
    asked = {
        "translate": {"texts": [SHORT]},
        "score": {"texts": [SHORT], "targets": [SHORT]},
        "attention": {"text": SHORT},
        "generate": {"texts": ["one"]},
        "classify": {"texts": ["the plot"]},
    }
    paths = site.get("/openapi.json").json()["paths"]
    for name, fields in asked.items():
        content = paths[f"/api/{name}"]["post"]["responses"]["200"]["content"]
        described = content["application/json"]["schema"]["properties"]
        found = site.post(name, fields).json()
        shown = {"title", "translation"} & found.keys()  # of the explorer
        assert found.keys() - shown == described.keys(), name


def test_the_python_of_the_guide_runs(site, loaded):
    guide = (ROOT / "docs" / "serving.md").read_text("utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    names = {}
    exec(block.replace(":8000", f":{site.port}"), names)
    own = loaded["translation"].attention("How are you?")
    np.testing.assert_array_equal(names["weights"], own.weights["cross"])


def test_a_translation_does_not_depend_on_what_it_is_batched_with(runs, loaded):
    [work] = [run.works["translate"] for run in runs if run.name == "translation"]
    folder = loaded["translation"].folder
    texts = [pair.source for pair in held_out.read_pairs(folder, "test")] + ["a", "b a"]
    by_group = {}
    for text in texts:
        [item] = work.plan({"texts": [text]}).items
        by_group.setdefault(item.group, []).append(item.payload)
    assert sum(map(len, by_group.values())) == len(texts)

    def read(results):
        return [[(each.text, each.tokens) for each in best] for best in results]

    for group, members in by_group.items():
        members = members[: work.most]
        alone = [result for text in members for result in work.compute(group, [text])]
        together = (members * ROWS)[: work.most]
        mixed = work.compute(group, together)
        assert read(mixed) == (read(alone) * ROWS)[: work.most]
        turned = work.compute(group, together[::-1])
        assert turned[::-1] == mixed  # with their scores: batches of one size have equal bits
        scores = [[each.score for each in best] for best in mixed[: len(members)]]
        for own, other in zip(alone, scores, strict=True):
            assert [each.score for each in own] == pytest.approx(other, abs=1e-4)
    assert len({str(best) for best in read(alone)}) > 1  # the control: they are not all one


def test_requests_that_wait_together_are_one_batch_and_have_their_own_answers(
    site, loaded, monkeypatch
):
    texts = ["a b", "c", "d e f", "g", "h a"]
    alone = loaded["translation"].translate(texts)
    with gated(monkeypatch) as (gate, batches), ThreadPoolExecutor(8) as pool:
        first = pool.submit(site.post, "translate", {"texts": ["a"]})
        wait_until(lambda: batches == [["a"]])
        others = []
        for number, text in enumerate(texts, 1):
            others.append(pool.submit(site.post, "translate", {"texts": [text]}))
            wait_until(lambda number=number: len(planned(site)) == number)
        assert site.get("/api/runs").status == 200  # the event loop does not wait for the model
        gate.set()
        found = [each.result().json()["translations"][0][0]["text"] for each in others]
        assert first.result().status == 200
    assert found == alone
    assert batches == [["a"], texts]


# -- the server


def test_health_runs_metrics_and_schema_are_answered(site, runs):
    wait_until(lambda: site.get("/health").status == 200)
    assert site.get("/health").json()["status"] == "ready"
    described = site.get("/api/runs").json()
    assert [run["name"] for run in described["runs"]] == [run.name for run in runs]
    assert described["runs"][0]["operations"] == ["translate", "score", "attention"]
    assert described["limits"]["characters"] == 5_000
    site.post("translate", {"texts": ["a b c"]})
    text = site.get("/metrics").body.decode()
    [counted] = re.findall(r'requests_total\{route="/api/translate",status="200"\} (\S+)', text)
    assert float(counted) >= 1
    for name in ("request_seconds_bucket", "batch_texts_bucket", "queue_requests 0.0"):
        assert f"transformer_{name}" in text
    schema = site.get("/openapi.json").json()
    assert {f"/api/{name}" for name in FIELDS} < schema["paths"].keys()
    body = schema["paths"]["/api/translate"]["post"]["requestBody"]["content"]
    assert body["application/json"]["schema"]["required"] == ["texts"]


def test_it_is_ready_once_the_programs_of_common_lengths_are_compiled(runs):
    calls = []
    programs = Programs(runs[:1], calls.append)
    assert programs.state() == {"status": "starting", "compiled": 0, "programs": len(calls)}
    for call in calls:
        call()
    assert programs.state() == {"status": "ready", "compiled": len(calls), "programs": len(calls)}


def test_programs_that_were_compiled_ahead_are_those_of_requests(runs, loaded):
    run = transformer.load(loaded["translation"].folder)
    work = Translate("own", run)
    for program in work.programs():
        program.compile()
    search = run.trained.predictor._search
    counts = [each._cache_size() for each in (search._start, search._go_on, search._grow)]
    for texts in (["a"], ["a b"] * work.most, ["a b c d e f g h " * 3]):
        [*items] = work.plan({"texts": texts}).items
        work.compute(items[0].group, [item.payload for item in items])
    assert [each._cache_size() for each in (search._start, search._go_on, search._grow)] == counts
    work.run.trained.predictor.translate(work.variables, ["a", "b", "c"] * 2, rows=3)
    assert search._start._cache_size() > counts[0]  # the control


def test_the_page_runs_only_its_own_scripts(site):
    answer = site.get("/")
    text, allowed = answer.body.decode(), answer.headers["content-security-policy"]
    assert allowed == policy(text)
    assert "unsafe" not in allowed
    assert allowed.count("'sha256-") == text.count("<script>") + text.count("<style>")
    assert not re.search(r'\son\w+="|\sstyle="|(src|href)="', text)
    assert "http://" not in re.sub(r'"http://www\.w3\.org/2000/svg"', "", text)
    assert policy(text.replace("use strict", "use  strict")) != allowed  # the control
    assert answer.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in answer.headers


def test_names_of_runs_are_escaped_in_the_page(loaded):
    name = "</script><b>&'\""
    with serving([Served(name, loaded["classification"])]) as running:
        text = running.get("/").body.decode()
        assert running.get("/api/runs").json()["runs"][0]["name"] == name
    assert "<b>" not in text.replace("<b>Joining", "").replace("<b>Leaving", "").replace(
        "<b>Colours", ""
    ).replace("<b>Weights", "").replace("<b>In the", "")


# -- bad requests

SINGLE = json.dumps({"texts": ["a"]}).encode()
DEEP = b"[" * 3_000
MISTAKES = {
    "no JSON": (b'{"texts": [', 400, "not JSON"),
    "not UTF-8": (b'{"texts": ["\xff"]}', 400, "not JSON"),
    "deeply nested": (DEEP, 400, "not JSON"),
    "not a number": (b'{"texts": NaN}', 400, "NaN is not a number"),
    "many digits": (b'{"num_best": ' + b"9" * 3_900 + b"}", 400, ""),
    "no object": (b'["a"]', 400, "is a list: send an object with texts"),
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
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"{own}.evil.example", ""):
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


# -- many, slow and vanished clients


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
        gone.close()
        wait_until(lambda: small.batcher.waiting == 0)
        gate.set()
        assert first.result().status == 200
    assert batches == [["a"]]
    wait_until(lambda: b'status="499"' in small.get("/metrics").body)


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
