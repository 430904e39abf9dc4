"""Exports a translation model as two StableHLO programs; JAX runs them without this project.

The first program reads the source and returns a cache. The second takes one token per sentence and
the cache, and returns the next logits and the updated cache. A caller only passes the cache on, as
a tuple of arrays, so each model can define what it contains. The batch size, the source length and
the cache capacity are dynamic. The weights are arguments, so that both programs share one file.

Source: https://docs.jax.dev/en/latest/export/export.html
"""

import dataclasses
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct

from transformer.bridges import reader
from transformer.data.tokenizer import NEVER_WRITTEN, PAD_ID
from transformer.inference.translator import Translator
from transformer.model.architecture import Architecture
from transformer.model.build import build_model
from transformer.optim.parameters import named_leaves

PLATFORMS = ("cpu", "cuda", "tpu")
# Values for export, equivalent to variants that only save time or memory in training.
FORMS = {
    **{"attention_implementation": "plain", "remat": False},
    **{"dtype": "float32", "matmul_dtype": "float32"},
}
USAGE = reader.usage_of("stablehlo")


def write(predictor: Translator, params: Any, folder: Path) -> None:
    """Writes both programs, the weights, and the other files needed for inference, to a folder."""
    reader.needed_package("flatbuffers")
    weights: dict[str, Any] = {
        name: np.array(x, np.float32) for name, x in named_leaves(params).items()
    }
    for name, program in export_programs(predictor.model, weights).items():
        (folder / f"{name}.stablehlo").write_bytes(program)
    np.savez(folder / "weights.npz", **weights)
    reader.write_files(predictor, folder)


def export_programs(model: Architecture, weights: dict[str, np.ndarray]) -> dict[str, bytearray]:
    """Returns the serialised programs `start` and `step`, which compute in float32.

    `start` takes the weights keyed by name, padded int32 token ids [B, M], and any int8 array [T];
    T sets the capacity of the cache in tokens. `step` takes the weights, an int32 token id per
    sentence [B] and the cache, and returns logits [B, V] and the updated cache.
    """
    model = build_model(dataclasses.replace(model.config, **FORMS))
    limit = model.max_positions

    def call(weights, *arguments, method):
        params = flax.traverse_util.unflatten_dict(weights, sep="/")
        return model.apply({"params": params}, *arguments, method=method)

    structure: Any = None  # pytree structure of the cache; set while `start` is traced

    def start(weights, source, room):
        nonlocal structure
        mask, steps = source != PAD_ID, room.shape[0]
        cache = call(weights, source, mask, 1, steps, method="init_cache")
        leaves, structure = jax.tree.flatten(cache)
        return tuple(leaves)

    def step(weights, tokens, leaves):
        before = jax.tree.unflatten(structure, leaves)
        logits, after = call(weights, tokens[:, None], before, method="decode_step")
        logits = logits[:, 0].at[:, jnp.array(NEVER_WRITTEN)].set(-jnp.inf)
        return logits, tuple(jax.tree.leaves(after))

    rules = [f"{size} <= {limit}" for size in ("M", "T") if limit]
    rows, length, room = jax.export.symbolic_shape("B, M, T", constraints=rules)
    shapes = jax.tree.map(lambda x: ShapeDtypeStruct(x.shape, x.dtype), weights)
    inputs = ShapeDtypeStruct((rows, length), jnp.int32), ShapeDtypeStruct((room,), jnp.int8)
    jax.config.update("jax_traceback_in_locations_limit", 0)  # no file names in the programs
    leaves = jax.eval_shape(start, shapes, *inputs)
    tokens = ShapeDtypeStruct((rows,), jnp.int32)
    programs = {"start": (start, *inputs), "step": (step, tokens, leaves)}
    return {
        name: jax.export.export(jax.jit(program), platforms=PLATFORMS)(
            shapes, *arguments
        ).serialize()
        for name, (program, *arguments) in programs.items()
    }
