"""The store of a sweep: who has which trial, and what it has come to."""

import concurrent.futures
import json
import time
from unittest import mock

import pytest
from sqlalchemy.exc import OperationalError

from configs import quickstart
from experiments.sweep import study as sweep_study
from experiments.sweep.study import Study, SweepError
from experiments.sweep.trial_configs import plan_trials
from source_settings import refused
from transformer.errors import UserError

SPACE = {
    "optimizer.learning_rate": ("log", 1e-4, 1e-2),
    "model.dropout_residual": ("uniform", 0.0, 0.3),
    "model.num_encoder_layers": ("int", 1, 3),
    "model.norm_position": ["pre", "post"],
}


def grid(folder, seeds=range(4), **changes) -> Study:
    config = quickstart.get_config()
    config.update_from_flattened_dict(changes)
    trials = plan_trials(config, [{"seed": seed} for seed in seeds], folder)
    return Study(config, trials, None, folder)


def search(folder, kind, attempts=6, **changes) -> Study:
    config = quickstart.get_config()
    config.update_from_flattened_dict({"sweep.search": kind, "sweep.trials": attempts, **changes})
    return Study(config, None, SPACE, folder)


def begin(study):
    """Takes the next trial that is free; None if there is none."""
    return next((own for number, _ in study.free() if (own := study.take(number))), None)


def waiting(study):
    """The numbers of the trials that nobody has begun."""
    return [number for number, state in study.states().items() if state == "waiting"]


def test_trials_end_as_complete_pruned_or_failed(tmp_path):
    study = grid(tmp_path)
    for value, state in ((41.5, "complete"), (None, "pruned"), (None, "failed")):
        _, attempt = begin(study)
        study.end(attempt, value, state, note="it diverged" if state == "failed" else "")
    expected = {0: "complete", 1: "pruned", 2: "failed", 3: "waiting"}
    assert study.states() == grid(tmp_path).states() == expected
    assert study.notes()[2] == "it diverged"
    assert waiting(study) == [3]


def test_a_storage_that_is_away_is_asked_until_it_is_back_or_patience_ends(tmp_path, monkeypatch):
    study, error = grid(tmp_path), OperationalError("select", {}, Exception("server closed"))
    frozen = study._study.get_trials(deepcopy=False)
    answers = mock.Mock(side_effect=[error, error, error, frozen])
    monkeypatch.setattr("experiments.sweep.study.time.sleep", lambda seconds: None)
    monkeypatch.setattr(study._study, "get_trials", answers)
    assert study.states() == dict.fromkeys(range(4), "waiting")
    assert answers.call_count == 4
    monkeypatch.setattr(sweep_study, "PATIENCE", 0.0)
    answers.side_effect = error
    says = r"cannot be reached .*server closed"
    with pytest.raises(SweepError, match=says), study.storage_errors():
        study.states()


def test_a_trial_of_a_worker_that_died_is_free_once_its_lease_has_run_out(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_study, "LEASE", 2.0)
    monkeypatch.setattr(sweep_study, "BEAT", 0.1)
    dead, alive = grid(tmp_path, range(1)), grid(tmp_path, range(1))
    _, attempt = begin(dead)
    with dead.held([attempt]):
        assert begin(alive) is None
        assert not alive.is_abandoned([])  # its lease is renewed
        time.sleep(2.2)
        assert begin(alive) is None
    # It renews it no longer.
    assert alive.is_abandoned([])
    trial, attempt = begin(alive)
    assert trial.number == 0
    assert begin(dead) is None
    alive.end(attempt, 1.0, "complete")
    assert dead.states() == {0: "complete"}
    assert not dead.is_abandoned([])


