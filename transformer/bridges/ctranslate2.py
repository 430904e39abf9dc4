"""Exports a translation model to CTranslate2, which runs it without JAX, on CPUs and GPUs.

The model specification is built here. CTranslate2's own converters for Marian and OpenNMT do not
fit, since those models start decoding and normalise differently. https://opennmt.net/CTranslate2
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.bridges import layers
from transformer.bridges.layers import GATED, HALVES, layer_arrays, position_table
from transformer.bridges.reader import needed_package, usage_of, write_tokenizers
from transformer.data.tokenizer import BOS_ID, EOS_ID, UNK_ID
from transformer.inference.translator import Translator
from transformer.model.config import ModelConfig
from transformer.model.positions.registry import max_positions

MAX_TOKENS = 1024  # maximum input length, and maximum number of positions in a table
ACTIVATIONS = {"relu": "RELU", "gelu": "GELUTanh", "silu": "SWISH"}
ADDED = ("sinusoidal", "split", "learned", "none")  # stored as a table; may be summed
ALONE = ("rotary", "relative_shaw")  # encodings that CTranslate2 supports only on their own
EXPRESSIBLE = layers.EXPRESSIBLE | {"norm_position": ("pre", "post")}
USAGE = usage_of("ctranslate2")


def write(predictor: Translator, params: Any, folder: Path, quantization: str) -> None:
    """Writes a model, its vocabularies and its sentencepiece models to a folder.

    Args:
      quantization: "int8" for 8-bit weights, or "" for float32 weights.
    """
    source, target = predictor.source_tokenizer, predictor.target_tokenizer
    spec = make_spec(
        predictor.model.config,
        params,
        *(tokenizer.pieces(range(tokenizer.vocab_size)) for tokenizer in (source, target)),
    )
    spec.optimize(quantization=quantization or None)  # also deduplicates tied tables
    spec.save(str(folder))
    write_tokenizers(predictor, folder)


def make_spec(
    config: ModelConfig, params: Any, source: Sequence[str], target: Sequence[str]
) -> Any:
    """Returns the CTranslate2 specification of a model, including the weights.

    Raises UserError if the package `ctranslate2` is missing, or does not support the model.

    Args:
      source, target: the tokens of the source and target vocabularies, in the order of their ids.
    """
    specs = needed_package("ctranslate2").specs
    layers.check_expressible("CTranslate2", config, EXPRESSIBLE, ADDED, ALONE)
    names = [getattr(config, f"{half}_names") for half in HALVES]
    common = {
        "num_heads": config.num_heads,
        "pre_norm": config.normalizes_input,
        "activation": getattr(
            specs.Activation, ACTIVATIONS[GATED.get(config.activation, config.activation)]
        ),
        "ffn_glu": config.activation in GATED,
        "rms_norm": config.norm == "rms",
        "head_dim": config.head_width if config.head_size else None,
    }
    makers = specs.TransformerEncoderSpec, specs.TransformerDecoderSpec
    stacks = [
        make(
            getattr(config, f"num_{half}_layers"),
            rotary_dim=0 if name == "rotary" else None,
            relative_position=name == "relative_shaw",
            **common,
        )
        for make, half, name in zip(makers, HALVES, names, strict=True)
    ]
    spec = specs.TransformerSpec(*stacks)
    for half, name in zip(HALVES, names, strict=True):
        stack = getattr(spec, half)
        if name in ALONE:
            vars(stack).pop("position_encodings", None)
        else:
            length = min(MAX_TOKENS, max_positions(config) or MAX_TOKENS)
            stack.position_encodings.encodings = position_table(config, params, half, length)
    _fill_spec(spec, config, layer_arrays(config, params))
    spec.config.unk_token, spec.config.eos_token = target[UNK_ID], target[EOS_ID]
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS_ID]
    spec.config.add_source_eos, spec.config.layer_norm_epsilon = True, config.norm_epsilon
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.validate()
    return spec


def _fill_spec(spec: Any, config: ModelConfig, arrays: dict[str, np.ndarray]) -> None:
    def linear(part: Any, prefix: str, *names: str) -> None:
        """Fills a linear layer with the concatenated weights of several modules."""
        part.weight = np.concatenate([arrays[f"{prefix}/{name}/kernel"].T for name in names])
        if f"{prefix}/{names[0]}/bias" in arrays:
            part.bias = np.concatenate([arrays[f"{prefix}/{name}/bias"] for name in names])

    def norm(part: Any, prefix: str) -> None:
        part.gamma = arrays[f"{prefix}/scale"]
        if config.norm == "layer":
            part.beta = arrays[f"{prefix}/bias"]

    def attention(part: Any, prefix: str, *maps: tuple[str, ...]) -> None:
        for each, names in zip(part.linear, maps, strict=True):
            linear(each, prefix, *names)
        norm(part.layer_norm, f"{prefix}_residual/norm")

    spec.encoder.embeddings[0].weight = layers.table_of(arrays, "source")
    spec.decoder.embeddings.weight = layers.table_of(arrays, "target")
    spec.decoder.projection.weight = layers.table_of(arrays, "output")
    if config.output_bias:
        spec.decoder.projection.bias = arrays["output_bias"]
    for half in HALVES:
        stack = getattr(spec, half)
        if config.normalizes_input:
            norm(stack.layer_norm, f"{half}_norm")
        for i, layer in enumerate(stack.layer):
            place = f"{half}_layers_{i}"
            maps = ("query", "key", "value"), ("output",)
            attention(layer.self_attention, f"{place}/self_attention", *maps)
            if getattr(config, f"{half}_names") == "relative_shaw":
                relative = f"{place}/self_attention/positions/relative_shaw"
                layer.self_attention.relative_position_keys = arrays[f"{relative}/keys"]
                layer.self_attention.relative_position_values = arrays[f"{relative}/values"]
            if half == "decoder":
                maps = ("query",), ("key", "value"), ("output",)
                attention(layer.attention, f"{place}/cross_attention", *maps)
            linear(layer.ffn.linear_0, f"{place}/feed_forward", "inner")
            linear(layer.ffn.linear_1, f"{place}/feed_forward", "outer")
            if config.activation in GATED:
                linear(layer.ffn.linear_0_noact, f"{place}/feed_forward", "gate")
            norm(layer.ffn.layer_norm, f"{place}/feed_forward_residual/norm")
