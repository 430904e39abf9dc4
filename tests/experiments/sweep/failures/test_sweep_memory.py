"""A group of runs that does not fit into memory is divided, and no finished run trains again."""

import jax
import pytest
from sweep_fakes import Fakes, out_of_memory, study_of, together, work

from experiments.sweep import worker as sweep_worker
from tiny_run import command
from tiny_sweep import rows, write_config
from transformer.errors import UserError


def test_a_group_that_does_not_fit_is_halved_until_it_does(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch, most=2)
    states, _, said = work(tmp_path, 6, **together())
    assert states == ["complete"] * 6
    assert [len(seeds) for seeds in fakes.trained] == [6, 3, 2, 1, 3, 2, 1]
    assert any("0, 1, 2 and 3, 4, 5 separately, from their checkpoints" in line for line in said)


def test_a_group_whose_trials_go_on_from_different_steps_is_divided_by_step(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch)
    train, folder = fakes._run, study_of(tmp_path, **together()).trial(1).folder

    def run(configs):
        if len(configs) < 4:
            return train(configs)
        # As where the newest checkpoints of the others are damaged, and have been moved away.
        (folder / "checkpoints" / "3").mkdir(parents=True)
        raise UserError("4 runs cannot train together from the steps 0, 3")

    fakes._run = run
    states, _, said = work(tmp_path, **together())
    assert states == ["complete"] * 4
    assert fakes.trained == [[0, 2, 3], [1]]
    assert any("from the steps 0, 3: training 0, 2, 3 and 1 separately" in line for line in said)


def test_what_did_not_fit_once_is_not_tried_again_at_that_size(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch, most=2)
    work(tmp_path, 12, **together(**{"sweep.max_vmapped_runs": 4}))
    assert [len(seeds) for seeds in fakes.trained] == [4, 2, 2, 2, 2, 2, 2]


def test_a_trial_that_does_not_fit_alone_is_tried_once_more_in_empty_memory(tmp_path, monkeypatch):
    fakes, left = Fakes(monkeypatch), [out_of_memory]
    once = fakes._run

    def run(configs):
        if left and configs[0].seed == 1:
            raise left.pop()()
        return once(configs)

    fakes._run = run
    cleared = []
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(1))
    states, _, _ = work(tmp_path, 2)
    assert states == ["complete", "complete"]
    assert cleared == [1]


def test_members_that_are_done_are_not_trained_again_after_an_error(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch)
    score = fakes._score

    def failing(worker, trial, attempt, task):
        if trial.number == 2 and 2 not in fakes.done:
            fakes.done.append(2)
            raise out_of_memory()
        score(worker, trial, attempt, task)

    monkeypatch.setattr(sweep_worker.Worker, "_score", failing)
    states, _, _ = work(tmp_path, **together())
    assert states == ["complete"] * 4
    assert fakes.trained == [[0, 1, 2, 3], [2], [3]]


def test_members_are_closed_where_a_folder_is_damaged(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch)

    def damaged(trial, run):
        if trial.number == 1:
            raise UserError("config.json cannot be read")

    monkeypatch.setattr(sweep_worker, "_prepare_one", damaged)
    states, _, _ = work(tmp_path, **together())
    assert states == ["complete", "failed", "complete", "complete"]
    assert fakes.closed == 4 + 2 + 1  # the group, its half, and the one


@pytest.mark.slow
def test_a_sweep_in_which_a_group_and_then_a_trial_run_out_of_memory_has_its_answer(
    tmp_path, monkeypatch
):
    """With real programs: what is halved has the scores of what was not."""
    config = write_config(tmp_path, count=3)
    flags = f"--config={config}", "--config.sweep.parallel=vmap"
    assert command(*flags, f"--workdir={tmp_path / 'whole'}").code == 0
    run, runs = sweep_worker.Trainer.run, []

    def fails_at_first(trainer):
        if len(trainer.runs) == 1:
            return run(trainer)
        runs.append(len(trainer.runs))
        if len(trainer.runs) > 2:
            raise out_of_memory()
        return run(trainer)

    monkeypatch.setattr(sweep_worker.Trainer, "run", fails_at_first)
    ended = command(*flags, f"--workdir={tmp_path / 'halved'}")
    assert ended.code == 0, ended.err
    assert runs == [3, 2]
    whole, halved = rows(tmp_path / "whole"), rows(tmp_path / "halved")
    assert [row["state"] for row in halved] == ["complete"] * 3
    for ours, theirs in zip(halved, whole, strict=True):
        assert float(ours["test_loss"]) == pytest.approx(float(theirs["test_loss"]), rel=1e-4)
