"""Tiny models with a different prime for every axis, shared by the tests of the core."""

import contextlib
import gc
import logging
import os
import shutil
import tempfile
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from chromium import browser
from transformer.model.config import ModelConfig
from transformer.model.layers import ACTIVATIONS
from transformer.model.positions.base import LAYER_HOOKS, STACK_HOOKS, use_hooks
from transformer.model.positions.registry import REGISTRY, acts_in
from transformer.model.transformer import Transformer

# Accelerators multiply float32 in fewer bits unless told otherwise.
jax.config.update("jax_default_matmul_precision", "highest")


def pytest_configure(config):
    """Lets all tests of a session, in however many processes, share what XLA compiles."""
    # Traced programs are millions of objects that stay: to look through them often takes minutes.
    gc.set_threshold(50_000, 20, 100)
    if not hasattr(config, "workerinput"):
        os.environ["TESTS_XLA_CACHE"] = tempfile.mkdtemp(prefix="tests_xla_")
        # Where commands without a cache folder keep it, too.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["TESTS_XLA_CACHE"]
    jax.config.update("jax_compilation_cache_dir", os.environ["TESTS_XLA_CACHE"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_unconfigure(config):
    """Deletes it again."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["TESTS_XLA_CACHE"], ignore_errors=True)


@contextlib.contextmanager
def heard():
    """The lines that the program logs meanwhile, as they come."""
    lines, handler = [], logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())
    loggers = [logging.getLogger(name) for name in ("transformer", "experiments")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


@pytest.fixture
def said():
    """See `heard`."""
    with heard() as lines:
        yield lines


@pytest.fixture(scope="module")
def chromium():
    """A browser for the tests of a file; its event loop is in nobody else's way."""
    with browser() as started:
        yield started


def added_activation(name):
    """Of an activation without an equation in `reference`: its own, as it is."""
    function, gated = ACTIVATIONS[name]
    return lambda x: np.asarray(function(jnp.asarray(x, jnp.float32)), np.float64), gated


def added_shapes(name, config, place):
    """Of an encoding without equations in `reference`: what it asks for itself."""
    hooks = {"stack": STACK_HOOKS, "layer": LAYER_HOOKS}[place]
    if not acts_in(name, hooks):
        return {}

    def init(key):
        return REGISTRY[name](config).init(key, hooks, method=use_hooks)

    params = jax.eval_shape(init, jax.random.key(0)).get("params", {})
    return jax.tree.map(lambda x: x.shape, params)


# So that the tests over the registries meet what somebody adds to them as well.
reference.added_activation, reference.added_shapes = added_activation, added_shapes

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
    "attention_bias": True,
    "attention_implementation": "plain",
    "dtype": "float32",
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
    "query_key_norm": "none",
    "norm": "layer",
    "share_layers": False,
    "scan_layers": False,
    "remat": False,
}


def tiny_config(**changes) -> ModelConfig:
    """A configuration of a tiny model with some fields changed."""
    fields = {**TINY, **changes}
    if fields["tied_embeddings"] == "all" and "source_vocab_size" not in changes:
        fields["source_vocab_size"] = fields["target_vocab_size"]
    encodings = "+".join(str(fields[name]) for name in fields if name.endswith("positions"))
    if "rotary" in encodings and not {"d_model", "num_heads", "head_size"} & changes.keys():
        fields["head_size"] = 6  # it turns pairs
    return ModelConfig(**fields)


def tiny_model(seed=0, **changes) -> tuple[Transformer, dict]:
    """A tiny model and random variables for it."""
    config = tiny_config(**changes)
    params = jax.tree.map(jnp.asarray, reference.parameters(config, seed))
    return Transformer(config), {"params": params}


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
