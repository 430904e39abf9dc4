"""Heads are ranked by what truly changes without them, and by what their gradients predict."""

import json
import shutil

import jax
import numpy as np
import pytest

from experiments.heads.effects import HEADS as ALL
from experiments.heads.effects import measure_effects, rank_correlation, work
from task_runs import TEXTS, text_config
from tiny_run import command, forget_weights, refused
from transformer import tasks
from transformer.config import complete
from transformer.inference import interventions
from transformer.runs import workdir
from transformer.runs.run import Run

STACKS = {"encoder_self": "encoder_layers_0", "decoder_self": "decoder_layers_0",
          "cross": "decoder_layers_0"}  # fmt: skip
HEAD = 8  # numbers of a head: 16 of two heads


@pytest.fixture(scope="module")
def ranked(tiny, tmp_path_factory):
    """What the mode prints of the shared run, its folder and numbers, the task and parameters."""
    folder = tiny.copy(tmp_path_factory.mktemp("heads") / "run")
    ended = command("--mode=intervene", f"--workdir={folder}")
    assert ended.code == 0, ended.err
    config = workdir.load_config(folder)
    variables = Run(folder, config).load_trained().variables
    numbers = json.loads((folder / "figures" / "interventions" / "zero.json").read_text())
    return ended, folder, numbers, tasks.REGISTRY[config.task](config), variables["params"]


def scaled(params, kind, head, share):
    """The parameters with a head's rows of W^O, of the first layer of a kind, multiplied."""
    params = jax.tree.map(np.array, params)
    parts = [params.get("encoder", params)[STACKS[kind]]]
    attention = parts[0]["cross_attention" if kind == "cross" else "self_attention"]
    attention["output"]["kernel"][(head - 1) * HEAD : head * HEAD] *= share
    return params


def scores_of(effects, kind, head):
    side, short = ("decoder", "cross") if kind == "cross" else kind.split("_")
    return effects["changes"][f"{side}.1.{short}.head.{head}.output"]


@pytest.fixture(scope="module")
def losses(ranked):
    """Each test sentence's loss where a head's rows of W^O are multiplied by a share."""
    *_, task, params = ranked
    pairs = task.decoded_pairs("test", final=True)
    texts = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def losses_of(kind, head, share):
        variables = {"params": scaled(params, kind, head, share)}
        return -np.array([total for total, _ in task.predictor.score(variables, *texts)])

    return losses_of


HEADS = [("cross", 2), ("encoder_self", 1), ("decoder_self", 2)]


def test_a_head_off_changes_bleu_by_what_its_rows_of_zeros_do(ranked):
    _, _, numbers, task, params = ranked
    pairs = task.decoded_pairs("test", final=False)

    def bleu(kind, head, share):
        variables = {"params": scaled(params, kind, head, share)}
        best = task.predictor.translate(variables, [pair.source for pair in pairs], beam_size=1)
        return task.text_scores([found[0].text for found in best], pairs, False)["bleu"]

    assert numbers["base"]["bleu"] == pytest.approx(bleu("cross", 1, 1.0))
    changes = [bleu(*head, 0.0) - numbers["base"]["bleu"] for head in HEADS]
    assert [scores_of(numbers, *head)["bleu"] for head in HEADS] == pytest.approx(changes)
    assert max(np.abs(changes)) > 0  # control


def test_importance_is_the_slope_of_each_sentences_loss(ranked, losses):
    numbers, step = ranked[2], 0.01
    for head in HEADS:
        below, at, above = (losses(*head, share) for share in (1 - step, 1.0, 1 + step))
        # The slope to either side: a unit of ReLU may turn on or off right there.
        slopes = np.array([at - below, above - at]) / (step * numbers["tokens"])
        found, margin = scores_of(numbers, *head), 0.02 * np.abs(slopes).sum(1).mean()
        least, most = np.sort(np.abs(slopes), axis=0).sum(1)
        assert least - margin <= found["importance"] <= most + margin
        least, most = np.sort(-slopes, axis=0).sum(1)
        assert least - margin <= found["estimate"] <= most + margin


def test_what_is_printed_and_written_is_one_ranking(ranked):
    ended, folder, numbers, *_ = ranked
    assert str(folder / "figures" / "interventions" / "zero.png") in ended.out
    heads = numbers["changes"].values()
    worst = max(heads, key=lambda head: head["loss"])
    first = next(line for line in ended.out.splitlines() if "output │" in line)
    assert f"{worst['loss']:+.4f}" in first
    changes = [head["loss"] for head in heads]
    expected = rank_correlation([head["importance"] for head in heads], changes)
    assert f"6 heads: {expected:.3f}" in ended.out


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_models_that_do_not_translate_are_ranked_too(name, tmp_path):
    config = complete(text_config(name, tmp_path))
    task = tasks.REGISTRY[config.task](config)
    params, read = task.draw_params(jax.random.key(1)), []
    names = interventions.select([ALL], task.predictor.model)
    effects = measure_effects(task, {"params": params}, names, "zero", read.append)
    assert (len(names), "bleu" in effects.base) == (2, False)
    assert sum(read) == work(task, 2)
    kind = "encoder_self" if names[0].startswith("encoder") else "decoder_self"
    whole, without = (
        task.evaluate(own, "test", final=False) for own in (params, scaled(params, kind, 2, 0.0))
    )
    assert effects.base["loss"] == pytest.approx(whole["nll"], rel=1e-5)
    first, second = effects.column("loss")
    assert second == pytest.approx(without["nll"] - whole["nll"], abs=1e-5)
    assert abs(second - first) > 1e-4  # control


def test_rank_correlations_by_hand():
    # 1 - 6 (0 + 1 + 1 + 0) / (4 (16 - 1)).
    assert rank_correlation([1, 2, 3, 4], [0.1, 3.0, 2.0, 40.0]) == pytest.approx(0.8)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_a_model_without_heads_or_checkpoint_is_refused(tiny, tmp_path):
    mode = "--mode=intervene", f"--workdir={tiny.workdir}"
    refused(
        *mode, "--config.model.architecture=recurrent", says="recurrent has no heads: this mode"
    )
    folder = tiny.copy(tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    forget_weights(folder)
    refused("--mode=intervene", f"--workdir={folder}", says="has no checkpoint")
