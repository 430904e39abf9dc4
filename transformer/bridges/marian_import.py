"""Imports Marian models of Hugging Face, such as OPUS-MT's, and exports them again.

The import is the inverse of `bridges.marian`. Marian's token ids are in vocab.json, in any order,
and not in its sentencepiece files; our ids begin with four special tokens. Therefore, table rows
are reordered, and the sentencepiece model of each side gets all pieces of its vocabulary.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from google.protobuf.message import DecodeError
from jaxtyping import Float

# protobuf creates these classes when they are imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer import files
from transformer.bridges import marian
from transformer.bridges.layers import HALVES
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL, Tokenizer, set_pieces
from transformer.data.tokenizer.draws import UNK_ID
from transformer.errors import UserError
from transformer.model.config import ModelConfig

logger = logging.getLogger(__name__)

CONFIG, WEIGHTS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
SIDES = {"source.spm": "vocab.json", "target.spm": "target_vocab.json"}
SETTINGS = ("tokenizer_config.json", "generation_config.json")
SMALL = (CONFIG, *SIDES, *SIDES.values(), *SETTINGS)
ORIGIN = "marian"  # folder in an imported run with the original model's small files
DIGESTS = "digests.json"  # digests of these files, keyed by file name
FIX = "name a folder as MarianMTModel.save_pretrained and MarianTokenizer.save_pretrained write it"
NUMBERS = (
    "vocab_size d_model encoder_layers decoder_layers encoder_attention_heads encoder_ffn_dim "
    "max_position_embeddings pad_token_id eos_token_id decoder_start_token_id"
)
SHAPE = dict.fromkeys(NUMBERS.split(), int) | {"activation_function": str}
# The only tokens allowed for the special ids; an ordinary token must not share its table row.
START = "decoder_start_token_id"
SPECIAL_KEYS = {"pad_token_id": "<pad>", "eos_token_id": "</s>", START: "<pad> or <s>"}
ACTIVATIONS = {"swish": "silu", **{theirs: ours for ours, theirs in marian.ACTIVATIONS.items()}}
# The possible names of each embedding table; a tied table is stored under only one of them.
SHARED, OUTPUT = "model.shared.weight", "lm_head.weight"
ENCODER, DECODER = (f"model.{half}.embed_tokens.weight" for half in HALVES)
TABLES = {
    "source": (ENCODER, SHARED, DECODER, OUTPUT),
    "target": (DECODER, SHARED, OUTPUT),
    "output": (OUTPUT,),
}
BIAS = "final_logits_bias"
# The output bias of a token that Marian lacks. It makes the token's probability negligible in
# float32, but hardly changes the mean of all logits, which label smoothing uses.
NEVER = -100.0
TAG = re.compile(r">>[^\s<>]+<<")  # target language tag before a source sentence


class Vocabulary(NamedTuple):
    """The vocabulary of a side. `order[i]` is Marian's id of our piece i, or -1 if it has none."""

    pieces: list[str]
    order: list[int]

    def rows(self, table: Float[np.ndarray, "V *D"], lacking: float) -> Float[np.ndarray, "W *D"]:
        """Returns a table with its rows in our order; `lacking` fills rows that Marian lacks."""
        last = np.full((1, *table.shape[1:]), lacking, np.float32)
        return np.concatenate([table, last])[self.order]

    def rows_back(self, table: Float[np.ndarray, "W *D"]) -> Float[np.ndarray, "V *D"]:
        """Returns a table with its rows in Marian's order."""
        return table[np.argsort(self.order)[-1 in self.order :]]


