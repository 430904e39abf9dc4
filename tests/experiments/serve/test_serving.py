"""The page and the API of runs: answers are those of the runs."""

import base64
import re

import numpy as np
import pytest
from serving import is_one_line, serving, wait_until

import transformer
from experiments.serve.routes import Served
from experiments.serve.schema import API, CHARACTERS
from places import ROOT
from runs import count_programs

# -- answers


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


def plain(value):
    """A result as JSON has it: named tuples as objects."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def test_probabilities_and_the_beam_are_those_of_the_run(site, loaded):
    own, texts = loaded["translation"], {"texts": ["a b c"], "targets": ["c d"]}
    both = {"text": "a b c", "target": "c d", "position": 1, "temperature": 2.0}
    answers = {
        "next_tokens": (texts, plain(own.next_tokens(["a b c"], ["c d"]))),
        "alternatives": (both, plain(own.alternatives("a b c", "c d", 1, temperature=2.0))),
        "steps": ({"text": "a b c", "prefix": "d"}, plain(own.beam("a b c", "d"))),
    }
    for name, (asked, right) in answers.items():
        assert site.post(name.replace("steps", "beam"), asked).json()[name] == right
    layers = site.post("lens", {"text": "a b c", "target": "c d", "num_best": 2}).json()["lens"]
    best = {stack: each.best.tolist() for stack, each in own.lens("a b c", "c d", 2).items()}
    assert {stack: each["best"] for stack, each in layers.items()} == best
    whole = site.post("translate", {"texts": ["a b c"], "prefixes": ["d"]}).json()
    assert [best.text for best in own.translate(["a b c"], 1, prefix=["d"])[0]] == [
        each["text"] for each in whole["translations"][0]
    ]
    lm = {"texts": ["one red"], "run": "language_model"}
    right = plain(loaded["language_model"].next_tokens(["one red"]))
    assert site.post("next_tokens", lm).json()["next_tokens"] == right
    is_one_line(site.post("beam", {"text": " "}), 400, "the text is blank")
    is_one_line(site.post("alternatives", {**both, "position": 9}), 400, "position=9 is not")


LONG = "a " * 40  # tokens, and its end; the translator reads 32
SHORT = "a b"


@pytest.mark.full
def test_an_answer_says_how_many_tokens_of_a_whole_line_are_not_read(loaded):
    texts = {"texts": [SHORT, LONG]}
    whole = transformer.load(loaded["translation"].folder, {"decode.split_sentences": "never"})
    with serving([Served("whole", whole)]) as running:
        assert running.post("translate", texts).json()["unread"] == [0, 9]


def test_a_translation_may_be_longer_than_a_text(site):
    target = "b " * CHARACTERS
    pair = {"text": SHORT, "target": target}
    assert site.post("attention", pair).json()["unread"]["target"] == CHARACTERS + 1 - 32
    lists = {"texts": [SHORT], "targets": [target]}
    assert site.post("score", lists).status == 200
    is_one_line(site.post("score", {**lists, "texts": [target]}), 400, "texts[0]: String should")


def test_a_classifier_of_texts_needs_texts_and_no_pictures(site):
    is_one_line(site.post("classify", {}), 400, "texts is missing: give it")
    asked = {"texts": ["the plot"], "pictures": ["data:image/png;base64,"]}
    is_one_line(site.post("classify", asked), 400, "pictures is for models of pictures")
    asked = {"text": "the plot", "picture": "", "run": "classification"}
    is_one_line(site.post("attention", asked), 400, "picture is for models of pictures")


@pytest.mark.full
def test_the_python_of_the_guide_runs(site, loaded):
    guide = (ROOT / "docs" / "serving.md").read_text("utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    names = {}
    exec(block.replace(":8000", f":{site.port}"), names)
    own = loaded["translation"].attention("How are you?")
    np.testing.assert_array_equal(names["weights"], own.weights["cross"])


# -- the server


def test_health_runs_metrics_and_schema_are_answered(site, runs):
    wait_until(lambda: site.get("/health").status == 200)
    assert site.get("/health").json()["status"] == "ready"
    described = site.get("/api/runs").json()
    assert [run["name"] for run in described["runs"]] == [run.name for run in runs]
    asked = ["next_tokens", "alternatives", "beam", "lens", "attention", "intervene"]
    assert described["runs"][0]["operations"] == ["translate", "score", "align", *asked]
    sizes = {"body": 2**20, "texts": 64, "characters": 5_000, "tokens": 8_192, "waiting": 256}
    assert described["limits"] == sizes | {"seconds": 30.0}
    site.post("translate", {"texts": ["a b c"]})
    text = site.get("/metrics").body.decode()
    [counted] = re.findall(r'requests_total\{route="/api/translate",status="200"\} (\S+)', text)
    assert float(counted) >= 1
    for name in ("request_seconds_bucket", "batch_texts_bucket", "queue_requests 0.0"):
        assert f"transformer_{name}" in text
    schema = site.get("/openapi.json").json()
    assert {f"/api/{name}" for name in API} < schema["paths"].keys()
    assert schema["components"]["schemas"]["TranslateRequest"]["required"] == ["texts"]
    assert "422" not in schema["paths"]["/api/translate"]["post"]["responses"]


SMALL, TEXTS = {"decode.batch_size": 6}, ["one"] * 8  # a batch that is smaller than ROWS
REQUESTS = {
    "translate": ("translation", {"texts": TEXTS}, SMALL),
    "score": ("translation", {"texts": TEXTS, "targets": TEXTS}, SMALL),
    "score of a text": ("language_model", {"texts": TEXTS}, SMALL),
    "generate": ("language_model", {"texts": TEXTS}, SMALL),
    "generate by beam search": (
        "language_model",
        {"texts": TEXTS},
        {"decode.search": "beam", "decode.beam_size": 2, **SMALL},
    ),
    "classify": ("classification", {"texts": TEXTS}, SMALL),
}


@pytest.mark.full
@pytest.mark.parametrize("name", REQUESTS)
def test_nothing_is_compiled_for_a_request(name, loaded):
    task, fields, settings = REQUESTS[name]
    run = transformer.load(loaded[task].folder, settings)
    route = Served("new", run).routes[name.split()[0]]
    for _, compile_program in route.programs():
        compile_program()
    requests = [{key: texts[:n] for key, texts in fields.items()} for n in (8, 1)]
    if name == "generate":  # the samples that the page asks for
        requests += [{"texts": TEXTS[:1], "num_best": n} for n in (2, 3, route.max_best)]
    for request in requests:
        plan = route.plan(request)
        with count_programs() as programs:
            route.compute(plan.groups[0], plan.items)
        assert programs == []


def test_the_page_loads_nothing_and_no_other_site_may_show_it(site):
    answer = site.get("/")
    text, allowed = answer.body.decode(), answer.headers["content-security-policy"]
    assert allowed.startswith("default-src 'none'; ")
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "http://" not in re.sub(r'"http://www\.w3\.org/2000/svg"', "", text)
    assert answer.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in answer.headers
