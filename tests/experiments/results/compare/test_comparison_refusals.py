"""What `--mode=compare` refuses, in one line that names it."""

import json

from sweeps import classifier, language_model, refuse
from tiny_run import refused
from transformer.runs.run import SCORES


def test_wrong_systems_are_named(runs, tmp_path):
    one = runs["base_s0"]
    refused("--mode=compare", says=("--runs is missing", "--runs=runs/a,runs/b"))
    refuse(one, says="has fewer than two systems")
    refuse(one, f"x={runs['good_s0']}+{one}", says="is named twice")
    refuse(one, classifier(tmp_path, 0, [1]), says="test.source.txt cannot be read")
    refuse(one, tmp_path / "nothing", says="nothing is not a folder")
    (tmp_path / "empty").mkdir()
    refuse(one, tmp_path / "empty", says="has no run")


def test_the_first_line_that_differs_is_named(copies):
    path = copies[1] / "translations/test.source.txt"
    lines = path.read_text().splitlines()
    lines[6], lines[9] = "Another line.", "And one more."
    path.write_text("\n".join(lines) + "\n")
    says = ("different test sets", "test.source.txt, line 7", "--set")
    refuse(*copies, says=says)


def test_unfinished_runs_are_refused(copies):
    results = copies[1] / "results.json"
    (copies[1] / "checkpoints/1300").mkdir(parents=True)
    refuse(*copies, says=("is of step 1,200", "trained to step 1,300"))
    results.write_text("{")
    refuse(*copies, says=("results.json cannot be read", "--mode=evaluate"))
    results.unlink()
    refuse(*copies, says="good is not finished (no results.json)")


def test_language_models_of_other_segments_or_signatures_are_refused(tmp_path):
    first, other, cut = (language_model(tmp_path, n, 2.0) for n in range(3))
    path = other / "results.json"
    path.write_text(path.read_text().replace('"context:8"', '"context:9"'))
    refuse(first, other, says="different signatures of test bits_per_byte")
    path = cut / "likelihoods/test.tsv"
    lines = path.read_text().splitlines()
    lines[3] += " and more"
    path.write_text("\n".join(lines) + "\n")
    refuse(first, cut, says=("test.tsv, line 4", "segments of the same text"))


def test_files_that_are_missing_or_damaged_are_named(copies):
    path = copies[1] / SCORES
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    refuse(*copies, says=(f"{path} is not what was written", "--mode=evaluate"))
    path.unlink()
    refuse(*copies, says=(f"{path} cannot be read", "No such file", "--mode=evaluate"))
    path.write_bytes(content)
    source = copies[0] / "translations/test.source.txt"
    source.write_bytes(b"\xff\xfe\n")
    refuse(*copies, says=(f"{source} cannot be read", "--mode=evaluate"))


def test_runs_of_other_settings_are_not_joined_as_seeds(runs, copies, tmp_path):
    path = copies[1] / "config.json"
    config = json.loads(path.read_text())
    config["train"]["label_smoothing"] = 0.3
    path.write_text(json.dumps(config))
    says = "not seeds of one setting", "train.label_smoothing", "join seeds alone by +"
    refuse("+".join(map(str, copies)), runs["base_s0"], says=says)
    (tmp_path / "sweep/trials").mkdir(parents=True)
    for number, folder in enumerate(copies):
        folder.rename(tmp_path / f"sweep/trials/{number:03d}")
    says = ("is not a sweep over seeds alone", "train.label_smoothing", "trials/000+")
    refuse(runs["base_s0"], tmp_path / "sweep", says=says)
