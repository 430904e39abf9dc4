"""Each published variant equals its paper's equations, alone and combined."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_stepwise import full_pass, search
from test_transformer import by_loops

import reference
from tiny_models import tiny_config, tiny_inputs, tiny_model
from transformer.model.positions.relative import alibi_slopes, distance_buckets
from transformer.model.transformer import Transformer
from variants import EACH_VALUE, MODELS, VARIANTS, full_but

ALONE = {"num_encoder_layers": 0, "positions": "relative_shaw", "num_kv_heads": 1}


@pytest.mark.parametrize("name", [*full_but(VARIANTS, MODELS), "decoder alone"])
def test_the_model_equals_the_papers_equations_in_float64(name):
    model, variables = tiny_model(**MODELS.get(name, ALONE))
    inputs = tiny_inputs()
    logits = jax.jit(model.apply)(variables, *inputs)
    expected = by_loops(variables["params"], inputs, model.config)
    assert np.abs(expected).max() > 1.0  # so that an error of 1e-5 is a small one
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "without"),
    [(name, other) for name, (_, *others) in VARIANTS.items() for other in others],
    ids=str,
)
def test_the_comparison_sees_a_model_without_the_variant(name, without):
    changes, inputs = VARIANTS[name][0], tiny_inputs()
    configs = tiny_config(**changes), tiny_config(**{**changes, **without})
    # Parameters that both models have are equal in both.
    one, other = (by_loops(reference.parameters(own), inputs, own) for own in configs)
    assert (np.abs(one - other).max(axis=(1, 2)) > 1e-3).all()


# test_stepwise.py holds the encodings alone.
@pytest.mark.parametrize(
    "fields",
    [
        *full_but(EACH_VALUE[:2], EACH_VALUE),
        ALONE,
        *(pytest.param(fields[0], marks=pytest.mark.full) for fields in VARIANTS.values()),
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_stepwise_logits_are_the_full_passs_on_each_hypothesis_own_history(fields):
    model, variables = tiny_model(**{"num_encoder_layers": 1, **fields})
    logits, histories = search(model, variables, lambda cache, parents: cache.reorder(parents))
    np.testing.assert_allclose(logits, full_pass(model, variables, histories), rtol=1e-5, atol=1e-5)


def test_sinks_start_at_one_and_gates_half_open_and_vmapped_runs_have_their_own():
    config, inputs = tiny_config(attention_sink="learned", head_gate=True), tiny_inputs()
    start = Transformer(config).init(jax.random.key(0), *inputs)["params"]
    attention = start["decoder_layers_1"].pop("cross_attention")
    assert not attention["sink"].any()
    assert not attention["head_gate"]["kernel"].any()
    each = [tiny_model(seed, attention_sink="learned", head_gate=True) for seed in (0, 1)]
    runs = jax.tree.map(lambda *arrays: jnp.stack(arrays), *(variables for _, variables in each))
    together = jax.jit(jax.vmap(lambda run: each[0][0].apply(run, *inputs)))(runs)
    for logits, (model, variables) in zip(together, each, strict=True):
        alone = jax.jit(model.apply)(variables, *inputs)
        np.testing.assert_allclose(logits, alone, rtol=1e-5, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1.0  # control


# --- what the variants do to one another's parameters


def layers_of(tree, config, make):
    """A tree in which the layers of each stack are what `make` does with a list of them."""
    sizes = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    layers = {
        side: [tree[f"{side}_layers_{n}"] for n in range(size)] for side, size in sizes.items()
    }
    others = {name: value for name, value in tree.items() if "_layers_" not in name}
    return {**others, **{k: v for side in layers for k, v in make(side, layers[side]).items()}}


@functools.lru_cache(2)
def program(config):
    return jax.jit(Transformer(config).apply)


def logits_of(params, **changes):
    return program(tiny_config(**changes))({"params": params}, *tiny_inputs())


def test_a_scanned_stack_is_the_stack_of_its_layers():
    config = tiny_config(num_encoder_layers=3)
    params = reference.parameters(config)

    def stacked(side, layers):
        return {f"{side}_layers": jax.tree.map(lambda *arrays: np.stack(arrays), *layers)}

    def scanned(make):
        tree = layers_of(params, config, make)
        return logits_of(tree, num_encoder_layers=3, scan_layers=True)

    expected = logits_of(params, num_encoder_layers=3)
    np.testing.assert_allclose(scanned(stacked), expected, rtol=1e-5, atol=1e-5)
    other = scanned(lambda side, layers: stacked(side, layers[::-1]))  # control
    assert np.abs(other - expected).max() > 1e-3


@pytest.mark.parametrize("scan_layers", full_but([True], [False, True]))
def test_a_shared_stack_is_one_of_equal_layers(scan_layers):
    config = tiny_config()
    params = reference.parameters(config)

    def first(side, layers):
        return {f"{side}_layers" + ("" if scan_layers else "_0"): layers[0]}

    def equal(side, layers):
        return {f"{side}_layers_{n}": layers[0] for n in range(len(layers))}

    one = layers_of(params, config, first)
    shared = logits_of(one, share_layers=True, scan_layers=scan_layers)
    expected = logits_of(layers_of(params, config, equal))
    np.testing.assert_allclose(shared, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(logits_of(params) - shared).max() > 1e-3  # control


ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.mark.parametrize(
    "changes",
    full_but([ONE_LAYER], [ONE_LAYER, {"scan_layers": True}, {"share_layers": True}]),
    ids=str,
)
def test_remat_changes_no_gradient(changes):
    params = reference.parameters(tiny_config(**changes))

    def gradients(remat):
        gradient = jax.grad(lambda p: (logits_of(p, remat=remat, **changes) ** 2).mean())
        return jax.jit(gradient)(params)

    expected, ours = gradients(False), gradients(True)
    assert np.abs(ours["source_embedding"]["table"]).max() > 0.01  # what passed every layer
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, expected
    )


# --- by hand


# 32 buckets up to a distance of 128. Both ways, 16 are for keys up to the query, 16 for those after
# it. Of each, 0 to 7 are for one distance; d beyond has 8 + floor(log(d / 8) / log(16) * 8), which
# is 8 + floor(2 log2(d / 8)): 11 is 0.92 beyond 8, 12 is 1.17, 90 is 6.98, 91 is 7.02.
BOTH_WAYS = {0: 0, -1: 1, -7: 7, -8: 8, -11: 8, -12: 9, -16: 10, -32: 12, -64: 14, -90: 14,
             -91: 15, -127: 15, -128: 15, -139: 15, 1: 17, 7: 23, 8: 24, 12: 25, 16: 26, 91: 31,
             139: 31}  # fmt: skip
# One way, 0 to 15 are for one distance; d beyond has 16 + floor(log(d / 16) / log(8) * 16), which
# is 16 + floor(16/3 log2(d / 16)): 18 is 0.91 beyond 16, 19 is 1.32, 32 is 5.33, 64 is 10.67, 112
# is 14.97, 113 is 15.04.
ONE_WAY = {0: 0, -1: 1, -15: 15, -16: 16, -18: 16, -19: 17, -32: 21, -64: 26, -112: 30, -113: 31,
           -128: 31, -139: 31}  # fmt: skip


def test_buckets_of_t5_by_hand():
    for bidirectional, by_hand in ((True, BOTH_WAYS), (False, ONE_WAY)):
        distances = jnp.array([[*by_hand]])
        assert distance_buckets(distances, 32, 128, bidirectional)[0].tolist() == [
            *by_hand.values()
        ]


def test_slopes_of_alibi_by_hand():
    powers = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    np.testing.assert_array_equal(alibi_slopes(8), powers)
    np.testing.assert_array_equal(alibi_slopes(6), [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8])
