"""Attention that never holds all weights equals the plain form, and so do its gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import reference
from source_settings import refused
from tiny_models import holey_inputs, random, tiny_config, tiny_inputs, tiny_model
from transformer.errors import UserError
from transformer.model import attention, build
from transformer.model import attention_variants as variants
from transformer.model.attention import MultiHeadAttention
from transformer.model.interventions import Change
from transformer.model.interventions import variables as intervening
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.masks import AttentionPattern
from transformer.model.positions.registry import acts_in, fitting_names
from variants import full_but

pytestmark = pytest.mark.device

B, L, M, D, CHUNK = 3, 7, 5, 22, 3  # so that the last chunk of both lengths is padded
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}
CASES = {
    **{
        name: {"positions": name, "cross_positions": "none" if acts_in(name, ["add"]) else name}
        for name in fitting_names(tiny_config())
    },
    "sum": {"positions": "learned+relative_bias+relative_shaw+alibi"},
    "variants": {"num_heads": 4, "head_size": 6, "num_kv_heads": 2, "talking_heads": True,
                 "query_key_norm": "l2", "positions": "rotary+relative_shaw",
                 "attention_sink": "learned", "head_gate": True},
    "scanned": {"scan_layers": True, "remat": True, "positions": "relative_bias+relative_shaw",
                "num_decoder_layers": 2},
    "shared": {"share_layers": True, "num_decoder_layers": 2, "query_key_norm": "layer",
               "norm_position": "pre", "positions": "relative_bias"},
}  # fmt: skip


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setitem(attention.CHUNK_SCORES, jax.default_backend(), 0)
    monkeypatch.setattr(attention, "MIN_QUERIES", CHUNK)


def loss(model, variables, inputs):
    """Outputs at all positions, those of padding too, and the gradient of a sum of them."""

    def total(variables):
        logits = model.apply(variables, *inputs)
        return jnp.sum(logits * jnp.sin(jnp.arange(logits.size)).reshape(logits.shape)), logits

    return jax.value_and_grad(total, has_aux=True)(variables)


def pair(**changes):
    """The same variables with a plain and a chunked model."""
    plain, variables = tiny_model(**ONE_LAYER | changes)
    chunked, _ = tiny_model(**ONE_LAYER | changes, attention_implementation="chunked")
    return plain, chunked, variables


def assert_equal(ours, plain):
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", full_but(["relative_shaw"], CASES))
def test_chunks_equal_the_plain_form(small_chunks, name):
    plain, chunked, variables = pair(**CASES[name])
    if name == "relative_shaw":  # with interventions that depend on positions and sentences
        scales = random(1, 2, L, L), random(B, 2, L, M, seed=1)
        kinds = ("decoder_layers", "self_attention"), ("decoder_layers", "cross_attention")
        places = [(*kind, "weights") for kind in kinds]
        changes = {p: {0: Change(x, 1 - x, x)} for p, x in zip(places, scales, strict=True)}
        variables = {**variables, "interventions": intervening(changes, plain.config)}
    inputs = holey_inputs()
    ours, expected = (
        jax.jit(functools.partial(loss, m))(variables, inputs) for m in (chunked, plain)
    )
    assert np.abs(expected[0][1]).max() > 1.0
    assert_equal(ours, expected)


@pytest.mark.full
def test_chunks_keep_the_documents_of_a_row_apart(small_chunks):
    models = [
        tiny_model(num_encoder_layers=0, num_decoder_layers=1, positions="relative_bias", **changes)
        for changes in ({"attention_implementation": "chunked"}, {})
    ]
    tokens = tiny_inputs().target
    segments = jnp.array([[1, 1, 2, 2, 2, 3, 3], [1, 1, 1, 1, 2, 0, 0], [1, 2, 2, 2, 2, 2, 2]])

    def run(model, variables, segments):
        return model.apply(variables, None, tokens, None, segments > 0, NO_DROPOUT, segments)

    ours, plain = (run(*model, segments) for model in models)
    assert_equal(ours, plain)
    assert np.abs(run(*models[0], jnp.ones_like(segments)) - plain).max() > 1e-2  # control


def shapes(jaxpr):
    """The shapes of all arrays of a program, in loops and functions of it too."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for inner in jaxprs_in_params(equation.params):
            yield from shapes(inner)


