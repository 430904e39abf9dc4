"""Exports a translation model as data for a web page with a script that runs it in the browser.

Each row of an array is quantised to 16-bit integers with one float32 scale. This takes half the
space of float32, and its error is a tenth of that of float16.
"""

import base64
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from transformer.bridges import layers
from transformer.bridges.layers import GATED, HALVES, layer_arrays, position_table, table_of
from transformer.data import characters
from transformer.data.placeholders import NAMES
from transformer.data.tokenizer import Tokenizer
from transformer.data.words import NUMBER, START, STRING, WORD, Words
from transformer.inference.translator import Translator
from transformer.model.config import ModelConfig
from transformer.model.layers import ACTIVATIONS
from transformer.model.positions.registry import acts_in, split_names

ADDED, BIASES = ("sinusoidal", "split", "learned"), ("relative_bias", "alibi")
POSITIONS = (*ADDED, *BIASES, "rotary", "none")  # sums are supported, too
MAX_TOKENS = 512  # maximum length of an input or output sentence
MAX_INTEGER = 2**15 - 1  # maximum absolute value of a quantised number
RULE = {  # regular expressions of the rule that makes text canonical
    "blanks": characters.BLANKS.pattern,
    "neverSeen": characters.NEVER_SEEN.pattern,
    "invisible": f"^{characters.INVISIBLE.pattern}$",
}


def make_page_data(predictor: Translator, params: Any) -> tuple[dict[str, Any], bytes]:
    """Returns JSON-serialisable data about a translation model, and its weights as bytes.

    For the layout of the bytes, see `make_model`.
    """
    decode, max_length = predictor.decode, min(predictor.max_length, MAX_TOKENS)
    model, numbers = make_model(predictor.model.config, params, max_length)
    tokenizers = [make_tokenizer(predictor.source_tokenizer)]
    if (target := make_tokenizer(predictor.target_tokenizer)) != tokenizers[0]:
        tokenizers.append(target)
    return {
        **model,
        "tokenizers": tokenizers,
        "source": 0,
        "target": len(tokenizers) - 1,
        "maxLength": max_length,
        "decode": {
            "beamSize": decode.beam_size,
            "penalty": decode.length_penalty,
            "alpha": decode.alpha,
            "maxRatio": decode.max_ratio,
            "maxExtra": decode.max_extra,
            "transferCase": decode.transfer_case,
        },
        "rule": RULE,
        "words": make_words(predictor.source_tokenizer.words),
    }, numbers


def make_model(config: ModelConfig, params: Any, max_length: int) -> tuple[dict[str, Any], bytes]:
    """Returns a model's metadata, and its weights as bytes.

    The bytes are one float32 scale per row of all arrays, and then all 16-bit integers, both
    little-endian. In the metadata, `arrays` lists each array's name, first row, number of rows and
    columns, and the index of its first integer.

    Args:
      max_length: maximum number of tokens in a text.
    """
    layers.check_expressible("a page", config, layers.EXPRESSIBLE, POSITIONS)
    entries, numbers = _pack_floats(_page_arrays(config, params, max_length))
    names = {half: split_names(getattr(config, f"{half}_names")) for half in HALVES}
    model = {
        "heads": config.num_heads,
        "headWidth": config.head_width,
        "depths": {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers},
        "rotary": {half: "rotary" in names[half] for half in HALVES},
        "normPosition": config.norm_position,
        "centered": config.norm == "layer",
        "epsilon": config.norm_epsilon,
        "activation": GATED.get(config.activation, config.activation),
        "gated": ACTIVATIONS[config.activation][1],
    }
    return {"model": model, "arrays": entries}, numbers


def _page_arrays(config: ModelConfig, params: Any, length: int) -> dict[str, np.ndarray]:
    """Returns layer parameters keyed by path, embedding tables, and positional encodings."""
    arrays = layer_arrays(config, params)
    used = {name: x for name, x in arrays.items() if name.split("_")[0] in HALVES}
    used = {name: x for name, x in used.items() if "positions/" not in name}
    used |= {f"{use}_table": table_of(arrays, use) for use in ("source", "target", "output")}
    if config.output_bias:
        used["output_bias"] = arrays["output_bias"]
    for half in HALVES:
        names = split_names(getattr(config, f"{half}_names"))
        if {*ADDED}.intersection(names):
            used[f"{half}_positions"] = position_table(config, params, half, length)
        if any(acts_in(name, ["bias"]) for name in names):
            # Biases [H, distances] for key - query distances from 1 - length to length - 1.
            places = jnp.array([length - 1]), jnp.arange(2 * length - 1)
            biases = layers.encode_positions(config, params, half, "bias", *places)
            used[f"{half}_bias"] = biases[:, 0]
    return used


def _pack_floats(arrays: Mapping[str, np.ndarray]) -> tuple[list[list[Any]], bytes]:
    """Returns the entries and bytes described in `make_model`. Tied arrays are stored once."""
    entries, steps, integers, places = [], [], [], {}
    row = start = 0
    for name, array in arrays.items():
        rows = array.reshape(-1, array.shape[-1])
        if id(array) not in places:
            places[id(array)] = row, start
            step = (np.abs(rows).max(axis=1) / MAX_INTEGER).astype("<f4")
            steps.append(step)
            safe = np.where(step > 0, step, 1)[:, None]
            integers.append(np.rint(rows / safe).clip(-MAX_INTEGER, MAX_INTEGER).astype("<i2"))
            row, start = row + len(rows), start + rows.size
        entries.append([name, places[id(array)][0], *rows.shape, places[id(array)][1]])
    return entries, b"".join(x.tobytes() for x in (*steps, *integers))


def make_words(words: Words) -> dict[str, Any]:
    """Returns the words of the training data, and regular expressions for words and strings."""
    patterns = {"string": STRING, "word": WORD, "start": START, "number": NUMBER.pattern}
    return {**words.values(), "patterns": patterns, "names": NAMES}


def make_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns a sentencepiece model in the format that the page's script reads.

    `types` has one digit per piece, its type number in sentencepiece's protocol buffer.
    `characterMap` is the normalisation trie, encoded in base64.
    """
    proto = tokenizer.proto()
    spec, pieces = proto.normalizer_spec, proto.pieces[: tokenizer.vocab_size]
    scores = [piece.score for piece in proto.pieces if piece.type == piece.NORMAL]
    return {
        "kind": tokenizer.kind,
        "pieces": [piece.piece for piece in pieces],
        # The shortest decimal numbers that round to the same float32 values.
        "scores": [float(str(np.float32(piece.score))) for piece in pieces],
        "types": "".join(str(piece.type) for piece in pieces),
        "characterMap": base64.b64encode(spec.precompiled_charsmap).decode("ascii"),
        "prefixes": spec.add_dummy_prefix,
        "trims": spec.remove_extra_whitespaces,
        "lowest": min(scores, default=0.0),
        "highest": max(scores, default=0.0),
    }
