"""The systems that are compared with our training step, and PyTorch's steps on the same batches.

Each gets an order, see `comparison.peer_systems`, and `turn`, see `worker`. No JAX is imported.
"""
# pyright: reportMissingImports=false

import importlib
import itertools
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from experiments.benchmark.worker import Turn, cores
from experiments.process import keep_freed_memory
from transformer.data.tokenizer import PAD_ID
from transformer.model.config import ModelConfig


class Peer(NamedTuple):
    """A system to compare with: its title, its function, and the packages that it needs.

    Attributes:
      keeps_memory: whether its process keeps freed memory, as that of our trainings does.
      by_default: whether it is measured unless others are named.
      keys: of the config, with their values: of a system that is ours.
    """

    title: str
    function: str
    packages: tuple[str, ...]
    keeps_memory: bool = False
    by_default: bool = True
    keys: Mapping[str, str] = MappingProxyType({})


PEERS = {
    "torch": Peer("torch.nn.Transformer", "experiments.benchmark.peers.torch_step", ("torch",)),
    "torch_compile": Peer(
        "torch.nn.Transformer, torch.compile",
        "experiments.benchmark.peers.torch_compile_step",
        ("torch",),
        by_default=False,  # compiles for minutes
    ),
    "torch_bfloat16": Peer(
        "torch.nn.Transformer, bfloat16",
        "experiments.benchmark.peers.torch_bfloat16_step",
        ("torch",),
        by_default=False,  # of a lower precision
    ),
    "hugging_face": Peer(
        "Hugging Face",
        "experiments.benchmark.peers.hugging_face_step",
        ("torch", "transformers"),
    ),
    "ours_bfloat16": Peer(
        "compiled step, factors of bfloat16",
        "experiments.benchmark.ours.step",
        (),
        by_default=False,  # of a lower precision
        keys={"model.matmul_dtype": "bfloat16"},
    ),
}
PEERS |= {
    f"{name}_keep": peer._replace(title=f"{peer.title}, memory kept", keeps_memory=True)
    for name, peer in PEERS.items()
    if not peer.keys
}


def torch_step(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Trains `torch.nn.Transformer`."""
    model = _torch_model(order)
    _serve(model, model, order, turn)


def torch_compile_step(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Trains the same, compiled by `torch.compile` for each shape."""
    import torch

    torch._dynamo.config.recompile_limit = 64  # shapes; by default the ninth runs uncompiled
    model = _torch_model(order)
    _serve(model, torch.compile(model, dynamic=False), order, turn)


def torch_bfloat16_step(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Trains the same with products in bfloat16 and float32 parameters, as `autocast` chooses."""
    import torch

    model = _torch_model(order)

    def logits(source: Any, target: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return model(source, target).float()

    _serve(model, logits, order, turn)


def _torch_model(order: Mapping[str, Any]) -> Any:
    module = importlib.import_module("experiments.benchmark.torch_model")
    return module.Translator(ModelConfig(**order["model"]), order["rates"])


def hugging_face_step(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Trains Hugging Face's Marian or M2M100."""
    import transformers as package

    from experiments.studies.marian import make_model

    rates = order["rates"]
    model = make_model(
        package,
        ModelConfig(**order["model"]),
        dropout=rates["residual"],
        attention_dropout=rates["attention"],
        activation_dropout=rates["activation"],
    )

    def logits(source: Any, target: Any) -> Any:
        mask = (source != PAD_ID).long()
        outputs = model(
            input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False
        )
        return outputs.logits

    _serve(model, logits, order, turn)


def make_step(model: Any, logits: Callable, order: Mapping[str, Any]) -> Callable:
    """Returns the training step: a function of source, target and labels that returns the loss."""
    import torch

    settings = order["optimizer"]
    make = torch.optim.AdamW if settings["name"] == "adamw" else torch.optim.Adam
    optimizer = make(
        model.parameters(),
        lr=1e-4,
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"],
        weight_decay=settings["weight_decay"] if settings["name"] == "adamw" else 0.0,
        fused=True,
    )

    def step(source: Any, target: Any, labels: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(
            logits(source, target).flatten(0, 1),
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


def _serve(model: Any, logits: Callable, order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Trains on the batches in their order, `steps` of them each time."""
    import torch

    if order["keep_memory"]:
        keep_freed_memory()
    torch.set_num_threads(cores())
    step, count = make_step(model.train(), logits, order), order["steps"]
    with np.load(order["batches"]) as arrays:
        batches = [
            tuple(torch.from_numpy(arrays[f"{name}_{i}"]).long() for name in order["arrays"])
            for i in range(len(arrays) // len(order["arrays"]))
        ]
    start = time.monotonic()
    for batch in {tuple(x.shape for x in batch): batch for batch in batches}.values():
        step(*batch)
        step(*batch)
    first = time.monotonic() - start
    parameters = sum(x.numel() for x in model.parameters() if x.requires_grad)
    turn({"first_seconds": first, "parameters": parameters, "threads": torch.get_num_threads()})
    for number in itertools.count():
        own = [batches[i % len(batches)] for i in range(number * count, (number + 1) * count)]
        start = time.monotonic()
        for batch in own:
            step(*batch)
        turn({"seconds": time.monotonic() - start})
    raise AssertionError
