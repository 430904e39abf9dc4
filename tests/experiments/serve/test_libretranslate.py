"""LibreTranslate's routes: clients get translations of the run that has their languages."""

import json
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from serving import is_one_line, serving

from configs import directions
from experiments.serve.libretranslate import choose, detect, find_pairs
from experiments.serve.routes import Served
from experiments.serve.schema import BODY
from tiny_run import refused
from transformer.config import default_config
from transformer.errors import UserError
from transformer.inference.hypotheses import Translation
from transformer.operations import Translate

FORM = "application/x-www-form-urlencoded"
ASKED = {"q": "a b c", "source": "xx", "target": "yy"}


def post(site, fields, path="/translate", kind="application/json", **headers):
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return site.ask("POST", path, body, {"Content-Type": kind, **headers})


def fake(name, **data):
    """A run that translates, of which only the config is there."""
    run, config = object.__new__(Served), default_config()
    config.data.update(data)
    run.name, run.routes, run.run = name, {"translate": None}, SimpleNamespace(config=config)
    return run


def upper(self, items, *more, **options):
    return [[Translation(text.upper(), 0.0, 1)] for text, _ in items]


def same_order(*arguments):
    return [[(i, i) for i in range(len(pair.source.split()))] for pair in arguments[-1]]


def test_a_runs_pairs_are_those_of_its_files_its_keys_and_its_tags(said):
    files = {"source": "files", "train_source": "a.eng.gz", "train_target": "a.deu.gz"}
    opus = [{"name": name, "source_tag": f">>{name}<<"} for name in ("deu", "fra")]
    for run, pairs in (
        (fake("files", **files), {"en de": None}),
        (fake("src", **files | {"train_source": "a.src"}), {"und de": None}),
        (fake("keys", source="copy", languages=("en", "ceb")), {"en ceb": None}),
        (fake("tags", **directions.get_config().data), {"en de": "<2de>", "de en": "<2en>"}),
        (fake("opus", source="copy", corpora=opus), {"und de": ">>deu<<", "und fr": ">>fra<<"}),
    ):
        assert {" ".join(codes): tag for codes, (_, tag) in find_pairs([run]).items()} == pairs
    assert [line.partition(":")[0] for line in said] == ["src", "opus"]


def test_a_run_of_unknown_languages_has_what_no_other_run_has_and_a_text_one_that_is_served():
    runs = [fake("unknown", source="copy"), *(fake(n, source="grammar") for n in ("a", "b"))]
    pairs = find_pairs(runs)
    assert choose(pairs, "en-US", "DE") == (runs[1], None)
    assert choose(pairs, "fr", "de") == choose(pairs, "de", "de") == (runs[0], None)
    pairs = find_pairs(runs[1:])
    assert choose(pairs, "de", "de") == (None, None)  # the text is its own translation
    with pytest.raises(UserError, match=r'\["de", "xx"\]: choose one of en to de'):
        choose(pairs, "de", "xx")
    german = ["Wir schlafen."]  # py3langid: 0.6718 de, 0.2209 lb, 0.0048 en
    for sources, *right in ("en de", 99.3, "de"), ("en", 100, "en"), ("und", 67.2, "de"):
        assert list(detect(german, sources.split()).values()) == right


def test_json_forms_and_queries_get_the_translations_of_the_run(site, loaded):
    best = [each.text for each in loaded["translation"].translate(["a b c"], num_best=4)[0]]
    fields = {**ASKED, "alternatives": "2", "api_key": "x", "format": ""}
    query = urlencode(fields)
    head = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    parts = "".join(map(head.format, fields, fields.values())) + "--x--\r\n"
    for answer in (
        post(site, fields),
        post(site, query.encode(), kind=FORM),
        post(site, parts.encode(), kind="multipart/form-data; boundary=x"),
        site.ask("POST", f"/translate?{query}"),  # deep-translator posts no body
    ):
        assert answer.json() == {"translatedText": best[0], "alternatives": best[1:3]}
    both = {**ASKED, "q": ["a b c", " "], "source": "auto", "alternatives": 99}
    right = {"translatedText": [best[0], " "], "alternatives": [best[1:], []]}
    detected = post(site, {"q": "a b c"}, "/detect").json() * 2
    assert post(site, both).json() == right | {"detectedLanguage": detected}
    assert b'route="/translate",status="200"' in site.get("/metrics").body
    unknown = {"code": "und", "name": "Undetermined", "targets": ["und"]}
    assert site.get("/languages").json() == [unknown]