def test_of_many_workers_at_once_one_takes_a_trial(tmp_path):
    studies = [grid(tmp_path, range(3)) for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        taken = [own for n in range(3) for own in pool.map(lambda s, n=n: s.take(n), studies)]
    assert [own[0].number for own in taken if own] == [0, 1, 2]


def test_a_draw_that_cannot_be_has_failed_and_the_next_one_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setitem(SPACE, "model.num_heads", [3, 4])  # of a width of 128
    study, numbers = search(tmp_path, "random", attempts=8), []
    while got := begin(study):
        numbers.append(got[0].number)
        assert got[0].config.model.num_heads == 4
    failed = [number for number, state in study.states().items() if state == "failed"]
    assert failed
    assert sorted(failed + numbers) == list(range(8))
    assert "model.num_heads=3" in study.notes()[failed[0]]


@pytest.mark.parametrize("storage", ["sqlite:////no/folder/study.db", "mysql://me:***@x:y/z"])
def test_a_storage_that_cannot_be_reached_is_named(tmp_path, storage):
    with refused(storage, "--config.sweep.storage"):
        grid(tmp_path, **{"sweep.storage": storage.replace("***", "secret")})


def listed(folder, *values, **changes) -> Study:
    config = quickstart.get_config()
    config.update_from_flattened_dict(changes)
    return Study(config, plan_trials(config, values, folder), None, folder)


def numbers(study) -> dict[int, dict]:
    return {number: trial.values for number, trial in study.trials.items()}


def test_two_sweeps_of_one_name_can_share_a_database(tmp_path):
    storage = {"sweep.storage": f"sqlite:///{tmp_path / 'all.db'}"}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = grid(tmp_path / "a", **storage), grid(tmp_path / "b", range(2), **storage)
    begin(first)
    assert len(waiting(second)) == 2
    assert len(waiting(grid(tmp_path / "a", **storage))) == 3


@pytest.mark.full
@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_a_search_draws_so_many_trials_and_no_two_workers_the_same(tmp_path, kind):
    workers = [search(tmp_path, kind), search(tmp_path, kind)]
    drawn = []
    while trial := begin(workers[len(drawn) % 2]):
        (_, values, config, *_), attempt = trial
        drawn.append(json.dumps(values))
        state = "failed" if len(drawn) == 2 else "complete"
        workers[len(drawn) % 2].end(attempt, float(len(drawn)), state)
        assert 1e-4 <= config.optimizer.learning_rate <= 1e-2
        assert config.model.norm_position in SPACE["model.norm_position"]
        assert 1 <= config.model.num_encoder_layers <= 3
    assert len(set(drawn)) == len(drawn) == 6
    # The draws can be read back, and one that failed is tried again with its values.
    assert list(map(json.dumps, search(tmp_path, kind).values().values())) == drawn
    study = search(tmp_path, kind, **{"sweep.retry_failed": True})
    trial, attempt = begin(study)
    assert (trial.number, json.dumps(trial.values)) == (1, drawn[1])
    study.end(attempt, 1.0, "complete")
    assert begin(study) is None
    # More draws have numbers of their own.
    assert begin(search(tmp_path, kind, attempts=7))[0].number == 6


def test_a_draw_is_a_function_of_the_seed(tmp_path):
    draws = []
    for name, seed in (("first", 0), ("same", 0), ("other", 1)):
        (tmp_path / name).mkdir()
        draws.append(begin(search(tmp_path / name, "random", **{"sweep.seed": seed}))[0])
    assert draws[0].values == draws[1].values != draws[2].values


@pytest.mark.parametrize(
    ("key", "choice", "says"),
    [
        ("model.d_ff", ("lgo", 1, 2), r"space\(\) says model.d_ff"),
        ("model.d_ff", ("log", 0, 4), "log begins above 0"),
        ("model.d_fff", [4, 8], "model.d_ff"),
        ("model.d_ff", ("uniform", 4, 8), "model.d_ff"),
        ("sweep.trials", [1, 2], "a trial cannot set it"),
    ],
)
def test_a_space_that_no_trial_could_have_is_refused_before_one_is_drawn(
    tmp_path, monkeypatch, key, choice, says
):
    monkeypatch.setitem(SPACE, key, choice)
    with pytest.raises(UserError, match=says):
        search(tmp_path, "random")
    assert not list(tmp_path.iterdir())


def test_a_study_of_another_config_or_space_is_refused_and_the_key_named(tmp_path, monkeypatch):
    grid(tmp_path)
    says = r"model\.d_ff was 256 and is 8; train\.steps was 1200 and is 9.*--workdir"
    with pytest.raises(UserError, match=says):
        grid(tmp_path, **{"train.steps": 9, "model.d_ff": 8})
    # How it is run may change.
    grid(tmp_path, **{"sweep.parallel": "vmap", "sweep.trials": 3})
    (tmp_path / "search").mkdir()
    search(tmp_path / "search", "random")
    monkeypatch.setitem(SPACE, "model.norm_position", ["post"])
    with pytest.raises(UserError, match=r"space\(\) model\.norm_position was .*'pre'.*"):
        search(tmp_path / "search", "random")


def test_trials_that_are_added_or_removed_leave_the_others_their_numbers(tmp_path):
    first = listed(tmp_path, {"seed": 0}, {"seed": 1})
    trial, attempt = begin(first)
    first.end(attempt, 1.5, "complete")
    second = listed(tmp_path, {"seed": 5}, {"seed": 0}, {"model.d_ff": 32}, {"seed": 1})
    others = {2: {"seed": 5}, 3: {"model.d_ff": 32}}
    assert numbers(second) == {0: {"seed": 0}, 1: {"seed": 1}, **others}
    assert second.trials[0].folder == trial.folder
    assert second.trials[3].folder == tmp_path / "trials/003"
    assert second.states() == {0: "complete", 1: "waiting", 2: "waiting", 3: "waiting"}
    # In another order nothing moves; nor if a trial sets the config's own value.
    heads = quickstart.get_config().model.num_heads
    seeds = [{"model.num_heads": heads, "seed": seed} for seed in (1, 0, 5)]
    fewer = listed(tmp_path, *seeds)
    assert sorted(fewer.trials) == [0, 1, 2]
    assert [begin(fewer)[0].config.seed for _ in range(2)] == [1, 5]
    assert begin(fewer) is None
