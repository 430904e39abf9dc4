"""Word links are the same in the shell, in Python and over HTTP, and counted in the raw text."""

import json

import numpy as np
import pytest
from serving import serving

import transformer
from experiments.serve.routes import Served
from tiny_run import command, refused, shared_run
from transformer.data.pairs import Pair
from transformer.inference import inspection
from transformer.inference.inspection import Inspector
from transformer.operations import Operation

TEXTS = ["a b c", "", "b a", "d e f g h", "a b\n\nc d"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return transformer.load(shared_run(tmp_path_factory).copy(tmp_path_factory.mktemp("a") / "run"))


def shell(run, *flags, stdin=b""):
    return command("--mode=translate", f"--workdir={run.folder}", *flags, stdin=stdin)


def test_shell_python_and_http_give_the_same_links(run, monkeypatch):
    monkeypatch.setattr(Operation, "programs", lambda self, rows: iter(()))  # compiles no others
    answers = run.align(TEXTS)
    assert [each.text for each in answers] == run.translate(TEXTS)
    stdin = "".join(f"{text}\n" for text in TEXTS[:-1]).encode()
    rows = [f"{x.text}\t{' '.join(f'{i}-{j}' for i, j in x.links)}" for x in answers[:-1]]
    assert shell(run, "--alignments", stdin=stdin).out.splitlines() == rows
    with serving([Served("run", run)]) as site:
        best = site.post("translate", {"texts": TEXTS, "alignments": True}).json()["translations"]
        plain = site.post("translate", {"texts": TEXTS}).json()["translations"]
    assert [row[0].pop("links") for row in best] == [[[*x] for x in each.links] for each in answers]
    assert best == plain
    refused("--mode=translate", f"--workdir={run.folder}", "--format=odt", says="--format=odt")


def test_segments_are_aligned_alone_and_shifted(run):
    first, second, both = run.align(["a b", "c d", "a b\n\nc d"])
    shifted = [(i + 2, j + len(first.text.split())) for i, j in second.links]
    assert both.links == [*first.links, *shifted]


def test_links_are_of_the_last_layers_mean_or_of_all_high_weights_of_the_guided_head():
    weights = np.zeros((2, 3, 2, 3))  # layers, heads, target words, source words
    weights[0, 2] = [[0.5, 0.2, 0.1], [0.0, 0.0, 0.0]]  # 0.2 is 0.4 of the highest weight
    weights[0, 1] = [[0.0, 0.7, 0.0], [0.0, 0.1, 0.6]]
    weights[1, 0], weights[1, 1] = [[0.0, 0.5, 0.4], [0.1, 0.0, 0.0]], [[0.6, 0, 0], [0, 0, 0.2]]
    train = transformer.load("quickstart").config.train.copy_and_resolve_references().unlock()
    for settings, right in (
        ({}, [[1, 0, 0], [0, 0, 1]]),  # the mean of the last layer: 0.2, 0.17, 0.13
        ({"guided_alignment": 0.05, "guided_layer": 1, "guided_head": 3}, [[1, 1, 0], [0, 0, 0]]),
        ({"guided_layer": 1, "guided_head": 0}, [[1, 1, 0], [0, 0, 1]]),  # the mean of layer 1
        ({"guided_layer": 0}, [[1, 1, 1], [1, 0, 1]]),  # 0 is the last layer
    ):
        train.update(settings)
        np.testing.assert_array_equal(inspection.trained_links(train, weights), right)


def test_words_of_a_copied_string_share_its_placeholder(run, monkeypatch):
    read = Pair("a <copy:0> b", "<copy:0> c")  # of "a New York b" and "New York c"
    monkeypatch.setattr(run.trained.predictor, "read_pairs", lambda pairs: [read])
    monkeypatch.setattr(
        Inspector,
        "cross_attention",
        lambda self, *_: iter([(0, np.eye(4)[[1, 2, 3], :][None, None])]),
    )
    for name, starts in ("source", [0, 2, 11]), ("target", [0, 9]):
        tokenizer = getattr(run.trained.predictor, f"{name}_tokenizer")
        monkeypatch.setattr(tokenizer, "starts", lambda texts, starts=starts: [starts])
    pair = Pair("a New York b", "New York c")
    model = run.trained.predictor, run.trained.variables
    [weights] = inspection.attended_words(*model, [pair])
    right = [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]  # target words, source words
    np.testing.assert_array_equal(weights[0, 0, 0], right)


def test_tags_of_html_lines_and_of_a_page_follow_the_same_links(run, tmp_path):
    (tmp_path / "in").write_text("a <b>b c</b><br>\n<i>d</i> e\n")
    flags = "--format=html", f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}"
    assert "where tags stand is a guess" in shell(run, *flags).err
    lines = (tmp_path / "out").read_text().splitlines()
    assert [line.count(tag) for line, tag in zip(lines, ("<b>", "<i>"), strict=True)] == [1, 1]
    assert lines[0].endswith("<br>")
    fields = {"source": "xx", "target": "yy", "q": "a <b>b c</b><br>", "format": "html"}
    with serving([Served("run", run)]) as site:
        kind = {"Content-Type": "application/json"}
        answer = site.ask("POST", "/translate", json.dumps(fields).encode(), kind)
        assert answer.json()["translatedText"] == lines[0]