def read(folder: Path) -> tuple[dict[str, Any], list[Tokenizer], dict[str, np.ndarray]]:
    """Reads a Marian model: its config as {dotted key: value}, its tokenizers, and its parameters.

    Raises UserError if the model is not supported.
    """
    config = _read_config(folder)
    vocabularies = _read_vocabularies(folder, config)
    tokenizers = [_make_tokenizer(folder / n, v) for n, v in zip(SIDES, vocabularies, strict=True)]
    settings = _keys_of(folder, config, vocabularies[0].pieces)
    settings["tokenizer.kind"] = tokenizers[0].kind
    settings["tokenizer.joint"] = tokenizers[0].model == tokenizers[1].model
    sizes = [max(vocabulary.order) + 1 for vocabulary in vocabularies]
    tied = settings["model.tied_embeddings"]
    uses = {"all": ["target"], "decoder": ["source", "target"], "none": [*TABLES]}[tied]
    with _open_arrays(folder) as arrays:
        params = _layer_params(arrays, settings)
        for use in uses:
            shape = sizes[use != "source"], config["d_model"]
            table = _take_array(arrays, shape, *TABLES[use])
            params[f"{use}_embedding/table"] = vocabularies[use != "source"].rows(table, 0.0)
        bias = _take_array(arrays, (1, sizes[1]), BIAS)
    if bias.any() or -1 in vocabularies[1].order:
        settings["model.output_bias"] = True
        params["output_bias"] = vocabularies[1].rows(bias.ravel(), NEVER)
    return settings, tokenizers, params


def keep(folder: Path, run: Path) -> None:
    """Copies the files of the original model that `write_back` needs into an imported run."""
    origin = run / ORIGIN
    origin.mkdir()
    names = [name for name in SMALL if (folder / name).exists()]
    digests = {name: files.copy_file(folder / name, origin / name, FIX) for name in names}
    files.write_json(origin / DIGESTS, digests)


def write_back(config: ModelConfig, params: Any, origin: Path, folder: Path) -> None:
    """Exports an imported run, with the token ids and the files of its original model."""
    fix = "import the model again, or delete this folder to export it with the ids of this project"
    digests = files.read_json(origin / DIGESTS, files.Each(str), fix)
    for name in digests.keys() & {*SMALL}:  # ignores files that are not part of the model
        files.copy_file(origin / name, folder / name, fix, digests[name])
    vocabularies = _read_vocabularies(origin, _read_config(origin))
    arrays = marian.make_arrays(config, params)
    for name in {ENCODER, DECODER, SHARED, OUTPUT}.intersection(arrays):
        arrays[name] = vocabularies[name != ENCODER].rows_back(arrays[name])
    arrays[BIAS] = vocabularies[1].rows_back(arrays[BIAS][0])[None]
    files.write_bytes(folder / WEIGHTS, safetensors.numpy.save(arrays, {"format": "pt"}))


# -- the configuration


def _read_config(folder: Path) -> dict[str, Any]:
    config = files.read_json(folder / CONFIG, SHAPE, FIX)
    heads, width = config["encoder_attention_heads"], config["encoder_ffn_dim"]
    defaults = {
        "model_type": "marian",
        "scale_embedding": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "decoder_attention_heads": heads,
        "decoder_ffn_dim": width,
    }
    config = defaults | config
    computed = {
        "model_type": ("marian",),
        "scale_embedding": (True,),
        "activation_function": (*ACTIVATIONS,),
        "decoder_attention_heads": (heads,),
        "decoder_ffn_dim": (width,),
    }
    for key, choices in computed.items():
        if config[key] not in choices:
            names = " or ".join(map(json.dumps, choices))
            raise UserError(
                f"{folder / CONFIG} has {key}={json.dumps(config[key])}, which is not computed "
                f"here: choose a model with {names}"
            )
    return config


