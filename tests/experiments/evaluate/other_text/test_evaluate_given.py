"""Scores of a run on another text than its own."""

import json
from pathlib import Path

import pytest
from given_texts import evaluated, given, held_out, written

from tiny_run import content, refused


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


@pytest.mark.parametrize("task", ["translation", "language_model", "classification"])
def test_the_own_test_set_as_a_file_has_the_run_s_own_scores(task, folders, tmp_path):
    folder = folders[task]
    before = without_evaluations(folder)
    results = evaluated(folder, "own", *own_test_set(folder, tmp_path, task))
    assert without_evaluations(folder) == before
    own, given = json.loads(before["results.json"]), results["test"]
    own["test"].pop("seconds"), given.pop("seconds")
    assert given == own["test"]
    assert "validation" not in results
    for name in ("step", "averaged_steps", "parameters", "flops_per_token"):
        assert results[name] == own[name]
    after = content(folder)
    texts = [name for name in before if Path(name).stem.split(".")[0] == "test"]
    texts = [name for name in texts if not name.startswith("held_out/")]
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
    for name in ("..", "a/b", ""):  # which would leave the folder
        refused(*folder, f"--input={file}", f"--name={name}", says="--name=")
