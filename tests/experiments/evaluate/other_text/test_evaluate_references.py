"""Scores of several references are those of sacreBLEU, in Python too."""

import json

import pytest
import sacrebleu
from given_texts import evaluated, given, held_out, written

from tiny_run import content
from transformer import load
from transformer.errors import UserError

REFERENCES = "x y"  # of every sentence, as a reference that is never right


def test_scores_of_several_references_are_those_of_sacrebleu(translator, tmp_path):
    items = held_out(translator)
    sources, first = ([item[side] for item in items] for side in ("source", "target"))
    found = load(translator).translate(sources)
    lists = [first, [REFERENCES] * len(items), [*found[:3], *first[3:]]]
    files = [written(tmp_path / f"reference{i}", own) for i, own in enumerate(lists)]
    results = evaluated(
        translator,
        "news",
        f"--input={written(tmp_path / 'news.en', sources)}",
        f"--references={','.join(map(str, files))}",
        "--name=news",
    )
    scores = results["test"]
    for name, metric in (("bleu", "BLEU"), ("chrf", "CHRF"), ("ter", "TER")):
        one, several = (
            getattr(sacrebleu, metric)().corpus_score(found, own) for own in ([first], lists)
        )
        assert scores[name] == several.score
        assert scores[name] != one.score  # a control
        assert "nrefs:3|" in scores[f"{name}_signature"]
        assert scores[f"{name}_ci"] >= 0
    matches = sum(map(lambda text, *right: text in right, found, *lists))
    assert scores["exact_match"] == pytest.approx(100 * matches / len(items))
    lines = translator / "evaluations/news/translations"
    for name, own in zip(("", ".1", ".2"), lists, strict=True):
        assert (lines / f"test.reference{name}.txt").read_text().splitlines() == own
    # The loss is of the first alone.
    own = json.loads((translator / "results.json").read_text())["test"]
    assert scores["loss"] == own["loss"]
    assert "|reference:first|" in scores["perplexity_signature"]


def test_python_has_the_same_scores(translator, tmp_path):
    items = held_out(translator)
    sources, first = ([item[side] for item in items] for side in ("source", "target"))
    second = [REFERENCES] * len(items)
    files = [written(tmp_path / f"reference{i}", own) for i, own in enumerate((first, second))]
    flags = given(tmp_path / "python.en", *sources), f"--references={files[0]},{files[1]}"
    expected = evaluated(translator, "python", *flags)["test"]
    expected.pop("seconds")
    run, before = load(translator), content(translator)
    assert run.evaluate(sources, first, second) == expected
    assert run.evaluate(sources, first)["bleu"] == run.results["test"]["bleu"]
    assert content(translator) == before
    with pytest.raises(UserError, match=f"evaluate has {len(items)} texts and "):
        run.evaluate(sources, first, second[1:])
