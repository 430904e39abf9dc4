"""A model of Hugging Face's Marian, such as those of OPUS-MT, as a translator of ours, and back.

It is the inverse of `bridges.marian`. Marian's ids are those of vocab.json, in any order, and none
of its sentencepiece files has them; ours begin with four special ones. So the rows of its tables
are put in our order, and each side has a sentencepiece model with all pieces of the vocabulary.
"""

import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from google.protobuf.message import DecodeError
from jaxtyping import Float

# protobuf makes these classes when they are imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer.bridges import marian
from transformer.bridges.layers import HALVES
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL, Tokenizer, set_pieces
from transformer.data.tokenizer.draws import UNK_ID
from transformer.errors import UserError
from transformer.files import Each, read_json, write_bytes
from transformer.model.config import ModelConfig

logger = logging.getLogger(__name__)

CONFIG, WEIGHTS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
SIDES = {"source.spm": "vocab.json", "target.spm": "target_vocab.json"}
SETTINGS = ("tokenizer_config.json", "generation_config.json")
ORIGIN = "marian"  # folder of a run, with the small files of the model that it was
FIX = "name a folder as MarianMTModel.save_pretrained and MarianTokenizer.save_pretrained write it"
NUMBERS = (
    "vocab_size d_model encoder_layers decoder_layers encoder_attention_heads encoder_ffn_dim "
    "max_position_embeddings pad_token_id eos_token_id decoder_start_token_id"
)
SHAPE = dict.fromkeys(NUMBERS.split(), int) | {"activation_function": str}
# The only values that are computed here, by key of config.json; the first is that of a file without
# the key.
COMPUTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("marian",),
    "scale_embedding": (True,),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "add_final_layer_norm": (False,),
    "static_position_embeddings": (True,),
}
ACTIVATIONS = {"swish": "silu", **{theirs: ours for ours, theirs in marian.ACTIVATIONS.items()}}
# The names of a table, by its use; tied ones have one of them.
SHARED, OUTPUT = "model.shared.weight", "lm_head.weight"
ENCODER, DECODER = (f"model.{half}.embed_tokens.weight" for half in HALVES)
TABLES = {
    "source": (ENCODER, SHARED, DECODER, OUTPUT),
    "target": (DECODER, SHARED, OUTPUT),
    "output": (OUTPUT,),
}
BIAS = "final_logits_bias"
# The bias of a token that Marian lacks: its probability is below the precision of the others', and
# it hardly changes the mean of all logits, which label smoothing takes.
NEVER = -100.0
TAG = re.compile(r">>[^\s<>]+<<")  # of the target's language, before a source


class Vocabulary(NamedTuple):
    """The ids of a side: our piece i is Marian's token `order[i]`, or -1 for one that it lacks."""

    pieces: list[str]
    order: list[int]

    def rows(self, table: Float[np.ndarray, "V *D"], lacking: float) -> Float[np.ndarray, "W *D"]:
        """Returns the rows of a table in our order."""
        last = np.full((1, *table.shape[1:]), lacking, np.float32)
        return np.concatenate([table, last])[self.order]

    def rows_back(self, table: Float[np.ndarray, "W *D"]) -> Float[np.ndarray, "V *D"]:
        """Returns the rows of a table in Marian's order."""
        ours = {theirs: i for i, theirs in enumerate(self.order)}
        return table[[ours[theirs] for theirs in range(len(ours) - (-1 in ours))]]


