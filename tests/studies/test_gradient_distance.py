"""Gradients by distance are those of the model's embeddings, and fall as theory says."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clu.parameter_overview import count_parameters
from matplotlib.image import imread

from studies import gradient_distance
from studies.gradient_distance import (
    MODELS,
    VOCABULARY,
    build_figure,
    first_params,
    gradient_norms,
    main,
)
from tiny_models import tiny_config
from transformer.model.build import build_model

pytestmark = pytest.mark.full

LANGUAGE_MODEL = {"num_encoder_layers": 0, "num_decoder_layers": 1}
RNN = tiny_config(architecture="recurrent", cell="rnn", **LANGUAGE_MODEL)
TRANSFORMER = tiny_config(**LANGUAGE_MODEL)
# Both again with the vocabulary that the command draws from.
TINY_MODELS = {
    name: tiny_config(architecture=kind, cell="rnn", target_vocab_size=VOCABULARY, **LANGUAGE_MODEL)
    for name, kind in (("Transformer", "transformer"), ("simple RNN", "recurrent"))
}


@pytest.mark.parametrize("config", [TRANSFORMER, RNN], ids=["transformer", "rnn"])
def test_norms_are_of_the_table_rows_gradients_where_no_token_comes_twice(config):
    params = first_params(config, 3)
    tokens, labels = jnp.arange(1, 22).reshape(3, 7), jnp.array([4, 0, 22])
    model = build_model(config)

    def loss(params):
        bound = model.bind({"params": params})
        logits = bound.logits(bound.decode(tokens, None, None, tokens > 0))
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, -1], labels).sum()

    rows = jax.jit(jax.grad(loss))(params)["target_embedding"]["table"]
    # A lookup multiplies a row by sqrt(d_model), and so its gradient.
    expected = np.linalg.norm(rows[tokens], axis=-1) / np.sqrt(config.d_model)
    norms = gradient_norms(config, params, tokens, labels)
    np.testing.assert_allclose(norms, expected[:, ::-1], rtol=1e-4)
    assert not np.allclose(norms, expected, rtol=0.1)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25])
def test_the_gradient_of_a_linear_recurrence_is_the_power_of_its_factor(factor):
    # Inputs of zero keep the state at zero, where tanh has a slope of one: with the identity from
    # input to state and an orthogonal matrix times r from state to state, the norm is r^k.
    params = first_params(RNN, 5)
    params["target_embedding"]["table"] = jnp.zeros_like(params["target_embedding"]["table"])
    (cell,) = (params[name] for name in params if "recurrent_kernel" in params[name])
    cell["input_kernel"] = jnp.eye(RNN.d_model)
    cell["recurrent_kernel"] = factor * cell["recurrent_kernel"]
    norms = gradient_norms(RNN, params, np.ones((3, 7), int), np.array([2, 3, 5]))
    expected = np.broadcast_to(factor ** np.arange(7.0), norms.shape)
    np.testing.assert_allclose(norms / norms[:, :1], expected, rtol=1e-4)


def test_the_compared_models_have_equal_parameters():
    counts = [
        count_parameters(jax.eval_shape(functools.partial(first_params, config), 0))
        for config in MODELS.values()
    ]
    assert max(counts) < 1.02 * min(counts)


def test_the_command_prints_draws_and_repeats_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gradient_distance, "MODELS", TINY_MODELS)
    saved = []
    for folder in ("first", "again"):
        output = tmp_path / folder
        assert main([f"--output={output}", "--length=29", "--seeds=2"]) == 0
        printed = capsys.readouterr().out
        assert printed.splitlines()[-1] == str(output / "gradients.png")
        assert "k = 20" in printed
        assert "k = 50" not in printed
        saved.append(dict(np.load(output / "gradients.npz")))
    assert imread(output / "gradients.png").std() > 0.01
    first, again = saved
    assert {name: norms.shape for name, norms in first.items()} == dict.fromkeys(
        TINY_MODELS, (2, 29)
    )
    assert all(np.array_equal(first[name], again[name]) for name in first)
    # Why gradients vanish: by powers in the recurrent network, and not at all in the Transformer.
    recurrent, attending = first["simple RNN"], first["Transformer"]
    assert (recurrent[:, 28] < 1e-3 * recurrent[:, 1]).all()
    assert (attending[:, 28] > 0.1 * attending[:, 1]).all()


def test_lines_are_means_over_seeds_of_the_norm_over_that_at_distance_zero():
    figure = build_figure({"LSTM": np.array([[4.0, 2.0, 1.0], [1.0, 1.0, 0.5]])})
    (axes,) = figure.axes
    (line,) = axes.lines
    assert axes.get_yscale() == "log"
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == [1.0, 0.75, 0.375]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--length=1"], ("--length", "'1'", "between 2 and")),
        (["--seeds=many"], ("--seeds", "'many'")),
        (["--workdir=runs/x"], ("--workdir=runs/x", "--help")),
    ],
)
def test_a_wrong_flag_ends_in_one_line_and_code_2(arguments, says, capsys):
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert not [text for text in says if text not in line], line
