"""A trained translator in CTranslate2, with the same weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.studies.peers import Ids, Tables, imported, position_table
from transformer.data.tokenizer import BOS_ID, EOS_ID, NEVER_WRITTEN, UNK_ID
from transformer.inference.base import Params
from transformer.inference.translator import Translator
from transformer.model.config import ModelConfig


class CTranslate2:
    """A translator of CTranslate2.

    Args:
      translator, params: ours.
      folder: where the converted model is written.
      compute_type: such as "float32" or "int8".
      workers: batches at once.
      threads: of each of them.
    """

    def __init__(
        self,
        translator: Translator,
        params: Params,
        folder: Path,
        compute_type: str,
        workers: int,
        threads: int,
    ):
        self._package = imported("ctranslate2")
        self.name = f"CTranslate2 {compute_type}, {workers} × {threads} threads"
        self._sides = [
            tokenizer.pieces(range(tokenizer.vocab_size))
            for tokenizer in (translator.source_tokenizer, translator.target_tokenizer)
        ]
        self._ids = {piece: i for i, piece in enumerate(self._sides[1])}
        if not folder.exists():
            spec = self._spec(translator.model.config, params)
            spec.register_source_vocabulary(self._sides[0])
            spec.register_target_vocabulary(self._sides[1])
            spec.validate()
            folder.mkdir(parents=True)
            spec.save(str(folder))
        self._translator = self._package.Translator(
            str(folder), compute_type=compute_type, inter_threads=workers, intra_threads=threads
        )

    def translate(
        self, sources: Sequence[Ids], beam: int, batch: int, alpha: float, limit: int
    ) -> list[Ids]:
        found = self._translator.translate_batch(
            self._pieces(0, sources),
            beam_size=beam,
            max_batch_size=batch,
            length_penalty=alpha,
            max_decoding_length=limit,
            max_input_length=0,
            suppress_sequences=[[self._sides[1][token]] for token in NEVER_WRITTEN],
        )
        return [[self._ids[piece] for piece in each.hypotheses[0]] for each in found]

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[float]:
        sides = self._pieces(0, sources), self._pieces(1, targets)
        found = self._translator.score_batch(*sides, max_input_length=0)
        return [sum(each.log_probs) for each in found]

    def _pieces(self, side: int, sentences: Sequence[Ids]) -> list[list[str]]:
        return [[self._sides[side][token] for token in ids] for ids in sentences]

    def _spec(self, config: ModelConfig, params: Params) -> Any:
        specs = self._package.specs
        spec = specs.TransformerSpec.from_config(
            (config.num_encoder_layers, config.num_decoder_layers),
            config.num_heads,
            pre_norm=config.normalizes_input,
            activation=specs.common_spec.Activation.RELU,
        )
        names = self._sides[1]
        for key, value in {
            "unk_token": names[UNK_ID],
            "bos_token": names[BOS_ID],
            "eos_token": names[EOS_ID],
            "decoder_start_token": names[BOS_ID],
            "add_source_eos": True,
            "layer_norm_epsilon": config.norm_epsilon,
        }.items():
            setattr(spec.config, key, value)
        tables = Tables(config, params)
        positions = position_table(config)
        spec.encoder.embeddings[0].weight = tables.source
        spec.decoder.embeddings.weight = tables.target
        spec.decoder.projection.weight = tables.output
        for stack, half in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
            stack.position_encodings.encodings = positions
            if config.normalizes_input:
                _fill_norm(stack.layer_norm, params[f"{half}_norm"])
            for i, layer in enumerate(stack.layer):
                _fill_layer(layer, params[f"{half}_layers_{i}"])
        return spec


def _fill_layer(layer: Any, params: Params) -> None:
    attention = params["self_attention"]
    _fill_linear(layer.self_attention.linear[0], *map(attention.get, ("query", "key", "value")))
    _fill_linear(layer.self_attention.linear[1], attention["output"])
    _fill_norm(layer.self_attention.layer_norm, params["self_attention_residual"]["norm"])
    if "cross_attention" in params:
        attention = params["cross_attention"]
        _fill_linear(layer.attention.linear[0], attention["query"])
        _fill_linear(layer.attention.linear[1], attention["key"], attention["value"])
        _fill_linear(layer.attention.linear[2], attention["output"])
        _fill_norm(layer.attention.layer_norm, params["cross_attention_residual"]["norm"])
    _fill_linear(layer.ffn.linear_0, params["feed_forward"]["inner"])
    _fill_linear(layer.ffn.linear_1, params["feed_forward"]["outer"])
    _fill_norm(layer.ffn.layer_norm, params["feed_forward_residual"]["norm"])


def _fill_linear(spec: Any, *parts: Mapping[str, Any]) -> None:
    """Fills a map that computes those of several modules side by side."""
    spec.weight = np.concatenate([np.asarray(part["kernel"]).T for part in parts])
    if "bias" in parts[0]:
        spec.bias = np.concatenate([np.asarray(part["bias"]) for part in parts])


def _fill_norm(spec: Any, params: Params) -> None:
    spec.gamma, spec.beta = np.asarray(params["scale"]), np.asarray(params["bias"])
