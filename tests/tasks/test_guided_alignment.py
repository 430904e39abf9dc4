"""Guided alignment is the loss of its equation, on the weights that the model attends with."""

import functools
import stat

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.modes.clean import _align, symmetrize
from runs import toy_config
from source_settings import refused
from transformer.checks import check
from transformer.data.batches import Batch
from transformer.data.pairs import Pair
from transformer.model.interventions import sown
from transformer.model.losses import guided_alignment
from transformer.tasks.translation import TranslationTask

B, L, M = 2, 7, 5
RNG = np.random.default_rng(3)
LINKS = RNG.random((B, L, M)) < 0.3
LINKS[0, 2], LINKS[1, 4] = False, True


def by_loop(scores):
    """The loss of softmax(scores) in float64, row by row."""
    total = 0.0
    for b, l in np.ndindex(B, L):  # noqa: E741
        weights = np.exp(np.float64(scores[b, l]))
        weights /= weights.sum()
        linked = [-np.log(weights[m]) for m in range(M) if LINKS[b, l, m]]
        total += sum(linked) / len(linked) if linked else 0.0
    return total


def test_the_loss_and_its_gradient_are_those_of_a_loop_over_rows():
    scores = RNG.normal(size=(B, L, M))

    def loss(scores):
        return guided_alignment(jax.nn.softmax(scores), jnp.asarray(LINKS))

    value, gradient = jax.value_and_grad(loss)(jnp.asarray(scores, jnp.float32))
    assert value == pytest.approx(by_loop(scores), rel=1e-5)
    for place in np.ndindex(B, L, M):
        step = np.zeros_like(scores)
        step[place] = 1e-5
        slope = (by_loop(scores + step) - by_loop(scores - step)) / 2e-5
        assert gradient[place] == pytest.approx(slope, abs=1e-5)
    assert not gradient[0, 2].any()  # a row without links is not trained
    assert gradient[1, 4].any()
    assert jnp.isfinite(guided_alignment(jnp.zeros((B, L, M)), jnp.asarray(LINKS)))


@functools.cache
def make_task(cache, **changes):
    changes = {"train.guided_alignment": 0.7, "model.num_decoder_layers": 2, **changes}
    return TranslationTask(toy_config(cache, **changes))


VARIANTS = [
    {},
    {"train.guided_layer": 1, "train.guided_head": 2, "train.r_drop": 0.5},
    {"model.scan_layers": True, "model.remat": True, "train.guided_layer": 1},
    {"model.share_layers": True, "model.talking_heads": True},
    {"model.attention_sink": "learned", "model.matmul_dtype": "bfloat16"},
]


@pytest.mark.full
@pytest.mark.parametrize("changes", VARIANTS)
def test_the_loss_is_added_for_the_weights_of_the_chosen_layer_and_head(changes, tmp_path):
    task = make_task(tmp_path, **changes)
    batch, hparams = jax.tree.map(jnp.asarray, task.plan[0]), task.hparams()
    params = task.draw_params(jax.random.key(1))
    hparams = {k: 0.0 if k.startswith("dropout_") else x for k, x in hparams.items()}
    loss = jax.jit(lambda hparams: task.loss(params, batch, hparams, jax.random.key(0)))
    losses = [loss(hparams | {"guided_alignment": weight}) for weight in (0.0, 1.0, 2.0)]
    values = jax.jit(task.predictor.sown)({"params": params}, Batch(*batch[:3]))
    layers = sown(values, "decoder_layers", "cross_attention", "weights")
    heads = layers[changes.get("train.guided_layer", 0) - 1]
    head = changes.get("train.guided_head", 0)
    weights = heads[:, head - 1] if head else heads.mean(axis=1)
    expected = -np.log(np.where(batch.links, np.float64(weights), 1.0)).sum()  # one link a row
    assert batch.links.sum(axis=-1).max() == 1
    np.testing.assert_allclose(losses[1].loss - losses[0].loss, expected, rtol=2e-4)
    np.testing.assert_allclose(losses[2].loss - losses[0].loss, 2 * expected, rtol=2e-4)
    np.testing.assert_array_equal(losses[1][1:], losses[0][1:])  # nll, correct, weight


def test_a_step_without_guided_alignment_reads_no_links(tmp_path):
    task = make_task(tmp_path, **{"train.guided_alignment": 0.0})
    assert "guided_alignment" not in task.hparams()
    assert type(task.plan[0]) is Batch


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model.attention_implementation": "chunked"}, "attention_implementation=plain"),
        ({"train.guided_layer": 3}, "layer 3, head mean"),
        ({"train.guided_head": 3}, "layer last, head 3"),
        ({"model.architecture": "recurrent"}, "set it to 0"),
        ({"task": "language_model", "train.best_metric": "loss"}, "set it to 0"),
    ],
)
def test_weights_that_a_model_does_not_have_are_refused(changes, says, tmp_path):
    settings = {"train.guided_alignment": 0.1, "model.num_decoder_layers": 2}
    check(toy_config(tmp_path, **settings))
    with refused(says):
        check(toy_config(tmp_path, **settings, **changes))


# -- links of an aligner


def test_links_of_both_directions_grow_from_those_that_agree():
    # 0-0 agrees; 1-1 is its neighbour; 4-4 is far, and of words that have no other link; 3-0 and
    # 0-3 are far, and of words that have one.
    forward, reverse = {(0, 0), (1, 1), (4, 4), (3, 0)}, {(0, 0), (0, 3)}
    assert symmetrize(forward, reverse) == {(0, 0), (1, 1), (4, 4)}
    assert symmetrize(set(), {(2, 5)}) == {(2, 5)}
    # Two source words grow to one target word, but a third of words that are taken does not.
    assert symmetrize({(0, 0), (1, 0)}, {(0, 0)}) == {(0, 0), (1, 0)}
    assert symmetrize({(0, 0), (1, 1), (0, 1)}, {(0, 0), (1, 1)}) == {(0, 0), (1, 1)}


def test_an_aligner_reads_a_line_for_each_pair_and_is_named_if_it_is_missing(tmp_path):
    program = tmp_path / "aligner"
    program.write_text('#!/bin/sh\ncp "$2" "$6.text"; sed "s/.*/0-0/" "$2" > "$6"; cp "$6" "$8"\n'
                       f'cp "$2" {tmp_path}/source; [ -s "$4" ]\n')  # fmt: skip
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    pairs = [Pair("Ein  Haus\N{NO-BREAK SPACE}hier", "A house"), Pair("x", ""), Pair("Ja", "Yes")]
    path = _align(pairs, bytes([0, 1, 0]), tmp_path, str(program))
    assert (tmp_path / "source").read_text() == "ein haus_hier\n\nja\n"
    assert path.read_text() == "0-0\n" * 3
    with refused("--aligner=no-such-program is not a program", "pip install eflomal"):
        _align(pairs, bytes(3), tmp_path, "no-such-program")
