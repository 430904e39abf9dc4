"""Texts, flags and runs that cannot be evaluated are refused in one line that names them."""

import json
import shutil
from pathlib import Path

import pytest
from given_texts import evaluated, given, written

from tiny_run import content, refused, unsealed


def bad_input(place: Path, name: str, text: str | bytes) -> Path:
    path = place / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


BAD = {
    "empty": (("a", ""), ("b", ""), "is empty"),
    "one column": (("a.tsv", "a\nb\n"), None, ("no tab in its first line", "--references")),
    "blank reference": (("a", "a\nb\n"), ("b", "a\n\n"), "sentence 2, its reference is blank"),
    "rows and references": (("a.jsonl", "{}\n"), ("b", "a\n"), "a.jsonl is a file of rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_scored_is_named_in_one_line(case, translator, tmp_path):
    source, reference, says = BAD[case]
    flags = [f"--input={bad_input(tmp_path, *source)}"]
    flags += [f"--references={bad_input(tmp_path, *reference)}"] if reference else []
    before = content(translator)
    refused("--mode=evaluate", f"--workdir={translator}", *flags, says=says)
    assert content(translator) == before


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--input=FILE", "--references=none,FILE"], "--references=none is not a file"),
        (["--references=FILE"], ("--references=", "name it with --input")),
        (["--input=FILE", "--config.model.d_model=8"], "another config: model.d_model"),
        (["--input=sacrebleu:wmt14/full,en-xx"], ("no such test set", "wmt14/full,en-de")),
        (["--input=sacrebleu:wmt14/full,en-de", "--references=FILE"], "leave out --references"),
    ],
)
def test_flags_that_do_not_fit_are_refused_in_one_line(flags, says, translator, tmp_path):
    file = str(written(tmp_path / "set.tsv", ["a\tb"]))
    flags = [flag.replace("FILE", file) for flag in flags]
    refused("--mode=evaluate", f"--workdir={translator}", *flags, says=says)


def test_flags_of_translators_and_unknown_labels_are_refused_for_classifiers(folders, tmp_path):
    rows = ["label\ttext", "good\tthe plot", "mixed\tthe cast", "mixed\tthe film"]
    file = written(tmp_path / "reviews.tsv", rows)
    says = "the classifier never saw: 'mixed'; its classes are 'bad', 'good'"
    run = "--mode=evaluate", f"--workdir={folders['classification']}", f"--input={file}"
    refused(*run, says=says)
    refused(*run, "--references=x", says="--references=x is for config.task=translation")


@pytest.mark.full
def test_a_run_that_is_not_finished_is_not_scored(translator, tmp_path):
    folder = Path(shutil.copytree(translator, tmp_path / "copy"))
    file = given(tmp_path / "unfinished.tsv", "a b\ta b")
    run = "--mode=evaluate", f"--workdir={folder}", file
    results = unsealed(folder / "results.json")
    (folder / "results.json").write_text(json.dumps(results | {"step": 20}))  # trained further
    refused(*run, says=("is not finished", "resume its training"))
    # Checkpoints are not needed.
    (folder / "results.json").write_text(json.dumps(results))
    shutil.rmtree(folder / "checkpoints")
    assert evaluated(folder, "unfinished", file)["step"] == results["step"]
