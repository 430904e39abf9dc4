"""Per-layer parameters of a Transformer, for conversion to other formats."""

from collections.abc import Collection, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.positions.registry import SumOfPositions, split_names
from transformer.optim.parameters import named_leaves

HALVES = ("encoder", "decoder")
GATED = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}  # values: the gates' activations
# For each key of `config.model`, the values that all formats support; other keys are unrestricted.
EXPRESSIBLE: dict[str, tuple[Any, ...]] = {
    "architecture": ("transformer",),
    "patch_size": (0,),
    "talking_heads": (False,),
    "query_key_norm": ("none",),
    "attention_sink": ("none",),
    "head_gate": (False,),
    "cross_positions": ("none",),
    "activation": (*GATED.values(), *GATED),
}


def check_expressible(
    program: str,
    config: ModelConfig,
    expressible: Mapping[str, tuple[Any, ...]],
    summed: Collection[str],
    alone: Collection[str] = (),
) -> None:
    """Raises UserError if a program does not support a model; the message lists supported values.

    Args:
      summed: positional encodings that may be summed in the encoder, and in the decoder.
      alone: positional encodings that can only be used without others.
    """
    unsupported = [
        (key, getattr(config, key), choices)
        for key, choices in expressible.items()
        if getattr(config, key) not in choices
    ]
    for half in HALVES:
        names = getattr(config, f"{half}_names")
        if names not in alone and not {*summed}.issuperset(split_names(names)):
            unsupported.append((f"{half}_positions", names, (*summed, *alone)))
    for key, value, choices in unsupported:
        raise UserError(
            f"{program} cannot compute model.{key}={value!r}, only "
            f"config.model.{key}={' or '.join(map(str, choices))}: choose another format"
        )


def table_of(arrays: Mapping[str, np.ndarray], use: str) -> Float[np.ndarray, "V D"]:
    """Returns the "source", "target" or "output" embedding table; tied ones are the target's."""
    path = f"{use}_embedding/table"
    return arrays[path if path in arrays else "target_embedding/table"]


def layer_arrays(config: ModelConfig, params: Any) -> dict[str, np.ndarray]:
    """Returns the float32 parameters keyed by path, such as `encoder_layers_3/...` for a layer.

    Shared or stacked layers (`scan_layers`) are copied to a path per layer, and keys and values
    that several heads share (`num_kv_heads`) are repeated for each head. Other programs always
    scale scores by 1/sqrt(K): without `scale_scores`, query projections are multiplied by sqrt(K).
    """
    arrays = {name: np.array(x, np.float32) for name, x in named_leaves(params).items()}
    if not config.scale_scores:
        for name in [name for name in arrays if "attention/query/" in name]:
            arrays[name] *= np.float32(config.head_width**0.5)
    depths = config.num_encoder_layers, config.num_decoder_layers
    for half, depth in zip(HALVES, depths, strict=True):
        if config.scan_layers:
            prefix = f"{half}_layers/"
            stacked = {name: arrays.pop(name) for name in list(arrays) if name.startswith(prefix)}
            for i in range(depth):
                for name, x in stacked.items():
                    part = x if config.share_layers else x[i]
                    arrays[name.replace(prefix, f"{half}_layers_{i}/")] = part
        elif config.share_layers:
            first = {k: x for k, x in arrays.items() if k.startswith(f"{half}_layers_0/")}
            for i in range(1, depth):
                arrays |= {k.replace("_0/", f"_{i}/", 1): x for k, x in first.items()}
    if (copies := config.num_heads // config.key_value_heads) > 1:
        for name, x in arrays.items():
            if "attention/key/" in name or "attention/value/" in name:
                heads = x.reshape(*x.shape[:-1], -1, config.head_width)
                arrays[name] = np.repeat(heads, copies, axis=-2).reshape(*x.shape[:-1], -1)
    return arrays


def position_table(
    config: ModelConfig, params: Any, half: str, length: int
) -> Float[np.ndarray, "length D"]:
    """Returns the positional encodings that the encoder or decoder adds to token embeddings."""
    nothing = jnp.zeros((1, length, config.d_model))
    return encode_positions(config, params, half, "add", nothing, jnp.arange(length))[0]


def encode_positions(
    config: ModelConfig, params: Any, half: str, method: str, *inputs: Any
) -> np.ndarray:
    """Returns the result of a method of the encoder's or decoder's positional encodings."""
    names = getattr(config, f"{half}_names")
    encoding = SumOfPositions(config, names=names, bidirectional=half == "encoder")
    variables = {"params": params.get(f"{half}_positions", {})}
    return np.asarray(encoding.apply(variables, *inputs, method=method))
