"""The study of attention measures what its docstring says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread

from studies.attention import (
    KEYS,
    NEEDS,
    BlindToEnd,
    end_weights,
    layer_outputs,
    main,
    masks_figure,
    scale_statistics,
    score_positions,
    without_last,
)
from tiny_models import tiny_config, tiny_inputs, tiny_model
from tiny_run import shared_run
from transformer.inference.base import source_mask
from transformer.model.transformer import Transformer
from transformer.runs import workdir
from transformer.tasks.translation import TranslationTask

pytestmark = pytest.mark.full


def test_the_variance_of_a_score_is_the_width_of_the_head_unless_it_is_divided():
    divided, not_divided = np.asarray(scale_statistics(401))
    np.testing.assert_allclose([divided[0], not_divided[0]], [1, 401], rtol=0.05)
    assert not_divided[1] > 0.9 > 0.2 > divided[1] > 1 / KEYS
    assert not_divided[2] < 0.7 * divided[2]  # weights near 0 and 1 pass no gradient


def test_the_masks_hide_padding_and_the_future():
    panels = [axes.collections[0].get_array() > 0 for axes in masks_figure().axes]
    first, second = np.array(panels).reshape(2, 4, 6, 6)
    future = np.tri(6, dtype=bool)
    for masks, is_token in ((first, np.arange(6) < 4), (second, np.ones(6, bool))):
        padding, past, both, cross = masks
        np.testing.assert_array_equal(padding, np.tile(is_token, (6, 1)))
        np.testing.assert_array_equal(past, future)
        np.testing.assert_array_equal(both, future & is_token)
        np.testing.assert_array_equal(cross, padding)


@pytest.mark.parametrize("changes", [{}, {"share_layers": True}], ids=["layers", "shared"])
def test_outputs_are_of_the_embeddings_and_of_each_layer(changes):
    model, variables = tiny_model(**changes)
    source = jnp.where(tiny_inputs().source_mask, tiny_inputs().source, 0)
    first, *layers = layer_outputs(model, variables, source)
    assert len(layers) == model.config.num_encoder_layers
    memory = model.apply(variables, source, source_mask(source), method="encode")
    np.testing.assert_array_equal(layers[-1], memory)  # post-norm: no norm follows
    table = variables["params"]["source_embedding"]["table"]
    words = np.sqrt(model.config.d_model) * table[source]
    np.testing.assert_allclose(first - words, (first - words)[:1].repeat(3, axis=0), atol=1e-5)
    assert np.abs(first - words).max() > 0.5  # control: positions are in it


def test_the_regression_predicts_a_linear_map_and_not_a_random_order():
    rng = np.random.default_rng(0)
    positions = rng.integers(13, size=997)
    vectors = np.outer(positions, rng.normal(size=7)) + rng.normal(scale=0.1, size=(997, 7))
    fits = np.arange(997) % 2 == 0
    assert min(score_positions(vectors, positions, fits)) > 0.99
    r2, accuracy = score_positions(vectors, rng.permutation(positions), fits)
    assert abs(r2) < 0.05
    assert accuracy < 0.2


def test_the_decoder_that_is_blind_to_the_end_reads_nothing_of_it():
    model, variables = tiny_model()
    inputs = tiny_inputs()
    np.testing.assert_array_equal(
        without_last(inputs.source_mask).sum(axis=1), inputs.source_mask.sum(axis=1) - 1
    )

    def reads(kind):
        """Whether the logits of a whole pass, and of a step, depend on the last vector."""
        blind = kind(tiny_config())

        def whole(memory):
            others = inputs.source_mask, inputs.target_mask
            return blind.apply(variables, inputs.target, memory, *others, method="decode").sum()

        memory = model.apply(variables, inputs.source, inputs.source_mask, method="encode")
        gradient = np.abs(jax.grad(whole)(memory)).max(axis=-1)
        cache = blind.apply(variables, inputs.source, inputs.source_mask, 1, 3, method="init_cache")
        last = np.arange(len(gradient)), inputs.source_mask.sum(axis=1) - 1
        assert (gradient[:, 0] > 0).all()
        return (gradient[last] > 0).tolist(), cache.memory_mask[last].tolist()

    assert reads(BlindToEnd) == ([False] * 3, [False] * 3)
    assert reads(Transformer) == ([True] * 3, [True] * 3)  # control


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    return shared_run(tmp_path_factory)


def test_weights_of_the_end_are_those_of_the_attention_of_each_pair(tiny_run):
    config = workdir.load_config(tiny_run.workdir)
    trained = workdir.load_trained(tiny_run.workdir, config)
    task = TranslationTask.from_folder(tiny_run.workdir, config)
    weights, equal = end_weights(task, trained.variables)
    columns = []
    for pair in task.text.pairs["test"]:
        cross = trained.predictor.attention(trained.variables, *pair[:2]).weights["cross"]
        columns.append(cross)
    expected = np.concatenate([x[..., -1] for x in columns], axis=-1).mean(axis=-1)
    np.testing.assert_allclose(weights, expected, rtol=1e-4)
    first = np.concatenate([x[..., 0] for x in columns], axis=-1).mean(axis=-1)
    assert np.abs(weights - first).max() > 1e-3  # control
    assert 0 < equal[0, 0] < 1


def test_the_command_prints_all_tables_and_draws(tiny_run, tmp_path, capsys):
    assert main([f"--runs={tiny_run.workdir}", f"--output={tmp_path}"]) == 0
    printed = " ".join(capsys.readouterr().out.split())  # a title is as wide as its table
    for text in ("not divided", "R^2", "control", "weight on </s>", "all but </s>", "masks.png"):
        assert text in printed
    assert all(imread(tmp_path / f"{name}.png").std() > 0.01 for name in ("scale", "masks"))


@pytest.mark.parametrize("key", ["", "model.scan_layers"])
def test_a_run_that_cannot_be_studied_ends_in_one_line_and_code_2(
    key, tiny_run, tmp_path, capsys, monkeypatch
):
    folder = tiny_run.workdir if key else tmp_path / "none"
    monkeypatch.setitem(NEEDS, "model.scan_layers", True)
    assert main([f"--runs={folder}", f"--output={tmp_path}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert (f"{key}=False" if key else "none") in line
