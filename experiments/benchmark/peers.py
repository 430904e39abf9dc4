"""Other libraries whose training speed we compare with ours, without importing JAX.

`train` takes an `order` from `measurements`, and `turn` (see `turns`).
"""
# pyright: reportMissingImports=false

import importlib
import itertools
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID
from transformer.model.config import ModelConfig
from ..process.process import keep_freed_memory
from .turns import Turn, cores


class Peer(NamedTuple):
    """A system to compare with: its title, required packages and measurement function."""

    title: str
    packages: tuple[str, ...]
    function: str
    by_default: bool = True  # whether the peer is measured if --peers is not set
    options: Mapping[str, Any] = MappingProxyType({})  # additional entries of `order`
    keys: Mapping[str, str] = MappingProxyType({})  # config overrides, for our own system

    def varied(self, title: str, by_default: bool = True, **options: Any) -> "Peer":
        """Returns a copy with additional options, and with `title` appended to the title."""
        options = {**self.options, **options}
        return self._replace(title=self.title + title, by_default=by_default, options=options)


TORCH = Peer("torch.nn.Transformer", ("torch",), f"{__package__}.peers.train")
HUGGING_FACE = TORCH._replace(
    title="Hugging Face", packages=("torch", "transformers"), options={"marian": True}
)
# Peers that compile for minutes or use lower precision are measured only if requested.
PEERS = {
    "torch": TORCH,
    "torch_compile": TORCH.varied(", torch.compile", by_default=False, compile=True),
    "torch_bfloat16": TORCH.varied(", bfloat16", by_default=False, bfloat16=True),
    "hugging_face": HUGGING_FACE,
}
# Variants of these peers that retain freed memory, as our training process does.
PEERS |= {
    f"{name}_keep": peer.varied(", memory kept", peer.by_default, keep=True)
    for name, peer in PEERS.items()
}
OURS = Peer("compiled step", (), f"{__package__}.workloads.step", by_default=False)
PEERS |= {
    "ours_bfloat16": OURS.varied(", factors of bfloat16", by_default=False)._replace(
        keys={"model.matmul_dtype": "bfloat16"}
    ),
    "ours_flash": OURS.varied(", flash attention", by_default=False)._replace(
        keys={"model.attention_implementation": "flash"}
    ),
}


def train(order: Mapping[str, Any], turn: Turn) -> None:
    """Trains a PyTorch model on the stored batches in order, with `steps` batches per turn."""
    import torch

    if order.get("keep"):
        keep_freed_memory()
    torch.set_num_threads(cores())
    device = order["device"]
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    model, logits = make_model(order)
    model = model.train().to(device)
    step, count = make_step(model, logits, order), order["steps"]
    with np.load(order["batches"]) as arrays:
        batches = [
            tuple(
                torch.from_numpy(arrays[f"{name}_{i}"]).long().to(device)
                for name in order["arrays"]
            )
            for i in range(len(arrays) // len(order["arrays"]))
        ]
    for batch in {tuple(x.shape for x in batch): batch for batch in batches}.values():
        step(*batch)
        step(*batch)
    wait()
    turn({})
    for number in itertools.count():
        part = [batches[i % len(batches)] for i in range(number * count, (number + 1) * count)]
        start = time.monotonic()
        for batch in part:
            step(*batch)
        wait()
        turn({"seconds": time.monotonic() - start})


def make_model(order: Mapping[str, Any]) -> tuple[Any, Callable]:
    """Returns the model, and a function that maps source and target token ids to logits."""
    import torch

    config, rates = ModelConfig(**order["model"]), order["rates"]
    if order.get("marian"):
        names = {"dropout": "residual", "attention_dropout": "attention"}
        names["activation_dropout"] = "activation"
        package = importlib.import_module("transformers")
        model = make_marian(package, config, **{name: rates[own] for name, own in names.items()})

        def logits(source: Any, target: Any) -> Any:
            inputs = {"input_ids": source, "attention_mask": (source != PAD_ID).long()}
            return model(**inputs, decoder_input_ids=target, use_cache=False).logits
    else:
        from .torch_model import TorchTranslator

        model = logits = TorchTranslator(config, rates)
    if order.get("compile"):  # compiled once per shape
        torch._dynamo.config.recompile_limit = 64  # by default the ninth shape is not compiled
        logits = torch.compile(logits, dynamic=False)
    if not order.get("bfloat16"):
        return model, logits

    def rounded(source: Any, target: Any) -> Any:  # runs matmuls in bfloat16
        with torch.autocast(order["device"], torch.bfloat16):
            return logits(source, target).float()

    return model, rounded


def make_marian(package: Any, config: ModelConfig, **dropouts: float) -> Any:
    """Returns a Marian model of `transformers` with our sizes, or M2M100 for a pre-norm config."""
    kind = "M2M100" if config.normalizes_input else "Marian"
    model = "M2M100ForConditionalGeneration" if config.normalizes_input else "MarianMTModel"
    both: dict[str, float] = {"attention_heads": config.num_heads, "ffn_dim": config.d_ff}
    both["layerdrop"] = 0.0  # by default, M2M100 uses LayerDrop
    settings = getattr(package, f"{kind}Config")(
        **{"vocab_size": config.target_vocab_size, "d_model": config.d_model},
        encoder_layers=config.num_encoder_layers,
        decoder_layers=config.num_decoder_layers,
        **{f"{half}_{name}": both[name] for half in ("encoder", "decoder") for name in both},
        max_position_embeddings=config.max_length,
        **{"activation_function": "relu", "scale_embedding": True},
        tie_word_embeddings=config.one_table,
        share_encoder_decoder_embeddings=config.one_table,
        **{"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID},
        **{"decoder_start_token_id": BOS_ID, "forced_eos_token_id": None},
        **dropouts,
    )
    return getattr(package, model)(settings)


def make_step(model: Any, logits: Callable, order: Mapping[str, Any]) -> Callable:
    """Returns the training step, which takes source, target and labels and returns the loss."""
    import torch

    settings = order["optimizer"]
    decays = settings["name"] == "adamw"
    optimizer = (torch.optim.AdamW if decays else torch.optim.Adam)(
        model.parameters(),
        lr=1e-4,
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"],
        weight_decay=settings["weight_decay"] if decays else 0.0,
        fused=True,
    )

    def step(source: Any, target: Any, labels: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(
            logits(source, target).flatten(0, -2),
            labels.flatten(),
            ignore_index=PAD_ID,
            label_smoothing=order["label_smoothing"],
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if settings["clip_norm"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
        optimizer.step()
        return loss.detach()

    return step
