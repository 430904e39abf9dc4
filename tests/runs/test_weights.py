"""Which weights a run uses is chosen on validation, and every mode uses the same."""

import json
import shutil
from unittest import mock

import jax
import numpy as np
import pytest
import safetensors.numpy

from log_lines import heard
from runs import identical, toy_config, without_search
from transformer.errors import UserError
from transformer.runs import weights
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.run import Run
from transformer.runs.weights import Weights
from transformer.tasks.translation import TranslationTask
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun


@pytest.mark.parametrize(
    ("scores", "average", "expected"),
    [
        ([1, 2, 3, 4], 1, {"best": [4]}),
        ([1, 2, 3, 4], 2, {"best": [4], "last": [3, 4]}),  # up to the best is the same
        ([1, 4, 3, 2], 2, {"best": [2], "last": [3, 4], "up_to_best": [1, 2]}),
        ([4, 3, 2, 1], 2, {"best": [1], "last": [3, 4]}),
        ([4, 3], 5, {"best": [1], "last": [1, 2]}),
        ([4], 5, {"best": [1]}),
    ],
)
def test_candidates_are_the_best_the_last_and_those_up_to_the_best(scores, average, expected):
    scores = {step: (float(score), 0.0) for step, score in enumerate(scores, 1)}
    assert weights.candidates(scores, average) == expected


@pytest.fixture(scope="module", autouse=True)
def unsearched():
    """Weights are chosen by their loss."""
    with without_search():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A task and its config; parameters that were trained for a few steps."""
    cache = tmp_path_factory.mktemp("weights")
    config = toy_config(
        cache / "cache",
        **{"train.best_metric": "loss", "evaluate.average_last_n": 3, "evaluate.max_sentences": 1},
    )
    task = TranslationTask(config)
    trainer = Trainer([TrainingRun(task, config, cache / "trained")], snapshots=False)
    assert trainer.run()
    with Checkpoints(cache / "trained" / "checkpoints") as checkpoints:
        params = checkpoints.restore_weights([8], task.predictor.param_shapes())
    return task, config, params


def noise(params, seed, scale=0.15):
    keys = iter(jax.random.split(jax.random.key(seed), 1000))
    return jax.tree.map(lambda x: scale * jax.random.normal(next(keys), x.shape), params)


def plus(params, *others):
    return jax.tree.map(lambda *x: sum(x[1:], x[0]), params, *others)


def fill(folder, run, trees):
    """A run's folder whose checkpoints have these parameters, each evaluated."""
    task, config, _ = run
    Run(folder, config).claim()
    task.save_assets(folder)
    with Checkpoints(folder / "checkpoints", 10, "loss") as checkpoints:
        for step, params in enumerate(trees, 1):
            progress = {"fingerprint": task.fingerprint(), "step": step}
            checkpoints.save(step, {"params": params}, progress)
            numbers = {"loss": task.evaluate(params, "validation", final=False)["loss"]}
            checkpoints.record_evaluation(step, numbers, progress)
    return folder


def used(folder, config):
    with heard() as said:
        run = Run(folder, config).load_trained()
    variables, steps = run.variables, run.steps
    return variables["params"], list(steps), said


@pytest.fixture
def averaging_helps(run, tmp_path):
    """Noise that a mean of three is free of."""
    params = run[2]
    first, second = noise(params, 0), noise(params, 1)
    third = jax.tree.map(lambda a, b: -a - b, first, second)
    return fill(tmp_path / "helps", run, [plus(params, n) for n in (first, second, third)])


@pytest.fixture
def averaging_harms(run, tmp_path):
    """The last two are far from the best."""
    params = run[2]
    trees = [params, plus(params, noise(params, 2, 1.0)), plus(params, noise(params, 3, 1.0))]
    return fill(tmp_path / "harms", run, trees)


@pytest.mark.full
def test_where_averaging_helps_the_mean_is_used_and_where_it_harms_the_best(
    run, averaging_helps, averaging_harms
):
    task, config, params = run
    for folder, steps in ((averaging_helps, [1, 2, 3]), (averaging_harms, [1])):
        with heard() as said:
            choice = Weights(folder, config).choose(task)
        scores = {each["what"]: each["score"] for each in choice["candidates"]}
        assert choice["steps"] == steps
        assert (scores["last"] < scores["best"]) == (folder == averaging_helps)
        assert said[0] == "scoring the mean of the last checkpoints on validation ..."
        assert said[1].startswith(f"using the weights of step {', '.join(map(str, steps))}: ")
        assert f"the best checkpoint: {scores['best']:.4g} loss" in said[1]
        assert f"the mean of the last checkpoints: {scores['last']:.4g} loss" in said[1]
        assert choice.items() <= json.loads((folder / "weights.json").read_text()).items()
        found, found_steps, lines = used(folder, config)
        assert (found_steps, lines) == (steps, [])
        close = jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-5), found, params)
        assert all(jax.tree.leaves(close))


