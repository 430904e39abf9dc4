"""Perturbed copies of a test set: what they change, and what their scores are divided by."""

import json

import pytest

from tiny_run import command
from transformer.data.held_out import is_split
from transformer.data.pairs import Pair
from transformer.data.words import Words
from transformer.metrics.text import corpus_scores
from transformer.tasks.pair_scores import TEST_TYPO_RATE, perturb, score_copies

pytestmark = pytest.mark.full

NAMES = ("capitals", "title", "typos", "punctuation", "joined", "copied")
PAIRS = [
    Pair(f"<2de> The green house number {i} of {{name}} stands.", f"Das grüne Haus {i} steht.")
    for i in range(41)
]
SYMBOLS = ("<2de>", "{name}")


def test_a_copy_changes_what_its_name_says_and_no_symbol():
    copies = perturb(PAIRS, Words(symbols=SYMBOLS))
    assert [*copies] == [f"test.{name}" for name in NAMES]
    first = {name: copies[f"test.{name}"][0] for name in NAMES}
    assert first["capitals"].source == "<2de> THE GREEN HOUSE NUMBER 0 OF {name} STANDS."
    assert first["capitals"].target == "DAS GRÜNE HAUS 0 STEHT."
    assert first["title"].source == "<2de> The Green House Number 0 Of {name} Stands."
    assert first["joined"].target == "Das grüne Haus 0 steht. Das grüne Haus 1 steht."
    assert first["joined"].source.count("<2de>") == 1
    assert [len(copies[f"test.{name}"]) for name in NAMES] == [41] * 4 + [21, 41]
    for copy in copies.values():
        assert all(pair.source.startswith("<2de> ") and "{name}" in pair.source for pair in copy)


def test_a_word_in_twenty_has_a_typing_error_and_targets_have_none():
    pairs = [Pair("several women carry yellow baskets", "fünf Wörter")] * 2000
    typos = perturb(pairs, Words())["test.typos"]
    wrong = sum(
        a != b
        for new, old in zip(typos, pairs, strict=True)
        for a, b in zip(new.source.split(), old.source.split(), strict=True)
    )
    assert wrong / (5 * len(pairs)) == pytest.approx(TEST_TYPO_RATE, rel=0.15)
    assert all(new.target == old.target for new, old in zip(typos, pairs, strict=True))


def test_sources_without_case_have_no_copies_in_another_case():
    copies = perturb([Pair("我们今天去学校。", "We go to school today.")] * 4, Words())
    assert "test.joined" in copies
    assert not {"test.capitals", "test.title"} & {*copies}


def scored(split: str, translations: list[str], pairs: list[Pair], clean: list[str]) -> dict:
    texts = {"texts": {f"translations/{split}.txt": translations}}
    before = [Pair("s", "the old man sleeps in the house")] * len(clean)
    return score_copies({split: pairs}, before, clean, lambda *_: dict(texts), text_scores)[split]


def text_scores(texts: list[str], pairs: list[Pair], final: bool) -> dict:
    return corpus_scores(texts, [pair.target for pair in pairs])


def test_the_ratio_divides_by_the_score_of_the_same_sentences_in_the_same_case():
    right, half = "the old man sleeps in the house", "the old man sleeps at a shop"
    pairs = [Pair("S", right.upper())] * 3
    assert scored("test.capitals", [right] * 3, pairs, [right] * 3)["clean_ratio"] == 1
    assert scored("test.joined", [right] * 3, pairs, [right] * 3)["clean_ratio"] < 0.1
    ratio = scored("test.capitals", [half.upper()] * 3, pairs, [half] * 3)["clean_ratio"]
    assert ratio == 1  # both are as wrong
    assert scored("test.capitals", [half] * 3, pairs, [right] * 3)["clean_ratio"] < 0.6
    assert "clean_ratio" not in scored("test.capitals", [half] * 3, pairs, ["x"] * 3)


def test_a_run_scores_its_copies_and_evaluate_those_of_another_text(copy, tmp_path):
    flag, mode = "--config.evaluate.perturbed_sentences=4", "--mode=evaluate"
    ended = command(mode, f"--workdir={copy}", flag)
    assert ended.code == 0, ended.err
    place = copy / "evaluations/perturbed_sentences=4"
    results = json.loads((place / "results.json").read_text())
    copies = {name: own for name, own in results.items() if name.startswith("test.")}
    assert {*copies} >= {"test.capitals", "test.title", "test.joined", "test.copied"}
    assert all(map(is_split, copies))
    assert all({"bleu", "chrf", "loss", "seconds"} <= {*own} for own in copies.values())
    assert copies["test.capitals"]["sentences"] == 4  # of 7, every second
    assert copies["test.joined"]["sentences"] == 2
    assert "test.capitals" in ended.out
    assert "perturbed_sentences" in ended.out
    sources = (copy / "translations/test.source.txt").read_text().splitlines()
    lines = (place / "translations/test.capitals.source.txt").read_text().splitlines()
    assert lines == [source.upper() for source in sources[::2]]
    rows = tmp_path / "other.tsv"
    rows.write_text("a b\ta b\nc d\tc d\n")
    assert command(mode, f"--workdir={copy}", flag, f"--input={rows}").code == 0
    other = copy / "evaluations/other,perturbed_sentences=4/results.json"
    assert json.loads(other.read_text())["test.capitals"]["sentences"] == 2