def test_no_array_has_an_axis_of_all_queries_and_one_of_all_keys(small_chunks):
    plain, chunked, variables = pair(
        positions="relative_bias+relative_shaw", cross_positions="alibi"
    )
    inputs = tiny_inputs()

    def pairs(model):
        program = jax.make_jaxpr(functools.partial(loss, model))(variables, inputs)
        lengths = ([size for size in shape if size in (L, M)] for shape in shapes(program.jaxpr))
        return {tuple(sizes) for sizes in lengths if len(sizes) > 1}

    assert pairs(chunked) == set()
    assert {(L, L), (M, M), (L, M)} <= pairs(plain)  # control


@pytest.mark.full
def test_each_chunk_drops_other_weights_and_a_seed_repeats_them(small_chunks):
    config = tiny_config(attention_implementation="chunked")
    p = reference.parameters(config)["decoder_layers_0"]["cross_attention"]
    x = jnp.ones((B, L, D))  # so that without dropout all queries have one output
    memory = jnp.asarray(np.random.default_rng(1).normal(size=(B, M, D)), jnp.float32)
    module = MultiHeadAttention(config, "none")
    pattern = AttentionPattern(
        jnp.ones((B, M), bool), jnp.arange(L), jnp.arange(M), lambda *_: None
    )

    def attend(seed, rate):
        rngs = {"dropout": jax.random.key(seed)}
        return module.apply(
            {"params": p}, x, memory, pattern, DropoutRates(attention=rate), rngs=rngs
        )

    one = attend(1, 0.5)
    np.testing.assert_array_equal(one, attend(1, 0.5))
    differences = (one[:, CHUNK:] - one[:, :-CHUNK], one - attend(2, 0.5))
    assert all(np.abs(difference).max(axis=-1).min() > 1e-3 for difference in differences)
    whole = attend(1, 0.0)
    np.testing.assert_allclose(
        whole, jnp.broadcast_to(whole[:, :1], whole.shape), rtol=1e-5
    )  # control


def test_whoever_asks_for_weights_gets_them(small_chunks):
    plain, chunked, variables = pair(positions="relative_bias")
    asked = [
        m.apply(variables, *tiny_inputs(), mutable=["intermediates"]) for m in (chunked, plain)
    ]
    jax.tree.map(np.testing.assert_array_equal, *asked)
    # Weights, heads and norms of 3 attentions, two values of 5 residuals, and 2 embeddings.
    assert len(jax.tree.leaves(asked[0][1])) == 3 * 3 + 2 * 5 + 2


# --- cuDNN's attention, whose arguments are tried with XLA's


FITTING = {"attention_implementation": "flash", "dtype": "bfloat16", "head_size": 8}


@pytest.mark.full
@pytest.mark.parametrize("name", full_but(("variants",), ("absolute", "variants")))
def test_the_arguments_of_flash_attention_describe_the_plain_form(monkeypatch, name):
    changes = {
        "absolute": {"positions": "sinusoidal"},
        "variants": {"num_heads": 4, "head_size": 6, "num_kv_heads": 2, "query_key_norm": "l2",
                     "positions": "rotary", "cross_positions": "rotary", "head_gate": True},
    }[name]  # fmt: skip
    plain, variables = tiny_model(**ONE_LAYER | changes)
    fused, _ = tiny_model(**ONE_LAYER | changes, attention_implementation="flash")
    by_xla = functools.partial(variants.flash_attention, implementation="xla")
    monkeypatch.setattr(variants, "check_flash_call", lambda dropout: None)
    monkeypatch.setattr(variants, "flash_attention", by_xla)
    inputs = tiny_inputs(source_lengths=(5, 3, 0))
    ours = jax.jit(functools.partial(loss, fused))
    expected = jax.jit(functools.partial(loss, plain))(variables, inputs)
    assert_equal(ours(variables, inputs), expected)
    whole = inputs._replace(source_mask=jnp.ones_like(inputs.source_mask))
    assert np.abs(ours(variables, whole)[0][1] - expected[0][1]).max() > 1e-2  # control


