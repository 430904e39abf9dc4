"""The states of a word in several contexts are those that the layers return."""

import numpy as np
import pytest

import transformer
from experiments.positions.embeddings import compare_contexts
from tiny_run import command
from transformer.errors import UserError

LINES = ["The old teacher sees two birds.", "The old house is small.", "The house is old."]


def test_a_word_is_compared_after_each_layer_with_its_first_context():
    run = transformer.load("quickstart")
    cosines = compare_contexts(run, "old", LINES)
    model, states = run.trained.predictor, []
    for line, place in zip(LINES, (1, 1, 3), strict=True):
        inputs = model.inputs(
            model.make_batch([model.source_tokenizer.encode([line])[0]], [[]], 1, 16)
        )
        _, sown = model.model.apply(
            run.trained.variables, *inputs, capture_intermediates=True, mutable=["intermediates"]
        )
        layers = [sown["intermediates"][f"encoder_layers_{i}"]["__call__"][0][0] for i in (0, 1)]
        states.append([layer[place] / np.linalg.norm(layer[place]) for layer in layers])
    expected = [
        [first @ other for first, other in zip(states[0], each, strict=True)] for each in states
    ]
    np.testing.assert_allclose(cosines[1:], np.transpose(expected), atol=1e-5)
    np.testing.assert_allclose(cosines[0, :2], 1, atol=1e-5)  # at the same position
    assert cosines[0, 2] < 0.99
    with pytest.raises(UserError, match="line 1 has no word 'young'"):
        compare_contexts(run, "young", LINES)


def test_the_command_draws_the_contexts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    command("--workdir=quickstart", "--mode=embeddings", "--token=old", "--input=lines.txt")
    assert (tmp_path / "quickstart/figures/embeddings/contexts_old.png").exists()