def test_what_the_config_asks_for_is_obeyed(run, averaging_harms):
    task, config, _ = run
    for rule, steps in (("best", [1]), ("last", [3]), ("average", [1, 2, 3])):
        asked = config.copy_and_resolve_references()
        asked.evaluate.checkpoint = rule
        with heard() as said:
            choice = Weights(averaging_harms, asked).choose(task, keep=False)
        assert (choice["steps"], choice["candidates"]) == (steps, [])
        assert f"evaluate.checkpoint={rule}" in said[0]
        assert used(averaging_harms, asked)[1:] == (steps, [])
    assert not (averaging_harms / "weights.json").exists()


def test_without_a_choice_that_fits_the_best_single_one_is_used_and_a_line_says_so(
    run, averaging_helps
):
    task, config, _ = run
    scores = Weights(averaging_helps, config).choose(task)["candidates"]
    assert scores[0]["what"] == "best"
    best = scores[0]["steps"]

    def expect(says, now=config):
        _, steps, said = used(averaging_helps, now)
        assert steps == best
        assert len(said) == 1
        assert says in said[0]
        assert f"using checkpoint {best[0]}" in said[0]

    path = averaging_helps / "weights.json"
    text = path.read_text()
    other = config.copy_and_resolve_references()
    other.evaluate.average_last_n = 2
    expect("no longer fits", other)
    path.write_text(text.replace("1,", "2,", 1))
    expect("is damaged")
    path.write_text("[]")
    expect("is damaged")
    path.unlink()
    expect("weights.json is missing")
    Weights(averaging_helps, config).choose(task)
    with Checkpoints(averaging_helps / "checkpoints", 10, "loss") as checkpoints:
        progress = {"fingerprint": task.fingerprint()}
        checkpoints.save(4, {"params": run[2]}, progress)
    expect("no longer fits")


def test_chosen_weights_are_stored_apart_and_need_no_checkpoint(run, averaging_helps):
    task, config, _ = run
    choice = Weights(averaging_helps, config).choose(task)
    with Checkpoints(averaging_helps / "checkpoints", 10, "loss") as checkpoints:
        mean = checkpoints.restore_weights([1, 2, 3], task.predictor.param_shapes())
    shutil.rmtree(averaging_helps / "checkpoints")
    with heard() as said:
        found = Run(averaging_helps, config).load_trained()
    assert identical(found.variables["params"], mean)
    # Other programs can read them.
    arrays = safetensors.numpy.load_file(averaging_helps / "weights.safetensors")
    inner = mean["encoder_layers_0"]["feed_forward"]["inner"]["kernel"]
    assert (arrays["encoder_layers_0/feed_forward/inner/kernel"] == inner).all()
    assert (found.steps, said) == (choice["steps"], [])
    assert found.progress == {"fingerprint": task.fingerprint(), "step": 3}
    before = {path: path.read_bytes() for path in averaging_helps.glob("weights.*")}
    assert {path.name for path in before} >= {"weights.json", "weights.safetensors"}
    assert Weights(averaging_helps, config).choose(task)["steps"] == choice["steps"]
    assert all(path.read_bytes() == data for path, data in before.items())
    other = config.copy_and_resolve_references()
    other.evaluate.checkpoint = "last"
    with pytest.raises(UserError, match=r"has no checkpoint, and .*or leave config.evaluate"):
        Weights(averaging_helps, other).choose(task, keep=False)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.json"])
def test_without_checkpoints_what_is_damaged_is_named(name, run, averaging_helps):
    task, config, _ = run
    Weights(averaging_helps, config).choose(task)
    shutil.rmtree(averaging_helps / "checkpoints")
    path = averaging_helps / name
    path.write_bytes(path.read_bytes()[:-2] + b"xx")
    with pytest.raises(UserError, match=f"{name} is .*not what was written.*restore the original"):
        Run(averaging_helps, config).load_trained()


def test_scores_of_other_settings_are_compared_with_none_of_the_training(run, averaging_helps):
    task, config, _ = run
    scored = []
    measure = task.evaluate
    with mock.patch.object(task, "evaluate", lambda *a, **k: scored.append(a) or measure(*a, **k)):
        kept = Weights(averaging_helps, config).choose(task)["candidates"]
        assert len(scored) == len(kept) - 1
        (averaging_helps / "weights.json").unlink()
        others = Weights(averaging_helps, config).choose(task, keep=False)["candidates"]
    assert len(scored) == 2 * len(kept) - 1
    # The control: with the settings of the training, the scores are the same.
    assert others == kept


def test_weights_that_are_damaged_are_named_and_once_deleted_they_are_stored_again(
    run, averaging_helps
):
    task, config, _ = run
    Weights(averaging_helps, config).choose(task)
    path = averaging_helps / "weights.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UserError, match=r"safetensors is .*not what was written.*or delete it and"):
        used(averaging_helps, config)
    path.unlink()
    Weights(averaging_helps, config).choose(task)
    assert path.read_bytes() == data
    assert used(averaging_helps, config)[1:] == ([1, 2, 3], [])
