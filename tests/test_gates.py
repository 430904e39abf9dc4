"""Gates switch heads off exactly, and what nobody asks for is not in the compiled program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import tiny_config, tiny_inputs, tiny_model
from test_stepwise import full_pass, search
from transformer.model.attention import MultiHeadAttention
from transformer.model.classifier import Classifier
from transformer.model.gates import gate_variables, unit_gates
from transformer.model.layers import DropoutRates
from transformer.model.stack import ATTENTIONS

SHAPES = {"encoder_self": (2, 2), "decoder_self": (2, 2), "cross": (2, 2)}
KINDS = {
    "plain": {},
    "scanned": {"scan_layers": True, "positions": "rotary"},
    "shared": {"share_layers": True},
    "scanned and shared": {"scan_layers": True, "share_layers": True},
    "grouped, talking and placed": {
        **{"num_heads": 4, "head_size": 6, "num_kv_heads": 2, "talking_heads": True},
        **{"positions": "relative_shaw", "remat": True},
    },
}


def output_kernel(params, config, kind, layer):
    """The parameters of W^O of a layer, and where in its kernel the layer's own stands."""
    stack, attention = ATTENTIONS[kind]
    if config.scan_layers:
        place = () if config.share_layers else (layer,)
        return params[stack][attention]["output"], place
    return params[f"{stack}_{layer}"][attention]["output"], ()


def without(params, config, kind, layer, head):
    """The parameters with zeros in the rows of W^O that belong to a head."""
    params = jax.tree.map(lambda x: x, params)  # dictionaries of its own
    output, place = output_kernel(params, config, kind, layer)
    rows = slice(head * config.head_width, (head + 1) * config.head_width)
    output["kernel"] = output["kernel"].at[(*place, rows)].set(0.0)
    return params


@pytest.mark.parametrize("name", KINDS)
def test_a_gate_of_one_changes_nothing_and_one_of_zero_removes_its_head(name):
    model, variables = tiny_model(**KINDS[name])
    config, inputs = model.config, tiny_inputs()
    ones = unit_gates(config)
    depth = 1 if config.share_layers else 2
    shapes = dict.fromkeys(SHAPES, (depth, config.num_heads))
    assert {kind: gates.shape for kind, gates in ones.items()} == shapes

    @jax.jit
    def gated(gates):
        return model.apply({**variables, "gates": gate_variables(gates, config)}, *inputs)

    plain = jax.jit(lambda params: model.apply({"params": params}, *inputs))
    expected = plain(variables["params"])
    np.testing.assert_allclose(gated(ones), expected, rtol=1e-6, atol=1e-6)
    for kind, layer, head in (("encoder_self", 0, 1), ("decoder_self", -1, 0), ("cross", -1, 1)):
        layer %= depth
        found = gated({**ones, kind: ones[kind].at[layer, head].set(0.0)})
        removed = plain(without(variables["params"], config, kind, layer, head))
        np.testing.assert_allclose(found, removed, rtol=1e-5, atol=1e-5)
        assert np.abs(found - expected).max() > 1e-2  # control: the head counts


def test_stepwise_logits_with_gates_are_the_full_passs_with_gates():
    model, variables = tiny_model(positions="relative_shaw", scan_layers=True)
    plain, _ = search(model, variables, lambda cache, parents: cache.reorder(parents))
    gates = {kind: jnp.array([[0.0, 1.5], [-0.5, 1.0]]) for kind in SHAPES}
    variables |= {"gates": gate_variables(gates, model.config)}
    logits, histories = search(model, variables, lambda cache, parents: cache.reorder(parents))
    np.testing.assert_allclose(logits, full_pass(model, variables, histories), rtol=1e-5, atol=1e-5)
    assert np.abs(logits - plain).max() > 0.1  # control


