"""The weights of another run are scored on the test set before their training, once."""

import pytest

from configs import base
from experiments.evaluate import run
from experiments.results import run_tables as tables
from runs import Unigrams, identical, make_trainer, unigram_config
from transformer.runs.run import RUN, Run, first_scores, read_run, record_run
from transformer.tasks.base import Task
from transformer.training.run import TrainingRun

START = {"folder": "/runs/old", "steps": [20], "parameters": 90, "loaded": 90, "frozen": 0,
         "new": [], "tables": {}}  # fmt: skip
SCORES = {"loss": 1.5, "sentences": 3, "bleu": 20.0, "bleu_signature": "tok:13a"}


class Scored(Task):
    """A task that is scored, with a part of the test set."""

    splits = ("validation", "test")

    def __init__(self):
        self.calls = []

    def evaluate(self, params, split, final):
        self.calls.append((params, split, final))
        part = {**SCORES, "texts": {"translations/test_a.txt": ["c"]}, "counts": {}}
        texts = {"translations/test.txt": ["b"]}
        return {**SCORES, "texts": texts, "counts": {}, "parts": {"test_a": part}}


Scored.__abstractmethods__ = frozenset()  # no other is asked for


def scored_start(folder, **changes):
    """The calls of two starts of a run, and what is recorded."""
    task = Scored()
    record_run(folder, init_from={**START, **changes})
    for _ in range(2):
        run._score_start(task, Run(folder, base.get_config()), "params")
    return task.calls, read_run(folder)["init_from"]


def results_with(start):
    costs = {"step": 3, "averaged_steps": [3], "parameters": 90, "wall_seconds": 1.0}
    test = {**SCORES, "bleu": 31.25}
    return {**costs, "validation": SCORES, "test": test, "init_from": start}


def test_weights_that_are_all_another_runs_are_scored_once(tmp_path):
    calls, start = scored_start(tmp_path)
    assert calls == [("params", "test", True)]
    assert first_scores(start) == {"test": SCORES, "test_a": SCORES}
    assert [path.name for path in tmp_path.iterdir()] == [RUN]  # no translations


def test_weights_that_are_in_part_new_are_not_scored(tmp_path):
    calls, start = scored_start(tmp_path, loaded=89)
    assert (calls, first_scores(start)) == ([], {})


def test_table_and_report_show_the_scores_before_and_after(tmp_path, capsys):
    _, start = scored_start(tmp_path)
    results = results_with(start)
    run.print_results(results, "translation")
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    cells = {row[0].strip(): row[-1].strip() for row in rows}
    assert cells["test"] == "31.25"
    assert cells["test, first weights"] == cells["test_a, first weights"] == "20.00"
    table = tables.score_table("translation", results)
    assert table.head[1:] == ["validation", "test", "test, first weights", "test_a, first weights"]
    assert ["BLEU", "20.00", "31.25", "20.00", "20.00"] in table.rows
    other = results_with(START)  # a control
    assert tables.score_table("translation", other).head[1:] == ["validation", "test"]


@pytest.mark.parametrize("change", ["", "search", "signature"])
def test_scores_that_are_not_comparable_are_left_out_with_a_line(tmp_path, change, caplog):
    caplog.set_level("INFO")
    config, (_, start) = base.get_config(), scored_start(tmp_path)
    results = results_with(start) | {"test_a": SCORES}
    caplog.clear()
    if change == "search":
        config.decode.beam_size += 1
    elif change == "signature":
        results["test"] = {**SCORES, "bleu_signature": "tok:intl"}
    config.decode.batch_size += 1  # which changes no score
    kept = run._comparable_scores(start, results, run._search_settings(Run(tmp_path, config)))
    assert kept == (START if change else start)
    assert ["left out: they were made with other keys" in line for line in caplog.messages] == (
        [True] if change else []
    )


def trainer_of(folder, calls, **changes):
    trainer = make_trainer(TrainingRun(Unigrams(), unigram_config(**changes), folder))
    trainer.on_start = calls.append
    return trainer


def test_the_loop_shows_the_parameters_before_the_first_step_alone(tmp_path):
    calls = []
    trainer = trainer_of(tmp_path, calls, **{"train.steps": 5})
    fresh = trainer.runs[0].fresh_state().params
    assert trainer.run()
    [params] = calls
    assert identical(params["w"].shape, fresh["w"].shape)
    assert trainer_of(tmp_path, calls, **{"train.steps": 10}).run()
    assert len(calls) == 1
