"""A text that cannot be read fails the trials that read it; one of all trials ends the sweep."""

import pytest
from sweep_fakes import Fakes

from configs import quickstart
from experiments.sweep import worker as sweep_worker
from experiments.sweep.plan import plan_trials
from experiments.sweep.study import Study
from transformer.errors import UserError


def work_on_texts(folder, monkeypatch, trials, missing, **changes):
    """Trains trials of which some read a text that is not there; their states and reasons."""
    Fakes(monkeypatch)

    def make(worker, group):
        if group[0].number in missing:
            raise UserError("there is no file train.en")
        return [None] * len(group)

    monkeypatch.setattr(sweep_worker.Worker, "_make_tasks", make)
    config = quickstart.get_config()
    config.update_from_flattened_dict(changes)
    study = Study(config, plan_trials(config, trials, folder), None, folder)
    try:
        sweep_worker.Worker(study).work()
    finally:
        states = [study.states()[number] for number in range(len(trials))]
    return states, study.notes()


def states_of(folder, trials):
    config = quickstart.get_config()
    return Study(config, plan_trials(config, trials, folder), None, folder).states()


PATHS = [{"data.path": f"text_{number}"} for number in range(4)]


@pytest.mark.parametrize("how", ["sequential", "vmap"])
def test_a_text_of_one_trial_that_cannot_be_read_fails_that_trial(tmp_path, monkeypatch, how):
    changes = {"sweep.parallel": how}
    states, notes = work_on_texts(tmp_path, monkeypatch, PATHS, [1, 3], **changes)
    assert states == ["complete", "failed", "complete", "failed"]
    assert notes[1] == "there is no file train.en"


def test_a_text_of_all_trials_that_cannot_be_read_ends_the_sweep(tmp_path, monkeypatch):
    seeds = [{"seed": seed} for seed in range(4)]
    with pytest.raises(sweep_worker.SweepError, match=r"there is no file train\.en"):
        work_on_texts(tmp_path, monkeypatch, seeds, range(4))
    assert list(states_of(tmp_path, seeds).values()) == ["running", *["waiting"] * 3]


def test_texts_of_trials_that_cannot_be_read_one_after_another_end_the_sweep(tmp_path, monkeypatch):
    with pytest.raises(sweep_worker.SweepError, match=r"3 trials in a row .*no file.*stays open"):
        work_on_texts(tmp_path, monkeypatch, PATHS, range(4))
    states = states_of(tmp_path, PATHS)
    assert list(states.values()) == ["failed", "failed", "running", "waiting"]
