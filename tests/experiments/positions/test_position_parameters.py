"""Encodings that someone adds are drawn, and parameters as trained at each of their places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from position_examples import COUNT, SIZES, WITH_PARAMETERS, keep_only

from experiments.positions import plots
from experiments.positions.values import encodings
from tiny_models import tiny_config
from transformer.model.positions.base import NoPositions
from transformer.model.positions.registry import REGISTRY
from transformer.model.transformer import Transformer
from variants import full_but

# -- what someone adds


class Everything(NoPositions):
    """Acts in every place."""

    def add(self, embeddings, positions):
        return embeddings + positions[:, None]

    def bias(self, query_positions, key_positions):
        shape = (self.config.num_heads, len(query_positions), len(key_positions))
        return jnp.broadcast_to(key_positions - query_positions[:, None], shape)

    def rotate(self, heads, positions):
        return heads * (1 + positions[:, None, None])

    def score(self, queries, query_positions, key_positions):
        return jnp.einsum("BLHK,M->BHLM", queries, key_positions)

    def value_bias(self, weights, query_positions, key_positions):
        read = jnp.einsum("BHLM,M->BLH", weights, key_positions)
        return jnp.repeat(read[..., None], self.config.head_width, axis=-1)


def test_an_encoding_that_someone_adds_has_a_picture_of_each_hook(tmp_path, undrawn, monkeypatch):
    monkeypatch.setitem(REGISTRY, "everything", Everything)
    keep_only(monkeypatch, ["everything"])
    found = list(encodings(SIZES, 0, None))[-2:]  # after none
    files = list(plots.draw(found[:1], COUNT, tmp_path))
    hooks = ("add", "bias", "rotate", "score", "value_bias")
    assert [path.stem for path in files] == [f"everything_{hook}_encoder" for hook in hooks]
    distances, vectors = found[0].vectors("score", COUNT)
    assert distances.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    expected = np.broadcast_to(np.arange(COUNT)[:, None], (3, COUNT, 10))
    np.testing.assert_allclose(vectors, expected)
    np.testing.assert_allclose(found[0].vectors("value_bias", COUNT)[1], expected)


# -- trained parameters


@pytest.mark.parametrize("layers", full_but(["scanned"], ["each its own", "scanned", "shared"]))
def test_parameters_of_a_run_are_drawn_at_each_of_their_places(layers, trained, monkeypatch):
    keep_only(monkeypatch, WITH_PARAMETERS)
    fields = {"scan_layers": layers == "scanned", "share_layers": layers == "shared"}
    names = "learned+relative_bias+relative_shaw"
    sizes = {"d_model": 26, "num_heads": 3, "head_size": 10, **fields}
    own = tiny_config(positions=names, cross_positions="relative_shaw", **sizes)
    model = Transformer(own)
    tokens, mask = jnp.ones((1, 2), int), jnp.ones((1, 2), bool)
    shapes = jax.eval_shape(model.init, jax.random.key(0), tokens, tokens, mask, mask)
    rng = np.random.default_rng(5)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), shapes["params"])
    found = list(encodings(own, 0, trained(params, 20, 1040)))
    found.pop()  # none
    assert {one.origin for one in found} == {"trained, mean of steps 20, 1,040"}
    at = {(one.name, one.place): one for one in found}
    numbers = [", all layers"] if layers == "shared" else [" layer 1", " layer 2"]
    stacks = [f"{stack}{n}" for stack in ("encoder", "decoder") for n in numbers]
    cross = [f"decoder{n}, cross-attention" for n in numbers]
    expected = {("relative_shaw", place) for place in (*stacks, *cross)}
    expected |= {(name, s) for name in ("learned", "relative_bias") for s in ("encoder", "decoder")}
    assert set(at) == expected
    assert {p for (_, p), one in at.items() if one.past_only} == {
        "decoder", *(place for place in stacks if "decoder" in place)
    }  # fmt: skip
    for stack in ("encoder", "decoder"):
        table = params[f"{stack}_positions"]["learned"]["table"]
        np.testing.assert_array_equal(at["learned", stack].table(COUNT), table[:COUNT])
    last = at["relative_shaw", stacks[-1]].vectors("score", COUNT)
    module = {"scanned": "decoder_layers", "shared": "decoder_layers_0"}
    layer = params[module.get(layers, "decoder_layers_1")]
    kept = layer["self_attention"]["positions"]["relative_shaw"]["keys"]
    kept = kept[-1] if layers == "scanned" else kept
    # Distances 0 to 3 back; those of 4 to 6 are clipped.
    np.testing.assert_allclose(last[1][0], kept[[0, 0, 0, 0, 1, 2, 3]], atol=1e-6)
    assert last[0].tolist() == [-6, -5, -4, -3, -2, -1, 0]
