"""Texts, flags and runs that cannot be evaluated are refused in one line that names them."""

import json
import shutil
from pathlib import Path

import pytest
from given_texts import content, evaluated, given, written

from tiny_run import refused, unsealed


def bad_input(place: Path, name: str, text: str | bytes) -> Path:
    path = place / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


BAD = {
    "other number": (("a", "a\nb\n"), ("b", "a\n"), "b ends after 1 lines, before"),
    "empty": (("a", ""), ("b", ""), "is empty"),
    "one column": (("a.tsv", "a\nb\n"), None, ("no tab in its first line", "--references")),
    "broken row": (("a.tsv", "a\tb\nc\n"), None, ("line 2", "1 column(s)")),
    "not UTF-8": (("a", b"a\xff\n"), ("b", "a\n"), ("line 1", "not UTF-8")),
    "blank source": (("a", "a\n \n"), ("b", "a\nb\n"), "sentence 2 is blank"),
    "blank reference": (("a", "a\nb\n"), ("b", "a\n\n"), "sentence 2, its reference is blank"),
    "rows and references": (("a.jsonl", "{}\n"), ("b", "a\n"), "a.jsonl is a file of rows"),
    "no such field": (("a.jsonl", '{"x": 1}\n'), None, ("no field '0'", "data.source_field")),
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
        (["--input=none.tsv"], "--input=none.tsv is not a file"),
        (["--input=FILE", "--references=none,FILE"], "--references=none is not a file"),
        (["--references=FILE"], ("--references=", "name it with --input")),
        (["--name=x"], ("--name=x is for another text", "--input")),
        (["--input=FILE", "--source_tag=<2de>"], "source_tag=<2de> is for runs with tags"),
        (["--input=FILE", "--config.model.d_model=8"], "another config: model.d_model"),
        (["--input=sacrebleu:wmt14/full"], ("names no languages", "sacrebleu:wmt14/full,en-de")),
        (["--input=sacrebleu:wmt41,en-de"], ("no test set 'wmt41'", "--list")),
        (["--input=sacrebleu:wmt14/full,en-xx"], ("languages of wmt14/full are", "en-de")),
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
    says = "the classifier never saw: 'mixed' of 2 texts", "its classes are 'bad', 'good'"
    run = "--mode=evaluate", f"--workdir={folders['classification']}", f"--input={file}"
    refused(*run, says=says)
    refused(*run, "--references=x", says="--references=x is for config.task=translation")
    written(file, [])
    refused(*run, says="is empty")


def test_a_run_that_is_not_finished_is_not_scored(translator, tmp_path):
    folder = Path(shutil.copytree(translator, tmp_path / "copy"))
    file = given(tmp_path / "unfinished.tsv", "a b\ta b")
    run = "--mode=evaluate", f"--workdir={folder}", file
    results = unsealed(folder / "results.json")
    (folder / "results.json").write_text(json.dumps(results | {"step": 20}))  # trained further
    refused(*run, says=("is not finished", "resume its training"))
    (folder / "results.json").unlink()
    refused(*run, says="is not finished")
    refused(run[0], f"--workdir={tmp_path / 'none'}", file, says="has no run")
    # Checkpoints are not needed.
    (folder / "results.json").write_text(json.dumps(results))
    shutil.rmtree(folder / "checkpoints")
    assert evaluated(folder, "unfinished", file)["step"] == results["step"]
