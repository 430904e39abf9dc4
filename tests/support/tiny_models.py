"""Tiny models with a different prime for every axis, shared by the tests of the core."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import reference
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer

BATCH, SOURCE_LENGTH, TARGET_LENGTH = 3, 5, 7
# No two axes have one length, so that a transposed pair cannot go unseen: 2 heads of size 11.
TINY = {
    "source_vocab_size": 17,
    "target_vocab_size": 23,
    "architecture": "transformer",
    "cell": "lstm",
    "recurrent_attention": "additive",
    "d_model": 22,
    "d_ff": 13,
    "num_heads": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "positions": "sinusoidal",
    "max_length": 29,
    "activation": "relu",
    "norm_position": "post",
    "norm_epsilon": 1e-6,
    "tied_embeddings": "none",
    "output_bias": False,
    "attention_bias": True,
    "attention_implementation": "plain",
    "dtype": "float32",
    "matmul_dtype": "",
    # The variants, none of them on.
    "encoder_positions": "",
    "decoder_positions": "",
    "cross_positions": "none",
    "shaw_distance": 3,
    "bias_buckets": 8,
    "bias_distance": 11,
    "head_size": 0,
    "num_kv_heads": 0,
    "talking_heads": False,
    "scale_scores": True,
    "query_key_norm": "none",
    "attention_sink": "none",
    "head_gate": False,
    "norm": "layer",
    "share_layers": False,
    "scan_layers": False,
    "remat": False,
    "patch_size": 0,
    "picture_size": 6,
    "picture_channels": 3,
}


def random(*shape, seed=0) -> jax.Array:
    """Normal numbers of this shape."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def tiny_config(**changes) -> ModelConfig:
    """A configuration of a tiny model with some fields changed."""
    fields = {**TINY, **changes}
    if fields["tied_embeddings"] == "all" and "source_vocab_size" not in changes:
        fields["source_vocab_size"] = fields["target_vocab_size"]
    encodings = "+".join(str(fields[name]) for name in fields if name.endswith("positions"))
    if "rotary" in encodings and not {"d_model", "num_heads", "head_size"} & changes.keys():
        fields["head_size"] = 6  # it turns pairs
    return ModelConfig(**fields)


@functools.cache
def made_once(config: ModelConfig, seed: int) -> tuple[Transformer, dict]:
    return Transformer(config), jax.tree.map(jnp.asarray, reference.parameters(config, seed))


def tiny_model(seed=0, **changes) -> tuple[Transformer, dict]:
    """A tiny model, the same object at each call, and random variables that may be changed."""
    model, params = made_once(tiny_config(**changes), seed)
    return model, {"params": jax.tree.map(lambda x: x, params)}


class Inputs(NamedTuple):
    """Arguments of `Transformer.__call__`."""

    source: jax.Array
    target: jax.Array
    source_mask: jax.Array
    target_mask: jax.Array


def tiny_inputs(source_lengths=(5, 3, 2), target_lengths=(7, 4, 6)) -> Inputs:
    """Sentences in which no token comes twice, over all of a batch, and their masks."""
    source = 1 + jnp.arange(BATCH * SOURCE_LENGTH).reshape(BATCH, -1)
    target = 1 + jnp.arange(BATCH * TARGET_LENGTH).reshape(BATCH, -1)
    return Inputs(
        source,
        target,
        jnp.arange(SOURCE_LENGTH) < jnp.array(source_lengths)[:, None],
        jnp.arange(TARGET_LENGTH) < jnp.array(target_lengths)[:, None],
    )


def holey_inputs() -> Inputs:
    """Inputs with padding in the middle of a target, where the look-ahead mask does not hide it.

    The last source is nothing but padding.
    """
    inputs = tiny_inputs(source_lengths=(5, 3, 0))
    return inputs._replace(target_mask=inputs.target_mask.at[1, 2].set(False))