@pytest.mark.parametrize("length", full_but((64,), (64, 61)))  # cuDNN has even lengths alone
@pytest.mark.parametrize("look_ahead", full_but([True], [True, False]))
@pytest.mark.parametrize("implementation", ["xla", "cudnn"])
def test_flash_attention_on_this_device_has_the_values_and_gradients_of_equation_1(
    implementation, look_ahead, length
):
    if implementation == "cudnn":
        try:
            variants.check_flash_call(dropout=False)
        except UserError as error:
            pytest.skip(str(error))
    rng = np.random.default_rng(0)
    heads = [jnp.asarray(rng.normal(size=(3, length, 4, 16)), jnp.bfloat16) for _ in range(3)]
    there = jnp.arange(length)
    is_key = there < jnp.array([length, 37, 0])[:, None]
    pattern = AttentionPattern(is_key, there, there, lambda *_: None, look_ahead=look_ahead)

    def total(attend):
        return lambda heads: jnp.sum(jnp.sin(attend(*heads).astype(jnp.float32)))

    def plain(*heads):
        wide = (x.astype(jnp.float32) for x in heads)
        return attention.scaled_dot_product_attention(*wide, pattern.inputs(there).mask)[0]

    def fused(*heads):
        return variants.flash_attention(*heads, pattern, implementation=implementation)

    ours = jax.jit(jax.value_and_grad(total(fused)))(heads)
    expected = jax.jit(jax.value_and_grad(total(plain)))(heads)
    np.testing.assert_allclose(fused(*heads), plain(*heads), atol=2e-2)
    for got, want in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        want = np.asarray(want, np.float32)
        np.testing.assert_allclose(np.asarray(got, np.float32), want, rtol=2e-2, atol=2e-2)
    assert np.abs(np.asarray(expected[1][0], np.float32)).max() > 0.1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dtype": "float32"}, "model.dtype='float32'"),
        ({"head_size": 11}, "width 11"),
        ({"talking_heads": True}, "talking_heads"),
        ({"attention_sink": "one"}, "model.attention_sink='one'"),
        ({"positions": "sinusoidal+alibi"}, "model.positions='sinusoidal+alibi'"),
    ],
)
def test_what_flash_attention_cannot_compute_is_refused_in_one_line(changes, named):
    build.build_model(tiny_config(**FITTING))
    with refused(named, "'chunked'"):
        build.build_model(tiny_config(**FITTING | changes))


def refuse_flash(says, rates=NO_DROPOUT, segments=None):
    model, variables = tiny_model(**FITTING, **ONE_LAYER)
    rest, rngs = (*tiny_inputs(), rates, segments), {"dropout": jax.random.key(0)}
    with refused(says):
        jax.eval_shape(lambda variables: model.apply(variables, *rest, rngs=rngs), variables)


def test_a_device_without_cudnn_dropped_weights_and_documents_are_refused(monkeypatch):
    if jax.default_backend() == "cpu":
        refuse_flash("not cpu")
    refuse_flash("dropout_attention=0.0", DropoutRates(attention=jnp.float32(0.1)))
    monkeypatch.setattr(variants, "check_flash_call", lambda dropout: None)
    by_xla = functools.partial(variants.flash_attention, implementation="xla")
    monkeypatch.setattr(variants, "flash_attention", by_xla)
    refuse_flash("documents", segments=jnp.ones((B, L), jnp.int32))


def test_flash_attention_needs_a_gpu_of_compute_capability_8(monkeypatch):
    class Device:
        platform, device_kind, compute_capability = "gpu", "a GPU", "7.5"

    monkeypatch.setattr(jax, "local_devices", lambda: [Device])
    with pytest.raises(UserError, match="compute capability 8"):
        variants.check_flash_call(dropout=False)
    Device.compute_capability = "8.0"
    variants.check_flash_call(dropout=False)
