"""The store of a sweep: who has which point, and what it has come to."""

import json

import optuna
import pytest

from configs import quickstart
from experiments.sweep_plan import plan_points
from experiments.sweep_study import Study
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
    points = plan_points(config, [{"seed": seed} for seed in seeds], folder)
    return Study(config, points, None, folder)


def search(folder, kind, trials=6, **changes) -> Study:
    config = quickstart.get_config()
    config.update_from_flattened_dict({"sweep.search": kind, "sweep.trials": trials, **changes})
    return Study(config, None, SPACE, folder)


def test_two_workers_share_the_points_and_none_gets_one_twice(tmp_path):
    workers = [grid(tmp_path), grid(tmp_path)]
    taken = []
    for turn in range(5):
        if got := workers[turn % 2].begin():
            taken.append(got[0].number)
    assert taken == [0, 1, 2, 3]
    assert workers[1].begin() is None
    assert workers[0].states() == dict.fromkeys(range(4), "running")


def test_points_of_one_structure_are_taken_one_after_another(tmp_path):
    config = quickstart.get_config()
    values = [{"seed": seed, "model.d_ff": d_ff} for seed in (0, 1) for d_ff in (64, 32)]
    study = Study(config, plan_points(config, values, tmp_path), None, tmp_path)
    assert [study.begin()[0].number for _ in values] == [0, 2, 1, 3]


def test_a_worker_that_was_killed_while_it_listed_the_points_loses_none(tmp_path, monkeypatch):
    enqueue, calls = optuna.Study.enqueue_trial, []

    def killed(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return enqueue(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "enqueue_trial", killed)
        with pytest.raises(KeyboardInterrupt):
            grid(tmp_path)
    assert sorted(grid(tmp_path).waiting()) == [0, 1, 2, 3]


def test_two_sweeps_of_one_name_can_share_a_database(tmp_path):
    storage = {"sweep.storage": f"sqlite:///{tmp_path / 'all.db'}"}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = grid(tmp_path / "a", **storage), grid(tmp_path / "b", range(2), **storage)
    first.begin()
    assert len(second.waiting()) == 2
    assert len(grid(tmp_path / "a", **storage).waiting()) == 3


@pytest.mark.parametrize("choice", [("lgo", 1, 2), ("log", 2, 1), ("int", 1), [], 5])
def test_a_space_that_is_no_range_and_no_list_is_refused(tmp_path, monkeypatch, choice):
    monkeypatch.setitem(SPACE, "model.d_ff", choice)
    with pytest.raises(UserError, match=r"space\(\) says model.d_ff"):
        search(tmp_path, "random")


def test_points_end_as_complete_pruned_or_failed(tmp_path):
    study = grid(tmp_path)
    for value, state in ((41.5, "complete"), (None, "pruned"), (None, "failed")):
        _, trial = study.begin()
        study.end(trial, value, state, note="it diverged" if state == "failed" else "")
    expected = {0: "complete", 1: "pruned", 2: "failed", 3: "waiting"}
    assert study.states() == grid(tmp_path).states() == expected
    assert study.notes()[2] == "it diverged"
    assert study.waiting() == [3]


def test_a_point_that_was_begun_can_be_taken_up_again(tmp_path):
    point, _ = grid(tmp_path).begin()
    again = grid(tmp_path)  # after a kill
    trial = again.begun()[point.number]
    again.end(trial, 1.0, "complete")
    assert again.states()[point.number] == "complete"
    assert again.begun() == {}


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_a_search_draws_so_many_points_and_no_two_workers_the_same(tmp_path, kind):
    workers = [search(tmp_path, kind), search(tmp_path, kind)]
    drawn = []
    while got := workers[len(drawn) % 2].begin():
        point, trial = got
        drawn.append(json.dumps(point.values))
        workers[len(drawn) % 2].end(trial, float(len(drawn)), "complete")
        assert 1e-4 <= point.config.optimizer.learning_rate <= 1e-2
        assert point.config.model.norm_position in SPACE["model.norm_position"]
        assert 1 <= point.config.model.num_encoder_layers <= 3
    assert len(set(drawn)) == len(drawn) == 6
    # The draws are a function of the seed, and can be read back.
    assert list(map(json.dumps, search(tmp_path, kind).values().values())) == drawn


def test_a_draw_that_cannot_be_has_failed_and_the_next_one_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setitem(SPACE, "model.num_heads", [3, 4])  # of a width of 128
    study, numbers = search(tmp_path, "random", trials=8), []
    while got := study.begin():
        numbers.append(got[0].number)
        assert got[0].config.model.num_heads == 4
    failed = [number for number, state in study.states().items() if state == "failed"]
    assert failed
    assert sorted(failed + numbers) == list(range(8))
    assert "model.num_heads=3" in study.notes()[failed[0]]


def test_a_point_that_was_killed_while_it_was_drawn_has_failed(tmp_path):
    study = search(tmp_path, "random")
    study._study.ask()
    assert study.begun() == {}
    assert study.states() == {0: "failed"}
    assert study.begin()[0].number == 1


def test_draws_depend_on_the_seed_alone(tmp_path):
    def first(name, seed):
        folder = tmp_path / name
        folder.mkdir()
        return search(folder, "random", **{"sweep.seed": seed}).begin()[0].values

    assert first("a", 3) == first("b", 3) != first("c", 4)


def test_a_study_of_another_config_is_refused_and_the_key_named(tmp_path):
    grid(tmp_path)
    with pytest.raises(UserError, match=r"train\.steps was 1200 and is 9.*--workdir"):
        grid(tmp_path, **{"train.steps": 9})
    with pytest.raises(UserError, match="points was"):
        grid(tmp_path, seeds=range(5))
    # How it is run may change.
    grid(tmp_path, **{"sweep.together": "vmap", "sweep.trials": 3})


@pytest.mark.parametrize(
    "storage", ["sqlite:////nowhere/at/all/study.db", "quux://x", "no url", "mysql://x/y"]
)
def test_a_storage_that_cannot_be_reached_is_named(tmp_path, storage):
    with pytest.raises(UserError) as error:
        grid(tmp_path, **{"sweep.storage": storage})
    text = str(error.value)
    assert storage in text
    assert "--config.sweep.storage" in text
    assert "\n" not in text