def read(folder: Path) -> tuple[dict[str, Any], list[Tokenizer], dict[str, np.ndarray]]:
    """Returns a model: {dotted key: value} of its config, source and target tokenizer, parameters.

    Raises UserError if it is none that is computed here.
    """
    config = _read_config(folder)
    vocabularies = _read_vocabularies(folder, config)
    tokenizers = [_make_tokenizer(folder / n, v) for n, v in zip(SIDES, vocabularies, strict=True)]
    arrays = _read_arrays(folder)
    settings = _settings(folder, config, vocabularies[0].pieces)
    settings["tokenizer.kind"] = tokenizers[0].kind
    settings["tokenizer.joint"] = tokenizers[0].model == tokenizers[1].model
    params = _layers(arrays, settings)
    tied = settings["model.tied_embeddings"]
    uses = {"all": ["target"], "decoder": ["source", "target"], "none": [*TABLES]}[tied]
    for use in uses:
        table = _take(arrays, *TABLES[use])
        params[f"{use}_embedding/table"] = vocabularies[use != "source"].rows(table, 0.0)
    bias = _take(arrays, BIAS)
    if bias.any() or -1 in vocabularies[1].order:
        settings["model.output_bias"] = True
        params["output_bias"] = vocabularies[1].rows(bias.ravel(), NEVER)
    return settings, tokenizers, params


def keep(folder: Path, run: Path) -> None:
    """Copies what an imported run is written back with: all but the weights."""
    (run / ORIGIN).mkdir()
    for name in (CONFIG, *SIDES, *SIDES.values(), *SETTINGS):
        if (folder / name).exists():
            write_bytes(run / ORIGIN / name, (folder / name).read_bytes())


def write_back(config: ModelConfig, params: Any, origin: Path, folder: Path) -> None:
    """Writes an imported run with the ids and the files of the model that it was, see `keep`."""
    vocabularies = _read_vocabularies(origin, _read_config(origin))
    arrays = marian.make_arrays(config, params)
    for name in {ENCODER, DECODER, SHARED, OUTPUT}.intersection(arrays):
        arrays[name] = vocabularies[name != ENCODER].rows_back(arrays[name])
    arrays[BIAS] = vocabularies[1].rows_back(arrays[BIAS][0])[None]
    write_bytes(folder / WEIGHTS, safetensors.numpy.save(arrays, {"format": "pt"}))
    for path in origin.iterdir():
        shutil.copyfile(path, folder / path.name)


# -- the configuration


def _read_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG, SHAPE, FIX)
    config = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True, **config}
    computed = COMPUTED | {
        "activation_function": (*ACTIVATIONS,),
        "decoder_attention_heads": (config["encoder_attention_heads"],),
        "decoder_ffn_dim": (config["encoder_ffn_dim"],),
    }
    for key, choices in computed.items():
        # transformers has another default for this key than these models have.
        value = config.get(key, False if key == "scale_embedding" else choices[0])
        if value not in choices:
            names = " or ".join(map(json.dumps, choices))
            raise UserError(
                f"{folder / CONFIG} has {key}={json.dumps(value)}, which is not computed here: "
                f"choose a model with {names}"
            )
    return config