def test_the_text_between_tags_is_translated_and_the_tags_stay(site, monkeypatch):
    monkeypatch.setattr(Translate, "compute", upper)
    monkeypatch.setattr("transformer.operations.align_words", same_order)
    page = '<p id="a>b">a &lt;\n b <b>c</b>&nbsp;<!-- d --></p><script>e</script>'
    right = '<p id="a>b">A &lt; B <b>C</b>&nbsp;<!-- d --></p><script>e</script>'
    assert post(site, {**ASKED, "q": page, "format": "html"}).json() == {"translatedText": right}
    assert post(site, {**ASKED, "q": "<b>a"}).json() == {"translatedText": "<B>A"}


def test_a_document_is_translated_and_can_be_fetched(site, monkeypatch):
    monkeypatch.setattr(Translate, "compute", upper)
    head = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    cue = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
    form = "".join(head.format(name, ASKED[name]) for name in ("source", "target"))

    def send(name, text):
        file = head.replace('"{}"', f'"file"; filename="{name}"').format(text)
        kind = "multipart/form-data; boundary=x"
        return post(site, f"{form}{file}--x--\r\n".encode(), "/translate_file", kind)

    address = send("/a/film.srt", cue.format("a b")).json()["translatedFileUrl"]
    found = site.get(address.partition(str(site.port))[2])
    assert found.body.decode() == cue.format("A B")
    assert found.headers["content-disposition"].endswith("film.und.srt")
    is_one_line(send("film.exe", "a"), 400, "film.exe is not a document")
    is_one_line(send("film.vtt", "a"), 400, "film.vtt has no first line WEBVTT")
    assert ".srt" in site.get("/frontend/settings").json()["supportedFilesFormat"]


def test_the_tag_of_the_target_language_reaches_the_run(runs, monkeypatch):
    pairs = {("und", "de"): (runs[0], "<2de>")}
    monkeypatch.setattr("experiments.serve.server.find_pairs", lambda runs: pairs)
    with serving(runs[:1]) as site:
        is_one_line(post(site, ASKED | {"target": "de"}), 400, "source_tag=<2de> is for")


def test_a_mistake_is_one_line(site):
    is_one_line(post(site, {"q": "a", "source": "xx"}), 400, "target: Field required")
    is_one_line(post(site, {**ASKED, "q": ["a" * 5_001]}), 400, "q[0]: String should have at most")
    is_one_line(post(site, b"{"), 400, "the body is not a JSON object (EOF")
    is_one_line(post(site, b"q=" + b"a" * BODY, kind=FORM), 413, "1,048,576 bytes")


def test_only_allowed_sites_can_use_the_routes_and_none_the_others(site, runs, loaded):
    good, evil = {"Origin": "https://good.example"}, {"Origin": "https://evil.example"}
    asks, header = good | {"Access-Control-Request-Method": "POST"}, "access-control-allow-origin"
    is_one_line(post(site, b"q=a", "/detect", FORM, **good), 403, "another site")
    for origin, status in (good["Origin"], 403), ("*", 200):
        with serving(runs[:1], origins=[origin]) as shared:
            assert shared.ask("OPTIONS", "/detect", headers=asks).headers[header] == origin
            assert post(shared, b"q=a", "/detect", FORM, **good).headers[header] == origin
            assert post(shared, b"q=a", "/detect", FORM, **evil).status == status
            assert header not in shared.ask("GET", "/api/runs", headers=good).headers
            is_one_line(post(shared, {"texts": ["a"]}, "/api/translate", **good), 403, "another")
    flags = f"--workdir={loaded['translation'].folder}", "--mode=serve", "--cors=good.example"
    refused(*flags, says="--cors=good.example is not an origin: give https://")
