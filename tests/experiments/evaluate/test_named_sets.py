"""The test sets that sacreBLEU knows by name."""

import json

import pytest
from sacrebleu.dataset import DATASETS

from experiments.evaluate.other_text import fetch_named_set
from source_settings import refused
from tiny_run import command

SET = "sacrebleu:wmt14/full,en-de"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder as sacreBLEU keeps a set, of two sentences."""
    for field, lines in (("src", "a b\nb c\n"), ("ref", "a b\nb b\n")):
        (tmp_path / "wmt14/full").mkdir(parents=True, exist_ok=True)
        (tmp_path / "wmt14/full" / f"wmt14_full.en-de.{field}").write_text(lines)
    for field in ("docid", "genre", "origlang"):
        (tmp_path / "wmt14/full" / f"wmt14_full.en-de.{field}").write_text("x\nx\n")
    monkeypatch.setattr(DATASETS["wmt14/full"], "_outdir", str(tmp_path / "wmt14/full"))
    return tmp_path


@pytest.mark.full
def test_a_named_set_is_scored_as_its_files(cache, copy):
    ended = command("--mode=evaluate", f"--workdir={copy}", f"--input={SET}")
    assert ended.code == 0, ended.err
    place = copy / "evaluations" / "wmt14_full.en-de"
    results = json.loads((place / "results.json").read_text())
    assert results["test"]["sentences"] == 2
    assert (place / "translations/test.reference.txt").read_text() == "a b\nb b\n"


def test_without_a_network_one_line_says_how_to_give_the_files(monkeypatch):
    def fail(languages):
        raise SystemExit(1)

    monkeypatch.setattr(DATASETS["wmt14/full"], "get_source_file", fail)
    with refused("sacrebleu -t wmt14/full -l en-de --echo src"):
        fetch_named_set(SET)