def _keys_of(folder: Path, config: Mapping[str, Any], pieces: Sequence[str]) -> dict[str, Any]:
    """Returns a run's config keys, except tokenizer keys, for a Marian model."""
    tokenizer, search = (
        files.read_json(folder / name, dict, FIX) if (folder / name).exists() else {}
        for name in SETTINGS
    )
    tied, shared = config["tie_word_embeddings"], config["share_encoder_decoder_embeddings"]
    language = str(tokenizer.get("source_lang"))
    tags = [name for piece in pieces if TAG.fullmatch(name := piece.removeprefix("▁"))]
    return {
        "model.d_model": config["d_model"],
        "model.d_ff": config["encoder_ffn_dim"],
        "model.num_heads": config["encoder_attention_heads"],
        **{f"model.num_{half}_layers": config[f"{half}_layers"] for half in HALVES},
        "model.activation": ACTIVATIONS[config["activation_function"]],
        "model.positions": "split",
        "model.attention_bias": True,
        "model.norm_epsilon": 1e-5,
        "model.tied_embeddings": ("all" if shared else "decoder") if tied else "none",
        "model.max_length": config["max_position_embeddings"],
        "model.dropout_embedding": config.get("dropout", 0.0),
        "model.dropout_residual": config.get("dropout", 0.0),
        "model.dropout_attention": config.get("attention_dropout", 0.0),
        "model.dropout_activation": config.get("activation_dropout", 0.0),
        "model.dropout_layer": config.get("encoder_layerdrop", 0.0),
        "data.source": "files",
        "data.train_source": "",
        "data.train_target": "",
        "data.corpora": tuple(
            {"name": re.sub("[^a-z0-9_-]", "_", tag[2:-2].lower()), "source_tag": tag}
            for tag in tags
        ),
        "decode.source_language": language if re.fullmatch("[a-z]{2,3}", language) else "",
        "decode.beam_size": search.get("num_beams") or config.get("num_beams") or 1,
        "decode.length_penalty": "average",
        "decode.alpha": float(search.get("length_penalty") or 1.0),
    }


# -- vocabularies


def _read_vocabularies(folder: Path, config: Mapping[str, Any]) -> list[Vocabulary]:
    """Returns the source and target vocabularies, which may be the same."""
    path = folder / SETTINGS[0]
    settings = files.read_json(path, dict, FIX) if path.exists() else {}
    separate = settings.get("separate_vocabs", (folder / SIDES["target.spm"]).exists())
    names = [*SIDES.values()] if separate else ["vocab.json"] * 2
    sizes = config["vocab_size"], config.get("decoder_vocab_size") or config["vocab_size"]
    return [
        _read_vocabulary(folder / name, size, config)
        for name, size in zip(names, sizes, strict=True)
    ]


def _read_vocabulary(path: Path, size: int, config: Mapping[str, Any]) -> Vocabulary:
    names = files.read_json(path, files.Each(int), FIX)
    token_of = {i: name for name, i in names.items()}
    if len(names) != size or token_of.keys() != {*range(size)}:
        raise UserError(
            f"{path} has {len(names):,} tokens, and {CONFIG} says {size:,}, with the ids from 0: "
            "copy both from one model"
        )
    if SPECIAL[UNK_ID] not in names:
        raise UserError(f"{path} has no {SPECIAL[UNK_ID]}: {FIX}")
    for key, choices in SPECIAL_KEYS.items():
        if (name := token_of.get(config[key], "no token")) not in choices.split(" or "):
            raise UserError(
                f"{path.with_name(CONFIG)} has {key}={config[key]}, which is {name!r} in "
                f"{path.name} instead of {choices}, and not computed here: choose another model"
            )
    special = {
        PAD_ID: config["pad_token_id"],
        UNK_ID: names[SPECIAL[UNK_ID]],
        BOS_ID: config[START],
        EOS_ID: config["eos_token_id"],
    }
    if special[PAD_ID] == special[BOS_ID]:  # as usual, decoding starts with the padding token
        special[PAD_ID] = -1
    others = {i: piece for piece, i in names.items() if i not in special.values()}
    order = sorted(others)
    pieces = [_piece_of_marian(others[i]) for i in order]
    return Vocabulary([*SPECIAL.values(), *pieces], [*special.values(), *order])


def _piece_of_marian(name: str) -> str:
    """Returns our name of a token. Ours of a tag includes the space before it, as in every text."""
    if TAG.fullmatch(name):
        return f"▁{name}"
    return f"<{name}>" if name in SPECIAL.values() else name


