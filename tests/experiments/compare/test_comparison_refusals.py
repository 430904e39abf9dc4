"""What `--mode=compare` refuses, in one line that names it."""

import json
import shutil

import pytest

from sweeps import classifier, language_model, refuse, sentences, translator
from tiny_run import refused
from transformer.storage import variants
from transformer.storage.files import write_json

REFERENCES = sentences(60)


def test_wrong_systems_are_named(runs, tmp_path):
    one = runs["base_s0"]
    refused("--mode=compare", says=("--runs is missing", "--runs=runs/a,runs/b"))
    refuse(one, says="has fewer than two systems")
    refuse("", says="has fewer than two systems")
    refuse(one, one, says=("is named twice", "base_s0"))
    refuse(one, f"x={runs['good_s0']}+{one}", says="is named twice")
    refuse(one, tmp_path / "nothing", says=("there is no folder", "nothing"))
    (tmp_path / "empty").mkdir()
    ended = refuse(one, tmp_path / "empty", says="has no run")
    assert "--workdir" not in ended.err
    refused(f"--workdir={one}", "--mode=translate", f"--runs={one}", says="--runs is for")


def test_runs_of_different_tasks_are_refused(runs, tmp_path):
    other = classifier(tmp_path, 0, [1])
    says = ("are of different tasks, translation and classification",)
    refuse(runs["base_s0"], other, says=says)


def test_a_sweep_over_more_than_seeds_is_refused(runs, tmp_path):
    for n in (0, 1):
        folder = shutil.copytree(runs[f"good_s{n}"], tmp_path / f"sweep/trials/00{n}")
    config = json.loads((folder / "config.json").read_text())
    config["model"]["num_heads"] = 3
    (folder / "config.json").write_text(json.dumps(config))
    says = ("is not a sweep over seeds alone", "model.num_heads", "trials/000+")
    refuse(runs["base_s0"], tmp_path / "sweep", says=says)


def test_the_first_line_that_differs_is_named(copies):
    path = copies[1] / "translations/test.source.txt"
    lines = path.read_text().splitlines()
    lines[6], lines[9] = "Another line.", "And one more."
    path.write_text("\n".join(lines) + "\n")
    says = ("different test sets", "test.source.txt, line 7", "'Another line.'", "--set")
    refuse(*copies, says=says)


def test_the_first_reference_that_differs_is_named(runs, tmp_path):
    changed = [*REFERENCES[:6], "Another line.", *REFERENCES[7:]]
    other = translator(tmp_path, 0, references=changed)
    name = "translations/test.source.txt"
    shutil.copy(runs["base_s0"] / name, other / name)
    refuse(runs["base_s0"], other, says=("test.reference.txt, line 7", "'Another line.'"))


@pytest.mark.parametrize("name", ["test.txt", "test.source.txt", "test.reference.txt"])
@pytest.mark.parametrize("damage", ["missing", "cut", "bytes"])
def test_missing_or_damaged_translations_are_named(copies, name, damage):
    path = copies[1] / "translations" / name
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    else:
        path.write_bytes(b"\xff\xfe\n")
    refuse(*copies, says=(str(copies[1]), "cannot be read", "--mode=evaluate"))


def test_other_translations_than_the_scored_ones_are_refused(copies):
    path = copies[1] / "translations/test.txt"
    path.write_text(path.read_text().replace("the", "a"))
    refuse(*copies, says=("results.json says BLEU", "--mode=evaluate"))


def test_different_signatures_are_refused(copies):
    path = copies[1] / "results.json"
    path.write_text(path.read_text().replace("case:mixed", "case:lc"))
    refuse(*copies, says=("different signatures of test bleu", "case:mixed", "case:lc"))


def test_unfinished_runs_are_refused(copies):
    results = copies[1] / "results.json"
    (copies[1] / "checkpoints/1300").mkdir(parents=True)
    refuse(*copies, says=("good is not finished", "trained to step 1,300, scored at 1,200"))
    text = results.read_text()
    results.write_text(json.dumps({"validation": json.loads(text)["validation"], "step": 1300}))
    refuse(*copies, says="has no scores of a test set")
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
    path.write_text("nan\t3\ttext\n")
    refuse(first, cut, says="cannot be read")


def test_a_flag_of_runs_or_configs_is_refused(runs):
    systems = runs["base_s0"], runs["good_s0"]
    says = " is not for --mode=compare, which reads --runs, --set, --levels, --output"
    refuse(*systems, workdir=systems[0], says=f"--workdir{says}")
    refuse(*systems, config="configs/quickstart.py", says=f"--config{says}")
    refuse(*systems, says=f"--config.seed{says}", **{"config.seed": 3})


def test_runs_of_other_settings_are_not_joined_as_seeds(runs, copies):
    base, good = copies
    path = good / "config.json"
    config = json.loads(path.read_text())
    config["train"]["label_smoothing"] = 0.3
    path.write_text(json.dumps(config))
    says = "not seeds of one setting", "train.label_smoothing", "join seeds alone by +"
    refuse(f"{base}+{good}", runs["base_s0"], says=says)


def test_runs_of_two_versions_of_a_variant_are_not_joined_as_seeds(runs, copies, monkeypatch):
    monkeypatch.setattr(variants, "SOURCES", {"mine": f"mine.py{variants.MARK}{'0' * 64}"})
    for digit, folder in zip("01", copies, strict=True):
        write_json(folder / "variants.json", {"mine": f"mine.py{variants.MARK}{digit * 64}"})
    says = "not seeds of one setting: they differ in the file of 'mine': join"
    refuse("+".join(map(str, copies)), runs["base_s0"], says=says)
