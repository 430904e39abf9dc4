"""Exports a translation model as a `MarianMTModel` of Hugging Face (Junczys-Dowmunt et al. 2018).

Marian's positional encodings are all sines followed by all cosines, and are never saved. If our
model interleaves them, its features are reordered. Marian's layer norm adds 1e-5 to the variance.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from transformer.bridges import layers
from transformer.bridges.layers import HALVES, layer_arrays
from transformer.bridges.reader import usage_of, write_tokenizers, write_unsealed_json
from transformer.data.tokenizer import BOS_ID, EOS_ID, NEVER_WRITTEN, PAD_ID
from transformer.errors import UserError
from transformer.files import write_bytes
from transformer.inference.translator import Translator
from transformer.model.config import ModelConfig

ACTIVATIONS = {"relu": "relu", "gelu": "gelu_new", "silu": "silu"}
POSITIONS = ("sinusoidal", "split")
# Besides, encoder and decoder need the same positions, and `head_size` 0 or d_model / num_heads.
EXPRESSIBLE = layers.EXPRESSIBLE | {
    "norm": ("layer",),
    "norm_position": ("post",),
    "activation": (*ACTIVATIONS,),
}
MAX_TOKENS = 512  # maximum sentence length
# {our module name: Marian's}; Marian calls a decoder's cross-attention `encoder_attn`.
SELF = {
    "self_attention/query": "self_attn.q_proj",
    "self_attention/key": "self_attn.k_proj",
    "self_attention/value": "self_attn.v_proj",
    "self_attention/output": "self_attn.out_proj",
    "self_attention_residual/norm": "self_attn_layer_norm",
    "feed_forward/inner": "fc1",
    "feed_forward/outer": "fc2",
    "feed_forward_residual/norm": "final_layer_norm",
}
CROSS = {
    ours.replace("self_", "cross_"): theirs.replace("self_", "encoder_")
    for ours, theirs in SELF.items()
    if "self_" in ours
}
MODULES = {"encoder": SELF, "decoder": SELF | CROSS}  # of a layer
FROM_RESIDUAL = ("query", "key", "value", "inner")  # linear maps with inputs of width d_model
TO_RESIDUAL = ("output", "outer", "norm")
USAGE = usage_of("marian")


def write(predictor: Translator, params: Any, folder: Path) -> None:
    """Writes a model, its vocabularies and its sentencepiece models to a folder."""
    config = predictor.model.config
    arrays = make_arrays(config, params)
    write_bytes(folder / "model.safetensors", safetensors.numpy.save(arrays, {"format": "pt"}))
    source, target = predictor.source_tokenizer, predictor.target_tokenizer
    separate = not source.has_pieces_of(target)
    names = {"vocab": source, **({"target_vocab": target} if separate else {})}
    for name, tokenizer in names.items():
        # Marian's tags are not preceded by a space; see `marian_import`.
        pieces = [
            piece.removeprefix("▁") if piece in tokenizer.symbols else piece
            for piece in tokenizer.pieces(range(tokenizer.vocab_size))
        ]
        write_unsealed_json(folder / f"{name}.json", {piece: i for i, piece in enumerate(pieces)})
    write_tokenizers(predictor, folder)
    ids = {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }
    write_unsealed_json(folder / "config.json", make_config(config) | ids)
    search = {"num_beams": 4, "max_length": MAX_TOKENS, "suppress_tokens": [*NEVER_WRITTEN]}
    write_unsealed_json(folder / "generation_config.json", search | ids)
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    sizes = {"model_max_length": MAX_TOKENS, "separate_vocabs": separate}
    write_unsealed_json(folder / "tokenizer_config.json", special | sizes)


def make_config(config: ModelConfig) -> dict[str, Any]:
    """Returns the Marian config of a model, without the special token ids."""
    layers.check_expressible("Marian", config, EXPRESSIBLE, (), POSITIONS)
    same = config.decoder_names == config.encoder_names
    if not same or config.head_width * config.num_heads != config.d_model:
        key = f"head_size={config.head_size}" if same else "decoder_positions unlike the encoder's"
        raise UserError(f"Marian cannot compute model.{key}: choose another format")
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": config.source_vocab_size,
        "decoder_vocab_size": config.target_vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "encoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_layers": config.num_decoder_layers,
        "decoder_attention_heads": config.num_heads,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": ACTIVATIONS[config.activation],
        "max_position_embeddings": MAX_TOKENS,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.one_table,
        "tie_word_embeddings": config.tied_embeddings != "none",
    }


def make_arrays(config: ModelConfig, params: Any) -> dict[str, np.ndarray]:
    """Converts our parameters to Marian's arrays, keyed by their names in Marian."""
    arrays = layer_arrays(config, params)
    order = np.arange(config.d_model)
    if config.encoder_names == "sinusoidal":
        order = np.concatenate([order[::2], order[1::2]])
    uses = {"model.encoder.embed_tokens": "source", "model.decoder.embed_tokens": "target"}
    uses |= {"lm_head": "output"} | ({"model.shared": "target"} if config.one_table else {})
    result = {f"{k}.weight": layers.table_of(arrays, use)[:, order] for k, use in uses.items()}
    bias = arrays.get("output_bias", np.zeros(config.target_vocab_size, np.float32))
    result["final_logits_bias"] = bias[None]
    for half in HALVES:
        for i in range(getattr(config, f"num_{half}_layers")):
            for ours, theirs in MODULES[half].items():
                place = f"model.{half}.layers.{i}.{theirs}"
                result |= _marian_module(arrays, f"{half}_layers_{i}/{ours}", place, order)
    # safetensors writes the bytes in memory order.
    return {name: np.ascontiguousarray(array) for name, array in result.items()}


def _marian_module(
    arrays: Mapping[str, np.ndarray], prefix: str, place: str, order: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns Marian's arrays for a linear map or a layer normalisation."""
    kind = prefix.split("/")[-1]
    if kind == "norm":
        weight, bias = arrays[f"{prefix}/scale"], arrays[f"{prefix}/bias"]
    else:
        weight = arrays[f"{prefix}/kernel"].T
        bias = arrays.get(f"{prefix}/bias", np.zeros(len(weight), np.float32))
    if kind in FROM_RESIDUAL:
        weight = weight[:, order]
    if kind in TO_RESIDUAL:
        weight, bias = weight[order], bias[order]
    return {f"{place}.weight": weight, f"{place}.bias": bias}
