"""A pruned run is the run whose other heads are zero."""

import jax
import numpy as np
import pytest

import reference
import transformer
from experiments.heads.prune import check, without_heads, write_pruned
from source_settings import refused
from tiny_models import tiny_inputs, tiny_model
from transformer.inference.interventions import select
from transformer.model.interventions import Change, variables

TEXT, GERMAN = (
    "The old teacher gives the child a small dog.",
    "Der alte Lehrer gibt dem Kind Hunde.",
)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"scan_layers": True},
        {"share_layers": True},
        {"attention_sink": "learned", "head_gate": True},
    ],
)
def test_a_model_without_heads_computes_what_zeros_compute(fields):
    fields = {"num_heads": 4, "head_size": 6, "positions": "relative_shaw", **fields}
    model, own = tiny_model(**fields)
    kinds = ("encoder_layers", "self_attention"), ("decoder_layers", "self_attention")
    kinds += (("decoder_layers", "cross_attention"),)
    depth = 1 if model.config.share_layers else 2
    remaining = {(*kind, n): [n, 2 + i % 2] for i, kind in enumerate(kinds) for n in range(depth)}
    zeros = {
        (*kind, "heads"): {
            n: Change(np.isin(range(4), remaining[*kind, n]).astype(float)[:, None])
            for n in range(depth)
        }
        for kind in kinds
    }
    masked = jax.jit(model.apply)
    expected = masked({**own, "interventions": variables(zeros, model.config)}, *tiny_inputs())
    small, _ = tiny_model(**{**fields, "num_heads": 2})
    params = without_heads(own["params"], remaining, model.config)
    shapes = reference.parameter_shapes(small.config)
    assert jax.tree.structure(params) == jax.tree.structure(
        shapes, is_leaf=lambda x: isinstance(x, tuple)
    )
    ours = jax.jit(small.apply)({"params": params}, *tiny_inputs())
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=2e-6)
    assert np.abs(expected - masked(own, *tiny_inputs())).max() > 0.1  # control


def test_a_pruned_run_is_a_run(tmp_path):
    run = transformer.load("quickstart")
    removed = [x for x in select(["*.head.*.output"], run.trained.predictor.model) if "head.2" in x]
    small = transformer.load(write_pruned(run, run.trained, removed, tmp_path / "small"))
    assert small.config.model.num_heads == 3
    with run.intervene(dict.fromkeys(removed, "zero")):
        masked = [token.log_prob for token in run.next_tokens([TEXT], [GERMAN])[0]]
        text = run.translate([TEXT])
    ours = [token.log_prob for token in small.next_tokens([TEXT], [GERMAN])[0]]
    np.testing.assert_allclose(ours, masked, rtol=1e-5, atol=1e-5)
    assert small.translate([TEXT]) == text
    with refused("each attention must have the same number of heads"):
        write_pruned(run, run.trained, removed[1:], tmp_path / "other")
    with refused("is there already: name a new folder"):
        write_pruned(run, run.trained, removed, tmp_path / "small")


@pytest.mark.parametrize("fields", [{"positions": "alibi"}, {"talking_heads": True}])
def test_heads_that_share_parameters_stay(fields):
    with refused("heads cannot be removed from a model with"):
        check(tiny_model(**fields)[0].config)