def test_the_gradient_of_a_gate_is_that_of_its_rows_times_the_rows():
    # What a gate multiplies is next multiplied by the head's rows of W^O, and by nothing else.
    model, variables = tiny_model()
    config, inputs = model.config, tiny_inputs()

    @jax.jit
    @jax.grad
    def gradients(both):
        params, gates = both
        variables = {"params": params, "gates": gate_variables(gates, config)}
        return jnp.square(model.apply(variables, *inputs)).sum()

    of_params, of_gates = gradients((variables["params"], unit_gates(config)))
    for kind, (layers, heads) in SHAPES.items():
        for layer in range(layers):
            trees = (of_params, variables["params"])
            gradient, rows = (output_kernel(tree, config, kind, layer)[0] for tree in trees)
            products = np.float64(gradient["kernel"]) * np.float64(rows["kernel"])
            expected = products.reshape(heads, -1).sum(axis=1)
            np.testing.assert_allclose(of_gates[kind][layer], expected, rtol=1e-4)
            assert abs(expected[0] - expected[1]) > 1.0  # control


def test_parts_alone_and_classifiers_have_the_gates_of_their_part():
    assert unit_gates(tiny_config(num_encoder_layers=0)).keys() == {"decoder_self"}
    config = tiny_config(num_encoder_layers=3, num_decoder_layers=0)
    gates = unit_gates(config)
    assert {kind: own.shape for kind, own in gates.items()} == {"encoder_self": (3, 2)}
    model, tokens = Classifier(config, 5, "mean"), jnp.arange(1, 8)[None]
    variables = jax.jit(model.init)(jax.random.key(0), tokens, tokens > 0)

    @jax.jit
    def logits(gates):
        own = {**variables, "gates": gate_variables(gates, config, "encoder")}
        return model.apply(own, tokens, tokens > 0).logits

    expected = jax.jit(model.apply)(variables, tokens, tokens > 0).logits
    np.testing.assert_allclose(logits(gates), expected, rtol=1e-5, atol=1e-6)
    off = logits({"encoder_self": gates["encoder_self"].at[2].set(0.0)})
    assert np.abs(off - expected).max() > 1e-3


def programs(model, variables):
    """What is compiled for training, for reading and for a step of decoding, as StableHLO."""
    inputs = tiny_inputs()
    rates = DropoutRates(residual=0.1, attention=0.1)

    def loss(variables, key):
        logits = model.apply(variables, *inputs, rates, rngs={"dropout": key})
        return jnp.square(logits).sum()

    def decode(variables):
        source, _, mask, _ = inputs
        cache = model.apply(variables, source, mask, 2, 3, method="start")
        return model.apply(variables, source[:, :2], cache, method="step")[0]

    return {
        "training": jax.jit(jax.grad(loss)).lower(variables, jax.random.key(0)).as_text(),
        "reading": jax.jit(model.apply).lower(variables, *inputs).as_text(),
        "decoding": jax.jit(decode).lower(variables).as_text(),
    }


def test_gates_and_norms_nobody_asks_for_are_not_in_the_program(monkeypatch):
    model, variables = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    plain = programs(model, variables)
    gates = gate_variables(unit_gates(model.config), model.config)
    gated = programs(model, {**variables, "gates": gates})
    explained = jax.jit(lambda v, *x: model.apply(v, *x, mutable=["intermediates"]))
    asked = explained.lower(variables, *tiny_inputs()).as_text()
    # An attention that can neither sow nor look for gates is compiled to the same letters.
    monkeypatch.setattr(MultiHeadAttention, "sow", lambda *_: None)
    monkeypatch.setattr(MultiHeadAttention, "is_mutable_collection", lambda *_: False)
    monkeypatch.setattr(MultiHeadAttention, "has_variable", lambda *_: False)
    bare = programs(model, variables)
    assert bare == plain
    # Controls: gates that are there, and weights and norms that are asked for, are in it.
    assert all(gated[name] != bare[name] for name in bare)
    assert "sqrt" in asked
    assert (
        asked.count("stablehlo.dot_general") == plain["reading"].count("stablehlo.dot_general") + 3
    )