def _settings(folder: Path, config: Mapping[str, Any], pieces: Sequence[str]) -> dict[str, Any]:
    """The keys of the config of a run, but for those of its tokenizers."""
    tokenizer, search = (
        read_json(folder / name, dict, FIX) if (folder / name).exists() else {} for name in SETTINGS
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
    """The vocabularies of both sides, which may be one."""
    path = folder / SETTINGS[0]
    settings = read_json(path, {"separate_vocabs?": bool}, FIX) if path.exists() else {}
    separate = settings.get("separate_vocabs", (folder / SIDES["target.spm"]).exists())
    names = [*SIDES.values()] if separate else ["vocab.json"] * 2
    sizes = config["vocab_size"], config.get("decoder_vocab_size") or config["vocab_size"]
    return [
        _read_vocabulary(folder / name, size, config)
        for name, size in zip(names, sizes, strict=True)
    ]


def _read_vocabulary(path: Path, size: int, config: Mapping[str, Any]) -> Vocabulary:
    names = read_json(path, Each(int), FIX)
    if sorted(names.values()) != [*range(size)]:
        raise UserError(
            f"{path} has {len(names):,} tokens, and {CONFIG} says {size:,}, with the ids from 0: "
            "copy both from one model"
        )
    if SPECIAL[UNK_ID] not in names:
        raise UserError(f"{path} has no {SPECIAL[UNK_ID]}: {FIX}")
    special = {
        PAD_ID: config["pad_token_id"],
        UNK_ID: names[SPECIAL[UNK_ID]],
        BOS_ID: config["decoder_start_token_id"],
        EOS_ID: config["eos_token_id"],
    }
    if special[PAD_ID] == special[BOS_ID]:  # the usual case: what is never read starts a text
        special[PAD_ID] = -1
    others = {i: piece for piece, i in names.items() if i not in special.values()}
    order = sorted(others)
    pieces = [_piece(others[i]) for i in order]
    return Vocabulary([*SPECIAL.values(), *pieces], [*special.values(), *order])


def _piece(name: str) -> str:
    """Our name of a token: a tag is one with the blank before it, which begins every text."""
    if TAG.fullmatch(name):
        return f"▁{name}"
    return f"<{name}>" if name in SPECIAL.values() else name


def _make_tokenizer(path: Path, vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer of a side: its own pieces as they are, and those of the other side unused."""
    try:
        proto = ModelProto.FromString(path.read_bytes())
        there = {p.piece: p for p in proto.pieces if p.type not in (p.UNKNOWN, p.CONTROL)}
        kind = TrainerSpec.ModelType.Name(proto.trainer_spec.model_type).lower()
        names = vocabulary.pieces[len(SPECIAL) :]
        for name in names:
            if TAG.fullmatch(name.removeprefix("▁")):
                there[name] = proto.SentencePiece(piece=name, type="USER_DEFINED")
            elif name not in there:
                if kind == "bpe":  # sentencepiece would merge it and cut it again
                    raise UserError(
                        f"{path} is of kind bpe and lacks {name!r} of its vocabulary: choose a "
                        "model whose sides have one sentencepiece model, or such of kind unigram"
                    )
                there[name] = proto.SentencePiece(piece=name, type="UNUSED")
        if unknown := there.keys() - {*names}:
            logger.warning(
                f"warning: {path} has {len(unknown):,} pieces that its vocabulary lacks, such as "
                f"{min(unknown)!r}: texts with them are cut otherwise"
            )
        set_pieces(proto, [there[name] for name in names])
        return Tokenizer(proto.SerializeToString(deterministic=True))
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {FIX}") from None
    except (DecodeError, RuntimeError):
        raise UserError(f"{path} is not a sentencepiece model, or is damaged: {FIX}") from None


# -- parameters


def _read_arrays(folder: Path) -> dict[str, np.ndarray]:
    path = folder / WEIGHTS
    if not path.exists() and (folder / PICKLE).exists():
        raise UserError(
            f"{folder} has its weights in {PICKLE} alone, which may run any code: where you trust "
            f'it, write {WEIGHTS} by python -c "from transformers import MarianMTModel as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    try:
        return safetensors.numpy.load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {FIX}") from None
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}): download it again") from None


def _take(arrays: Mapping[str, np.ndarray], *names: str) -> np.ndarray:
    """The first of these arrays that is there, in float32."""
    for name in names:
        if name in arrays:
            return arrays[name].astype(np.float32)
    raise UserError(f"{WEIGHTS} has no {names[0]}: {FIX}")


def _layers(arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    params = {}
    for half in HALVES:
        for i in range(settings[f"model.num_{half}_layers"]):
            for ours, theirs in marian.modules_of(half).items():
                place, prefix = f"model.{half}.layers.{i}.{theirs}", f"{half}_layers_{i}/{ours}"
                weight = _take(arrays, f"{place}.weight")
                params[f"{prefix}/bias"] = _take(arrays, f"{place}.bias")
                if ours.endswith("norm"):
                    params[f"{prefix}/scale"] = weight
                else:
                    params[f"{prefix}/kernel"] = np.ascontiguousarray(weight.T)
    return params
