"""`--mode=compare` tells how long each system trained until it had a score."""

import json
import math

import pytest

from experiments.compare.training import Course
from sweeps import sentences, translator
from tiny_run import command, refused
from transformer.metrics.registry import find

STEPS = (100, 200, 300, 400)
# Validation BLEU by run at these steps, and the seconds of a step.
SCORES = {
    "slow_0": ((5.0, 20.0, 31.0, 30.0), 3.0),
    "slow_1": ((6.0, 21.0, 29.0, 36.0), 3.0),
    "fast_0": ((9.0, 30.5, 33.0, 32.0), 0.6),
}
MACHINE = {
    **{"started": "2026-01-01T00:00:00+00:00", "python": "3.11", "platform": "Linux"},
    **{"processor": "A", "cores": 2, "devices": {"kind": "cpu", "count": 1}},
    **{"code": None, "packages": {}},
}


def write_metrics(folder, scores, seconds):
    lines = [{"step": 50, "split": "train", "loss": 3.0, "bleu": 99.0, "seconds": 1.0}]
    for step, bleu in zip(STEPS, scores, strict=True):
        timed = {"seconds": seconds * step}
        lines.append({"step": step, "split": "validation", "bleu": bleu, **timed})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.fixture
def runs(tmp_path):
    """Folders of translators by name."""
    folders = {}
    for number, (name, (scores, seconds)) in enumerate(SCORES.items()):
        made = translator(tmp_path / "made", number, 0.1, references=sentences(20))
        folders[name] = made.rename(tmp_path / name)
        write_metrics(folders[name], scores, seconds)
        (folders[name] / "run.json").write_text(json.dumps({"environment": MACHINE}))
    return folders


def compare(runs, output, *flags):
    systems = f"slow={runs['slow_0']}+{runs['slow_1']},fast={runs['fast_0']}"
    ended = command("--mode=compare", f"--runs={systems}", f"--output={output}", *flags)
    assert ended.code == 0, ended.err
    return ended.out


def training_of(folder):
    """The table of training in comparison.md, by system."""
    text = (folder / "comparison.md").read_text()
    if "during training:\n" not in text:
        return {}
    lines = text.split("during training:\n\n")[1].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}


def test_minutes_to_each_level_are_those_of_the_first_evaluation_that_has_it(runs, tmp_path):
    compare(runs, tmp_path / "out", "--levels=20.5,32,50")
    found = training_of(tmp_path / "out")
    assert found["slow"] == {
        "system": "slow",
        "seeds": "2",
        "steps": "400 ± 0",
        "minutes": "20.0 ± 0.0",
        "best validation BLEU": "33.50 ± 3.54",
        "minutes to 20.5": "12.5 ± 3.5",  # 15 and 10
        "minutes to 32": "20.0 (1 of 2 seeds)",
        "minutes to 50": "-",
    }
    assert found["fast"]["minutes to 20.5"] == "2.0"
    assert found["fast"]["minutes to 32"] == "3.0"
    page = (tmp_path / "out/comparison.html").read_text()
    for text in ("12.5 ± 3.5", "20.0 (1 of 2 seeds)"):
        assert text in page
    assert page.count("<svg") == 3


def test_the_level_is_by_default_the_best_that_all_runs_reach(runs, tmp_path):
    told = compare(runs, tmp_path / "out")
    found = training_of(tmp_path / "out")
    assert found["slow"]["minutes to 31"] == "17.5 ± 3.5"
    assert found["fast"]["minutes to 31"] == "3.0"
    assert "Minutes of training include compilation and evaluations" in told
    assert "different machines" not in told


def test_a_lower_loss_reaches_a_level():
    course = Course([1, 2, 3], [0.5, 1.0, 1.5], [4.0, 2.0, 3.0])
    assert course.first(2.5, find("nll", "language_model")) == 1.0
    assert course.best(find("nll", "language_model")) == 2.0
    assert course.first(3.5, find("bleu", "translation")) == 0.5
    assert math.isnan(course.first(5, find("bleu", "translation")))


def test_scores_that_are_not_comparable_are_left_out_with_the_reason(runs, tmp_path):
    (runs["fast_0"] / "held_out").mkdir()
    (runs["fast_0"] / "held_out/validation.jsonl").write_text('{"source": "a", "target": "b"}\n')
    told = compare(runs, tmp_path / "out")
    reason = f"{runs['slow_0']} and {runs['fast_0']} had other texts or another search"
    assert f"No scores during training are compared: {reason}." in told
    assert not training_of(tmp_path / "out")
    assert 'id="training"' not in (tmp_path / "out/comparison.html").read_text()


def test_validation_texts_of_several_corpora_are_compared(runs, tmp_path):
    for folder in runs.values():
        config = json.loads((folder / "config.json").read_text())
        config["data"]["corpora"] = [{"name": "a"}, {"name": "b"}]
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "held_out").mkdir()
        for name in ("a", "b"):
            text = f'{{"source": "{name}", "target": "b"}}\n'
            (folder / f"held_out/validation_{name}.jsonl").write_text(text)
    assert "had other texts" not in compare(runs, tmp_path / "same")  # the control
    (runs["fast_0"] / "held_out/validation_b.jsonl").write_text('{"source": "c", "target": "b"}\n')
    assert "had other texts" in compare(runs, tmp_path / "other")


@pytest.mark.parametrize("key", ["training_beam_size", "max_sentences"])
def test_scores_of_another_search_are_left_out(key, runs, tmp_path):
    path = runs["fast_0"] / "config.json"
    config = json.loads(path.read_text())
    config["evaluate"][key] += 1
    path.write_text(json.dumps(config))
    assert "had other texts or another search" in compare(runs, tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "beam_size", "comparable"),
    [("alpha", 1, True), ("alpha", 4, False), ("max_extra", 1, False)],
)
def test_keys_of_decoding_count_if_the_search_uses_them(key, beam_size, comparable, runs, tmp_path):
    for name, folder in runs.items():
        config = json.loads((folder / "config.json").read_text())
        config["evaluate"]["training_beam_size"] = beam_size
        config["decode"][key] += name == "fast_0"
        (folder / "config.json").write_text(json.dumps(config))
    told = compare(runs, tmp_path / "out")
    assert ("had other texts or another search" not in told) == comparable


def test_a_run_without_times_is_named(runs, tmp_path):
    lines = (runs["fast_0"] / "metrics.jsonl").read_text().replace("seconds", "other")
    (runs["fast_0"] / "metrics.jsonl").write_text(lines)
    assert f"{runs['fast_0']} has no evaluations with their times" in compare(
        runs, tmp_path / "out"
    )
    (runs["fast_0"] / "metrics.jsonl").unlink()
    assert f"{runs['fast_0']} has no evaluations" in compare(runs, tmp_path / "out")


def test_minutes_of_different_machines_are_told_apart(runs, tmp_path):
    other = json.dumps({"environment": MACHINE | {"processor": "B", "cores": 8}})
    (runs["fast_0"] / "run.json").write_text(other)
    told = compare(runs, tmp_path / "out")
    assert "different machines: A, 2 cores, 1 x cpu; B, 8 cores, 1 x cpu." in told


@pytest.mark.parametrize("levels", ["38,x", "nan", "1e999"])
def test_a_level_that_is_no_score_is_refused(levels, runs):
    systems = f"--runs={runs['slow_0']},{runs['fast_0']}"
    bad = levels.split(",")[-1]
    says = (f"--levels={levels}", repr(bad), "--levels=38,40")
    refused("--mode=compare", systems, f"--levels={levels}", says=says)
