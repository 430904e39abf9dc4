"""`--mode=compare` tells how long each system trained until it had a score."""

import json

import pytest

from sweeps import sentences, translator
from tiny_run import command, refused
from transformer.data import held_out
from transformer.data.pairs import Pair

pytestmark = pytest.mark.full

STEPS = (100, 200, 300, 400)
# Validation BLEU by run at these steps, and the seconds of a step.
SCORES = {
    "slow_0": ((5.0, 20.0, 31.0, 30.0), 3.0),
    "slow_1": ((6.0, 21.0, 29.0, 36.0), 3.0),
    "fast_0": ((9.0, 30.5, 33.0, 32.0), 0.6),
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
        "n": "2",
        "steps": "400 ± 0",
        "minutes": "20.0 ± 0.0",
        "best validation BLEU": "33.50 ± 3.54",
        "minutes to 20.5": "12.5 ± 3.5",  # 15 and 10
        "minutes to 32": "20.0 (1 of 2 seeds)",
        "minutes to 50": "-",
    }
    assert found["fast"]["minutes to 20.5"] == "2.0"
    assert found["fast"]["minutes to 32"] == "3.0"
    assert (tmp_path / "out/comparison.html").read_text().count("<svg") == 3


def test_a_level_that_is_no_score_is_refused(runs):
    systems = f"--runs={runs['slow_0']},{runs['fast_0']}"
    says = ("--levels=38,x", "--levels=38,40")
    refused("--mode=compare", systems, "--levels=38,x", says=says)


def test_the_level_is_by_default_the_best_that_all_runs_reach(runs, tmp_path):
    out = compare(runs, tmp_path / "out")
    table = training_of(tmp_path / "out")
    assert table["slow"]["minutes to 31"] == "17.5 ± 3.5"
    assert table["fast"]["minutes to 31"] == "3.0"
    assert "with compilation and evaluations" in out


@pytest.mark.parametrize(
    ("beam_size", "source", "comparable"), [(1, "b", True), (4, "b", False), (1, "c", False)]
)
def test_scores_of_other_texts_or_another_search_are_left_out_with_the_reason(
    beam_size, source, comparable, runs, tmp_path
):
    for name, folder in runs.items():
        config = json.loads((folder / "config.json").read_text())
        config["evaluate"]["training_beam_size"] = beam_size
        config["decode"]["alpha"] += name == "fast_0"  # which greedy search does not use
        (folder / "config.json").write_text(json.dumps(config))
        pair = Pair(source if name == "fast_0" else "b", "b")
        held_out.save(folder, {"validation": [pair]})
    out = compare(runs, tmp_path / "out")
    reason = f"{runs['slow_0']} and {runs['fast_0']} had other texts or another search"
    assert (f"No scores during training are compared: {reason}." in out) != comparable
    assert bool(training_of(tmp_path / "out")) == comparable
