"""A trained translator in Hugging Face's transformers, with the same weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.studies.marian import make_model
from experiments.studies.peers import Ids, Tables, imported, position_table
from transformer.data.tokenizer import BOS_ID, EOS_ID, NEVER_WRITTEN, PAD_ID
from transformer.inference.base import Params
from transformer.inference.translator import Translator
from transformer.model.config import ModelConfig


class HuggingFace:
    """A translator of Hugging Face's transformers: Marian, or M2M100 if norms come first.

    Args:
      translator, params: ours.
      threads: of PyTorch.
    """

    name = "Hugging Face generate"

    def __init__(self, translator: Translator, params: Params, threads: int):
        self._torch, package = imported("torch"), imported("transformers")
        self._torch.set_num_threads(threads)
        config = translator.model.config
        tables = Tables(config, params)
        self._model = make_model(package, config).eval()
        self._fill(config, params, tables)

    def translate(
        self, sources: Sequence[Ids], beam: int, batch: int, alpha: float, limit: int
    ) -> list[Ids]:
        results: list[Ids] = [[]] * len(sources)
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        for first in range(0, len(order), batch):
            rows = order[first : first + batch]
            with self._torch.inference_mode():
                found = self._model.generate(
                    **self._inputs([sources[i] for i in rows]),
                    num_beams=beam,
                    do_sample=False,
                    length_penalty=alpha,
                    early_stopping=False,
                    max_new_tokens=limit,
                    suppress_tokens=list(NEVER_WRITTEN),
                )
            for i, ids in zip(rows, found[:, 1:].tolist(), strict=True):
                results[i] = ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids
        return results

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[float]:
        scores = []
        for source, target in zip(sources, targets, strict=True):
            given = self._torch.tensor([[BOS_ID, *target]])
            with self._torch.inference_mode():
                logits = self._model(**self._inputs([source]), decoder_input_ids=given).logits[0]
            log_probs = self._torch.log_softmax(logits, dim=-1)
            wanted = self._torch.tensor([*target, EOS_ID])[:, None]
            scores.append(log_probs.gather(1, wanted).sum().item())
        return scores

    def _inputs(self, sources: Sequence[Ids]) -> dict[str, Any]:
        longest = max(map(len, sources)) + 1
        rows = [[*ids, EOS_ID] + [PAD_ID] * (longest - 1 - len(ids)) for ids in sources]
        tokens = self._torch.tensor(rows)
        return {"input_ids": tokens, "attention_mask": (tokens != PAD_ID).long()}

    def _fill(self, config: ModelConfig, params: Params, tables: "Tables") -> None:
        there = self._model.state_dict()
        weights = {"lm_head.weight": tables.output}
        if "model.shared.weight" in there:  # not of a Marian without it
            weights["model.shared.weight"] = tables.target
        for half, table in (("encoder", tables.source), ("decoder", tables.target)):
            weights[f"model.{half}.embed_tokens.weight"] = table
            if config.normalizes_input:
                weights |= _named(f"model.{half}.layer_norm", params[f"{half}_norm"])
            layer = 0
            while f"{half}_layers_{layer}" in params:
                own = _hugging_face_layer(params[f"{half}_layers_{layer}"])
                weights |= {f"model.{half}.layers.{layer}.{key}": own[key] for key in own}
                layer += 1
        for name, tensor in there.items():
            if name in weights:
                assert tuple(tensor.shape) == weights[name].shape, name
                tensor.copy_(self._torch.tensor(weights.pop(name)))
            elif name.endswith("bias"):  # a model of ours may have none
                tensor.zero_()
        assert not weights, f"{sorted(weights)} have no place"
        positions = position_table(config)
        for half in (self._model.model.encoder, self._model.model.decoder):
            place = half.embed_positions
            if config.normalizes_input:  # positions are counted from that of padding
                before = np.zeros((PAD_ID + 1, config.d_model), np.float32)
                place.weights = self._torch.tensor(np.concatenate([before, positions]))
            else:
                place.weight.data = self._torch.tensor(positions)
        for module in self._model.modules():
            if isinstance(module, self._torch.nn.LayerNorm):
                module.eps = config.norm_epsilon


def _hugging_face_layer(params: Params) -> dict[str, np.ndarray]:
    """The weights of a layer by their names there."""
    weights = {}
    for ours, theirs in (("self_attention", "self_attn"), ("cross_attention", "encoder_attn")):
        if ours in params:
            for name, short in {"query": "q", "key": "k", "value": "v", "output": "out"}.items():
                weights |= _named(f"{theirs}.{short}_proj", params[ours][name])
            weights |= _named(f"{theirs}_layer_norm", params[f"{ours}_residual"]["norm"])
    weights |= _named("fc1", params["feed_forward"]["inner"])
    weights |= _named("fc2", params["feed_forward"]["outer"])
    return weights | _named("final_layer_norm", params["feed_forward_residual"]["norm"])


def _named(name: str, params: Params) -> dict[str, np.ndarray]:
    """The arrays of a linear map or a norm by their names there."""
    kernel = params["kernel"].T if "kernel" in params else params["scale"]
    arrays = {f"{name}.weight": np.asarray(kernel)}
    return arrays | ({f"{name}.bias": np.asarray(params["bias"])} if "bias" in params else {})