def _make_tokenizer(path: Path, vocabulary: Vocabulary) -> Tokenizer:
    """Returns the tokenizer of a side. Pieces that only the other side has are marked as unused."""
    try:
        with files.open_input(path, files.MAX_FILE, FIX) as file:
            proto = ModelProto.FromString(file.read())
        sound = (isinstance(p.piece, str) and np.isfinite(p.score) for p in proto.pieces)
        if not proto.pieces or not all(sound):
            raise RuntimeError
        there = {p.piece: p for p in proto.pieces if p.type not in (p.UNKNOWN, p.CONTROL)}
        kind = TrainerSpec.ModelType.Name(proto.trainer_spec.model_type).lower()
        names = vocabulary.pieces[len(SPECIAL) :]
        for name in names:
            if TAG.fullmatch(name.removeprefix("▁")):
                there[name] = proto.SentencePiece(piece=name, type="USER_DEFINED")
            elif name not in there:
                if kind == "bpe":  # BPE would merge an unused piece, and then split it again
                    raise UserError(
                        f"{path} is of kind bpe and lacks {name!r} of its vocabulary: choose a "
                        "model whose sides have one sentencepiece model, or such of kind unigram"
                    )
                there[name] = proto.SentencePiece(piece=name, type="UNUSED")
        if lacking := there.keys() - {*names}:
            logger.warning(
                f"warning: {path} has {len(lacking):,} pieces that its vocabulary lacks, such as "
                f"{min(lacking)!r}: texts with them are cut otherwise"
            )
        set_pieces(proto, [there[name] for name in names])
        return Tokenizer(proto.SerializeToString(deterministic=True))
    except (DecodeError, RuntimeError):
        raise UserError(f"{path} is not a sentencepiece model, or is damaged: {FIX}") from None


# -- parameters


def _open_arrays(folder: Path) -> Any:
    """Opens the weights with `safetensors.safe_open`, which loads each array on first access."""
    path = folder / WEIGHTS
    if not path.exists() and (folder / PICKLE).exists():
        raise UserError(
            f"{folder} has its weights in {PICKLE} alone, which may run any code: where you trust "
            f'it, write {WEIGHTS} by python -c "from transformers import MarianMTModel as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    try:
        files.open_input(path, None, FIX).close()  # rejects pipes
        return safetensors.safe_open(path, "numpy")
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}): download it again") from None


def _take_array(arrays: Any, shape: tuple[int, ...], *names: str) -> np.ndarray:
    """Returns the first existing array of these names, in float32, and checks shape and values."""
    name = next((name for name in names if name in arrays.keys()), None)  # noqa: SIM118
    if name is None:
        raise UserError(f"{WEIGHTS} has no {names[0]}: {FIX}")
    if (actual := tuple(arrays.get_slice(name).get_shape())) != shape:
        raise UserError(
            f"{WEIGHTS} has {name} of shape {actual}, and {CONFIG} says {shape}: copy both from "
            "one model"
        )
    array = arrays.get_tensor(name).astype(np.float32)
    if not np.isfinite(array).all():
        raise UserError(f"{WEIGHTS} has NaN or infinite numbers in {name}: download it again")
    return array


def _layer_params(arrays: Any, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    params, width, inner = {}, settings["model.d_model"], settings["model.d_ff"]
    shapes = {"norm": (width,), "inner": (inner, width), "outer": (width, inner)}
    for half in HALVES:
        for i in range(settings[f"model.num_{half}_layers"]):
            for ours, theirs in marian.MODULES[half].items():
                place, prefix = f"model.{half}.layers.{i}.{theirs}", f"{half}_layers_{i}/{ours}"
                shape = shapes.get(ours.split("/")[-1], (width, width))
                weight = _take_array(arrays, shape, f"{place}.weight")
                params[f"{prefix}/bias"] = _take_array(arrays, shape[:1], f"{place}.bias")
                if ours.endswith("norm"):
                    params[f"{prefix}/scale"] = weight
                else:
                    params[f"{prefix}/kernel"] = np.ascontiguousarray(weight.T)
    return params
