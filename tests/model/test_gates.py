"""Gates ablate heads exactly, in stacked layers and in steps of decoding too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from tiny_models import tiny_config, tiny_inputs, tiny_model
from transformer.model.attention import MultiHeadAttention
from transformer.model.masks import AttentionInputs, look_ahead_mask
from transformer.model.stack import gate_variables, unit_gates

SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
B, L, D = 3, 7, 22


def test_a_gate_of_one_changes_nothing_and_one_of_zero_removes_its_head():
    groups = {"num_heads": 4, "num_kv_heads": 2, "talking_heads": True, "head_size": 11}
    config = tiny_config(positions="relative_shaw", **groups)
    params = reference.parameters(config)["decoder_layers_0"]["self_attention"]
    x = jnp.asarray(np.random.default_rng(0).normal(size=(B, L, D)), jnp.float32)
    there = jnp.arange(L)
    inputs = AttentionInputs(look_ahead_mask(there, there), there, there)
    module = MultiHeadAttention(config, "relative_shaw")

    def attend(params, **variables):
        return module.apply({"params": params, **variables}, x, x, inputs)

    def gated(gates):
        return attend(params, gates={"heads": gates})

    ones = jnp.ones(config.num_heads)
    np.testing.assert_array_equal(gated(ones), attend(params))
    kernel = params["output"]["kernel"]
    for head in range(config.num_heads):
        removed = np.array(kernel)
        removed[head * 11 : (head + 1) * 11] = 0.0
        expected = attend({**params, "output": {**params["output"], "kernel": removed}})
        found = gated(ones.at[head].set(0.0))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert np.abs(found - gated(ones)).max() > 0.1  # control: the head counts
    # The output is linear in each gate, so its change is the gradient.
    _, changes = jax.jvp(gated, (ones,), (ones.at[1].set(0.0) - ones,))
    np.testing.assert_allclose(changes, gated(ones.at[1].set(0.0)) - gated(ones), atol=1e-5)


@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=pytest.mark.full)])
def test_stacked_layers_and_steps_of_decoding_have_their_gates(shared):
    fields = {**SMALL, "num_decoder_layers": 2, "scan_layers": True, "share_layers": shared}
    model, variables = tiny_model(**fields)
    source, target, mask, _ = tiny_inputs()

    @jax.jit
    def both(params, gates):
        own = {"params": params, "gates": gate_variables(gates, model.config)}
        cache = model.apply(own, source, mask, 1, 3, method="init_cache")
        logits, _ = model.apply(own, target[:, :1], cache, method="decode_step")
        return logits, model.apply(own, source, target[:, :1], mask, jnp.ones((B, 1), bool))

    ones, params = unit_gates(model.config), variables["params"]
    depth = 1 if shared else 2
    shapes = {"encoder_self": (1, 2), "decoder_self": (depth, 2), "cross": (depth, 2)}
    assert {kind: gates.shape for kind, gates in ones.items()} == shapes
    off = {**ones, "cross": ones["cross"].at[-1, 1].set(0.0)}
    stepwise, whole = both(params, off)
    np.testing.assert_allclose(stepwise, whole, rtol=1e-5, atol=1e-5)
    # The second head's rows of W^O, of the last layer where each has its own.
    output = params["decoder_layers"]["cross_attention"]["output"]
    output["kernel"] = output["kernel"].at[(slice(11, 22) if shared else (1, slice(11, 22)))].set(0)
    np.testing.assert_allclose(whole, both(params, ones)[1], rtol=1e-5, atol=1e-5)
    others = both(params, {**off, "decoder_self": 0 * ones["decoder_self"]})[1]
    assert np.abs(whole - others).max() > 0.01  # control: heads of another kind
