"""Layers and attributions are those of equations, derivatives and whole predictions."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from tiny_models import tiny_config, tiny_model
from tiny_run import command, refused
from transformer.data.batches import Batch
from transformer.errors import UserError
from transformer.inference import explanations
from transformer.inference.translator import Translator
from transformer.model.interventions import Change, sown, variables
from variants import full_but

MODELS = {
    "pre": {"norm_position": "pre"},
    "both, scanned": {"norm_position": "both", "scan_layers": True},
    "post, shared": {"share_layers": True, "tied_embeddings": "decoder"},
    "all tied, RMS": {"norm_position": "pre", "norm": "rms", "tied_embeddings": "all"},
}
SOURCE, TARGET = [4, 9, 7, 3, 0], [2, 11, 5, 8, 0, 0, 0]
LABELS = [11, 5, 8, 3, 0, 0, 0]


@functools.cache
def tiny(**changes):
    """A translator without tokenizers, its variables, and a padded pair."""
    translator = Translator.__new__(Translator)
    translator.model, own = tiny_model(**changes)
    return translator, own, Batch(*(np.array([ids]) for ids in (SOURCE, TARGET, LABELS)))


@pytest.mark.parametrize("name", full_but(["pre"], MODELS))
def test_each_layer_is_normalised_by_itself_and_the_last_is_the_models_output(name):
    translator, own, batch = tiny(**MODELS[name])
    config, params = translator.model.config, reference.float64(own["params"])
    stacks = ("decoder", "encoder")[: 1 + config.one_table]

    @jax.jit
    def run(own, batch):
        logits = [
            explanations.project_streams(translator, own, batch, stack, "logits")
            for stack in stacks
        ]
        whole = translator.model.apply(own, *translator.inputs(batch))
        return translator.sown(own, batch), dict(zip(stacks, logits, strict=True)), whole

    values, projected, whole = run(own, batch)
    np.testing.assert_allclose(projected["decoder"][-1], whole, rtol=1e-5, atol=1e-5)
    for stack, ours in projected.items():
        layers = sown(values, f"{stack}_layers", "feed_forward_residual", "stream")
        streams = reference.float64([values[f"{stack}_embedding"][0], *layers])
        tied = config.tied_embeddings != "none"
        table = params["target_embedding" if tied else "output_embedding"]["table"]
        for x, logits in zip(streams, ours, strict=True):
            if config.normalizes_input:
                p = params[f"{stack}_norm"]
                rows = reference.norm(p, x[0], config)
                wrong = (x - x.mean(-1, keepdims=True)) / streams[-1].std(-1, keepdims=True)
                wrong = (wrong * p["scale"] + p.get("bias", 0)) @ table.T  # of the last layer
                is_last = np.array_equal(x, streams[-1])
                assert is_last or np.abs(wrong - logits).max() > 0.1  # control
            else:
                rows = x[0]
            np.testing.assert_allclose(logits[0], rows @ table.T, rtol=1e-4, atol=1e-5)


def attributed(translator, own, batch, points, scale):
    return jax.device_get(
        explanations._attribute(translator, own, batch, np.float32(points), scale)
    )


@pytest.mark.parametrize("name", full_but(["pre"], MODELS))
def test_integrated_gradients_sum_to_the_change_and_none_is_of_the_future(name):
    activation = "relu" if "post" in name else "gelu"  # the sum over jumps converges slowly
    translator, own, batch = tiny(**MODELS[name], activation=activation)
    values, change = attributed(translator, own, batch, (np.arange(128) + 0.5) / 128, 1.0)
    np.testing.assert_allclose(values.sum(axis=1)[:4], change[:4], atol=1e-3)
    assert not values[:4, 4:5].any()
    assert not np.triu(values[:, 5:], 1).any()
    few, _ = attributed(translator, own, batch, np.full(128, 0.5), 1.0)
    assert np.abs(few.sum(axis=1) - change)[:4].max() > 0.05  # control


def test_gradients_times_inputs_are_derivatives_by_the_scale_of_each_embedding():
    translator, own, batch = tiny(**MODELS["pre"], activation="gelu")
    values, _ = attributed(translator, own, batch, np.ones(128), 0.0)

    def log_probs(scales):
        sides = jnp.split(scales[None, :, None], [len(SOURCE)], axis=1)
        changes = {(x,): Change(y) for x, y in zip(explanations.EMBEDDINGS, sides, strict=True)}
        changed = {**own, "interventions": variables(changes, translator.model.config)}
        [logits] = translator.model.apply(changed, *translator.inputs(batch))
        return jax.nn.log_softmax(logits)[jnp.arange(len(LABELS)), jnp.array(LABELS)]

    expected = jax.jacobian(log_probs)(jnp.ones(len(SOURCE) + len(TARGET)))
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


PAIRS = {"translation": ("a b c", "c d"), "language_model": ("one red cat", None)}


@pytest.mark.parametrize("task", PAIRS)
def test_a_run_reads_its_layers_and_attributes_what_it_writes(loaded, task):
    run, (text, target) = loaded[task], PAIRS[task]
    [tokens] = run.next_tokens([text], None if target is None else [target], 3)
    lenses = run.lens(text, target, 3)
    decoder, source = lenses["decoder"], [*lenses["encoder"].tokens] if target else []
    assert decoder.tokens == [each.token for each in tokens]
    names = [[each.token for each in token.best] for token in tokens]
    assert decoder.best[-1].tolist() == names
    log_probs = [each.log_prob for each in tokens]
    np.testing.assert_allclose(decoder.token_log_probs[-1], log_probs, atol=1e-5)
    each = run.attribution(text, target)
    assert (each.source_tokens, each.written_tokens) == (source, decoder.tokens)
    assert each.target_tokens == ["<s>", *decoder.tokens[:-1]]
    np.testing.assert_allclose(each.values.sum(axis=1), each.change, atol=1e-2)
    np.testing.assert_allclose(np.abs(each.fractions).sum(axis=1), 1, rtol=1e-5)
    if target:
        assert source == ["▁a", "▁b", "▁c", "</s>"]
        own, [best] = run.attribution(text, method="gradient_x_input"), run.translate([text])
        again = run.attribution(text, best, "gradient_x_input")
        np.testing.assert_array_equal(own.values, again.values)
        assert not np.allclose(own.change, own.values.sum(axis=1), atol=1e-1)  # control


REFUSALS = {
    "classification.lens": (("a",), "lens is for config.task=translation or language_model"),
    "language_model.attribution": (("a", "b"), "language_model has no target"),
    "translation.lens": (("a", None, 0), "num_best=0 is not between"),
    "translation.attribution": (("a", "b", "saliency"), "choose one of integrated_gradients"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_run_cannot_explain_is_said_in_one_line(loaded, name):
    task, method = name.split(".")
    arguments, says = REFUSALS[name]
    with pytest.raises(UserError, match=says):
        getattr(loaded[task], method)(*arguments)


def test_a_model_without_a_residual_stream_has_no_lens():
    model = SimpleNamespace(has_heads=False, config=tiny_config(architecture="recurrent"))
    with pytest.raises(UserError, match="recurrent has no residual stream"):
        explanations.read_layers(SimpleNamespace(model=model), {}, ["a"], 1)


def test_the_modes_draw_each_stack_and_say_what_limits_the_lens(copy):
    at = f"--workdir={copy}", "--sentence=a b c"
    ended = command("--mode=lens", *at)
    assert "norm_position=post" in ended.err
    assert command("--mode=attribution", *at, "--translation=c d").code == ended.code == 0
    drawn = sorted(path.name for path in (copy / "figures").glob("attention_a_*/*.png"))
    assert drawn == ["attribution.png", "lens_decoder.png", "lens_encoder.png"]
    refused("--mode=lens", f"--workdir={copy}", says=("--sentence is missing",))
