"""Scores of a run on another text than its own."""

import json
from pathlib import Path

import pytest
from given_texts import content, evaluated, given, held_out, written

from tiny_run import refused


def without_evaluations(folder: Path) -> dict[str, bytes]:
    return {k: v for k, v in content(folder).items() if not k.startswith("evaluations/")}


# -- the run's own test set as another text


def own_test_set(folder: Path, place: Path, task: str) -> tuple[str, ...]:
    """Flags that name the test set of a run, as files."""
    items = held_out(folder)
    if task == "translation":
        sides = [[item[side] for item in items] for side in ("source", "target")]
        source, target = written(place / "own.en", sides[0]), written(place / "own.de", sides[1])
        return f"--input={source}", f"--references={target}"
    if task == "language_model":
        return (f"--input={written(place / 'own.txt', [item['text'] for item in items])}",)
    rows = ["label\ttext", *(f"{item['label']}\t{item['text']}" for item in items)]
    return (f"--input={written(place / 'own.tsv', rows)}",)


LOSSES = {
    *("nll", "nll_ci", "loss_ci", "perplexity", "perplexity_ci", "perplexity_signature"),
    *("bits_per_byte", "bits_per_byte_ci", "bits_per_byte_signature"),
}


@pytest.mark.parametrize("task", ["translation", "language_model", "classification"])
def test_the_own_test_set_as_a_file_has_the_run_s_own_scores(task, folders, tmp_path):
    folder = folders[task]
    before = without_evaluations(folder)
    results = evaluated(folder, "own", *own_test_set(folder, tmp_path, task))
    assert without_evaluations(folder) == before
    own, given = json.loads(before["results.json"]), results["test"]
    own["test"].pop("seconds"), given.pop("seconds")
    assert given == own["test"]
    # The three rows of the language model are too few for intervals.
    is_short = task == "language_model"
    expected = {name for name in LOSSES if not (is_short and name.endswith("_ci"))}
    assert task == "classification" or {*given} >= expected
    assert "validation" not in results
    for name in ("step", "averaged_steps", "parameters", "flops_per_token"):
        assert results[name] == own[name]
    after = content(folder)
    texts = [name for name in before if Path(name).stem.split(".")[0] == "test"]
    texts = [name for name in texts if not name.startswith("held_out/")]
    assert texts
    assert {f"evaluations/own/{name}" for name in (*texts, "results.json", "scores.npz")} == {
        name for name in after if name.startswith("evaluations/own/")
    }
    for name in texts:
        assert after[f"evaluations/own/{name}"] == before[name]


def test_two_files_and_one_of_rows_are_the_same_text(translator, tmp_path):
    files = own_test_set(translator, tmp_path, "translation")
    rows = [f"{item['source']}\t{item['target']}\tnobody" for item in held_out(translator)]
    two = evaluated(translator, "own", *files)
    one = evaluated(translator, "rows", given(tmp_path / "rows.tsv", *rows))
    fields = [f"--config.data.{side}_field={side}" for side in ("source", "target")]
    lines = given(tmp_path / "lines.jsonl", *map(json.dumps, held_out(translator)))
    named = evaluated(translator, "lines", lines, *fields)
    assert len({results["input"]["digest"] for results in (one, two, named)}) == 1
    assert one["test"]["bleu"] == two["test"]["bleu"]


def test_a_translation_and_its_score_do_not_depend_on_the_other_sentences(translator, tmp_path):
    rows = [f"{item['source']}\t{item['target']}" for item in held_out(translator)]
    losses, texts, scores = [], [], []
    back, batches = slice(None, None, -1), ["--config.decode.batch_size=3"]
    for name, order, flags in (("there", slice(None), ()), ("back,batch_size=3", back, batches)):
        file = given(tmp_path / f"{name.partition(',')[0]}.tsv", *rows[order])
        results = evaluated(translator, name, file, *flags)
        assert results["settings"] == ({"decode.batch_size": 3} if flags else {})
        losses.append(results["test"]["loss"])
        lines = translator / "evaluations" / name / "translations"
        texts.append((lines / "test.txt").read_text().splitlines()[order])
        columns = (lines / "test.scores.tsv").read_text().splitlines()[order]
        scores.append([float(line.split("\t")[0]) for line in columns])
    assert len(set(texts[0])) > 1  # a control
    assert texts[0] == texts[1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert scores[0] == pytest.approx(scores[1], abs=2e-4)


# -- names


@pytest.mark.full
def test_a_name_keeps_the_scores_of_one_text(translator, tmp_path):
    folder = "--mode=evaluate", f"--workdir={translator}"
    file = written(tmp_path / "set.tsv", ["a b\ta b", "b c\tb c"])
    before = evaluated(translator, "set", f"--input={file}")
    written(file, ["a b\ta b", "b c\tb d"])
    says = "evaluations/set has the scores of another text", "give this one another --name"
    refused(*folder, f"--input={file}", says=says)
    after = evaluated(translator, "other", f"--input={file}", "--name=other")
    assert after["input"]["digest"] != before["input"]["digest"]
    # Nor may the held-out text take it, nor take the name of what it is evaluated with.
    evaluated(translator, "beam_size=1", "--config.decode.beam_size=1")
    says = "has the scores of another text, that the run holds out"
    refused(*folder, f"--input={file}", "--name=beam_size=1", says=says)
    for name in ("..", "a/b", "", "a,b", "a" * 121):  # which would leave the folder
        refused(*folder, f"--input={file}", f"--name={name}", says="--name=")


# -- classifiers
