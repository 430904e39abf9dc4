"""A translator as two StableHLO programs, which JAX runs without this project, on any platform.

The first program reads the source and returns a cache; the second takes a token of each sentence
and the cache, and returns the next logits and the new cache. The cache is a tuple of arrays that a
reader passes on, so its content is left to the model. The sizes of the batch, the source and the
cache may differ from call to call. The weights are arguments, so both programs share one file.

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
# Variants that save time or memory in training, and the equivalent values for export.
FORMS = {
    **{"attention_implementation": "plain", "remat": False},
    **{"dtype": "float32", "matmul_dtype": "float32"},
}
USAGE = """This project is not needed: `pip install jax flatbuffers numpy sentencepiece`, then

""" + reader.READ.format(
    imports="import jax",
    load="""start, step = (
    jax.jit(jax.export.deserialize(bytearray(read(f"{name}.stablehlo"))).call)
    for name in ("start", "step")
)
weights = jax.device_put(dict(np.load(f"{folder}/weights.npz")))
""",
    start="cache = start(weights, batch, np.zeros(max(limits), np.int8))  # of this length",
    step="    logits, cache = step(weights, tokens[-1], cache)",
)


def write(predictor: Translator, params: Any, folder: Path) -> None:
    """Writes both programs, the weights and the other files that a reader needs, to a folder."""
    reader.needed_package("flatbuffers")
    weights: dict[str, Any] = {
        name: np.array(x, np.float32) for name, x in named_leaves(params).items()
    }
    for name, program in export_programs(predictor.model, weights).items():
        (folder / f"{name}.stablehlo").write_bytes(program)
    np.savez(folder / "weights.npz", **weights)
    reader.write_files(predictor, folder)


def export_programs(model: Architecture, weights: dict[str, np.ndarray]) -> dict[str, bytearray]:
    """Returns the programs `start` and `step`, serialised, in float32.

    `start` takes the weights by name, token ids [B, M] in int32, padded, and any array [T] in int8,
    whose length is the token capacity of the cache. `step` takes the weights, a token of each
    sentence [B] in int32 and the cache, and returns logits [B, V] and a cache.
    """
    model = build_model(dataclasses.replace(model.config, **FORMS))
    limit = model.max_positions

    def call(weights, *arguments, method):
        params = flax.traverse_util.unflatten_dict(weights, sep="/")
        return model.apply({"params": params}, *arguments, method=method)

    structure: Any = None  # of the cache, known after tracing `start`

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
