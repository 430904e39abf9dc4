"""Peers train the same model on the same batches.

Without the packages of requirements-peers.txt, what needs them is skipped.
"""

import dataclasses
import importlib
import importlib.util
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import ask

from experiments.benchmark import measurements
from experiments.benchmark.peers import (
    PEERS,
    make_marian,
    make_model,
    make_step,
    translate,
)
from experiments.benchmark.workloads import Shape, Workload, make_task, read_workload
from runs import toy_config
from tiny_models import tiny_config
from transformer.data.batches import Batch, make_batch
from transformer.model.layers import NO_DROPOUT
from transformer.tasks.translation import TranslationTask


def needs(*packages):
    there = all(importlib.util.find_spec(name) for name in packages)
    return pytest.mark.skipif(not there, reason="needs the packages of requirements-peers.txt")


needs_peers = needs("transformers", "torch")
SMOOTHING = 0.1
ORDER = {
    "label_smoothing": SMOOTHING,
    "optimizer": {
        **{"name": "adam", "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9},
        **{"weight_decay": 0.0, "clip_norm": 5.0},
    },
}


def workload_of(tmp_path, **changes):
    settings = {"model.attention_bias": True, "model.positions": "split", **changes}
    return Workload(toy_config(tmp_path / "cache", **settings), Shape(7, 5, 3))


def linear(prefix, params):
    return {f"{prefix}.weight": params["kernel"].T, f"{prefix}.bias": params["bias"]}


def norm(prefix, params):
    return {f"{prefix}.weight": params["scale"], f"{prefix}.bias": params["bias"]}


def layer_weights(params, prefix):
    """The weights of a layer by their names in torch.nn.Transformer."""
    found, norms = {}, ["self_attention"]
    attentions = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
    for ours, theirs in attentions.items():
        if ours in params:
            maps = [params[ours][name] for name in ("query", "key", "value")]
            weights = np.concatenate([own["kernel"].T for own in maps])
            found[f"{prefix}.{theirs}.in_proj_weight"] = weights
            found[f"{prefix}.{theirs}.in_proj_bias"] = np.concatenate([own["bias"] for own in maps])
            found |= linear(f"{prefix}.{theirs}.out_proj", params[ours]["output"])
            norms = [*norms, ours] if ours != norms[0] else norms
    for number, name in enumerate([*norms, "feed_forward"], 1):
        found |= norm(f"{prefix}.norm{number}", params[f"{name}_residual"]["norm"])
    found |= linear(f"{prefix}.linear1", params["feed_forward"]["inner"])
    return found | linear(f"{prefix}.linear2", params["feed_forward"]["outer"])


def torch_weights(params):
    """The weights of a translator by their names in the PyTorch model."""
    target = params["target_embedding"]["table"]
    found = {
        "target.weight": target,
        "source.weight": params.get("source_embedding", {"table": target})["table"],
        "output.weight": params.get("output_embedding", {"table": target})["table"],
    }
    for half in ("encoder", "decoder"):
        for name, own in params.items():
            if name.startswith(f"{half}_layers_"):
                number = name.rpartition("_")[2]
                found |= layer_weights(own, f"transformer.{half}.layers.{number}")
        if f"{half}_norm" in params:
            found |= norm(f"transformer.{half}.norm", params[f"{half}_norm"])
    return found


def test_the_functions_of_all_peers_are_there():
    for peer in PEERS.values():
        module, _, name = peer.function.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name))


@needs_peers
@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("tied", ["all", "none"])
def test_the_loss_in_pytorch_is_ours(tmp_path, position, tied):
    import torch

    from experiments.benchmark.torch_model import TorchTranslator

    changes = {"model.norm_position": position, "model.tied_embeddings": tied}
    task = make_task(workload_of(tmp_path, **changes))
    rng = np.random.default_rng(3)
    params = jax.tree.map(
        lambda x: np.asarray(x + 0.1 * rng.normal(size=x.shape), np.float32),
        task.draw_params(jax.random.key(5)),
    )
    config = task.predictor.model.config
    model = TorchTranslator(config, dict.fromkeys(NO_DROPOUT._fields, 0.0))
    ours = sum(x.size for x in jax.tree.leaves(params))
    assert sum(x.numel() for x in model.parameters()) == ours
    weights = {name: torch.tensor(np.asarray(x)) for name, x in torch_weights(params).items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["positions"], [])
    batch = task.plan[0]
    arrays = jax.tree.map(jnp.asarray, (params, batch))
    sums = task.loss(*arrays, {"label_smoothing": SMOOTHING}, jax.random.key(0))
    step = make_step(model.train(), model, ORDER)
    tensors = [torch.from_numpy(x).long() for x in batch]
    first, second = (float(step(*tensors)) for _ in range(2))
    assert first == pytest.approx(float(sums.loss / sums.weight), rel=1e-5)
    assert second < first  # and it trains


@needs_peers
@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("peer", ["torch", "torch_bfloat16", "hugging_face"])
def test_the_model_of_a_peer_has_as_many_parameters_and_trains(tmp_path, position, peer):
    import torch

    workload = workload_of(tmp_path, **{"model.norm_position": position})
    task = make_task(workload)
    order = measurements.training_peers([peer], workload, task, 2, 3, tmp_path)[peer].order
    model, logits = make_model(order)
    ours = sum(x.size for x in jax.tree.leaves(task.draw_params(jax.random.key(0))))
    assert sum(x.numel() for x in model.parameters() if x.requires_grad) == ours
    step = make_step(model.eval(), logits, ORDER)
    tensors = [torch.from_numpy(x).long() for x in task.plan[0]]
    first, second = (float(step(*tensors)) for _ in range(2))
    assert second < first


@needs("torch")
def test_pytorch_drops_what_ours_drops():
    from experiments.benchmark.torch_model import TorchTranslator

    rates = {"embedding": 0.1, "residual": 0.2, "attention": 0.3, "activation": 0.4}
    model = TorchTranslator(tiny_config(num_encoder_layers=1, num_decoder_layers=1), rates)
    assert model.dropout.p == 0.1
    for layer in (*model.transformer.encoder.layers, *model.transformer.decoder.layers):
        assert layer.self_attn.dropout == 0.3
        assert [layer.dropout.p, layer.dropout1.p, layer.dropout2.p] == [0.4, 0.2, 0.2]
    assert (layer.multihead_attn.dropout, layer.dropout3.p) == (0.3, 0.2)


def test_peers_translate_our_sentences_into_as_many_tokens_as_ours_may_have(tmp_path, monkeypatch):
    if not importlib.util.find_spec("ctranslate2"):
        spec = types.SimpleNamespace(save=lambda folder: None)
        monkeypatch.setattr(measurements, "make_spec", lambda *_: spec)
    config = workload_of(tmp_path).config
    config.decode.max_extra = 3
    task = TranslationTask(config)
    lines = [pair.source for pair in task.examples("validation", 2)]
    ids = task.predictor.source_tokenizer.encode(lines)
    arguments = Workload(config), task, lines, tmp_path
    found = measurements.decoding_peers(["torch", "ctranslate2_int8"], *arguments)
    order = found.pop("ctranslate2_int8").order
    assert not found  # PyTorch has no search
    assert (order["sentences"], order["compute_type"]) == (ids, "int8")
    assert order["tokens"] == round(np.mean([min(len(own) + 1 + 3, 16) for own in ids]))
    if importlib.util.find_spec("ctranslate2"):
        assert [row.keys() for row in ask(translate, {**order, "compute_type": "float32"}, 1)] == [
            {"first_seconds"},
            {"seconds"},
        ]
    config.model.dtype = "bfloat16"
    assert measurements.decoding_peers(["ctranslate2"], *arguments) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.positions", "rotary"),
        ("model.dropout_embedding", 0.5),
        ("model.dropout_word", 0.5),
        ("optimizer.name", "muon"),
        ("train.r_drop", 1.0),
    ],
)
def test_work_that_peers_do_not_do_is_measured_without_them(tmp_path, caplog, key, value):
    caplog.set_level("INFO")
    for changes in ({}, {key: value}):
        workload = workload_of(tmp_path, **changes)
        task = make_task(workload)
        found = measurements.training_peers(["torch"], workload, task, 2, 3, tmp_path)
        assert len(found) == (not changes)
    assert f"without torch: {key}=" in caplog.text


def test_our_own_step_is_compared_with_itself_with_another_key(tmp_path):
    workload = workload_of(tmp_path, **{"optimizer.name": "muon"})  # which PyTorch has not
    task = make_task(workload)
    found = measurements.training_peers(["torch", "ours_bfloat16"], workload, task, 2, 3, tmp_path)
    [order] = [system.order for system in found.values()]
    config = read_workload(order).config
    assert (workload.config.model.matmul_dtype, config.model.matmul_dtype) == ("", "bfloat16")
    config.model.matmul_dtype = ""
    assert config.to_dict() == workload.config.to_dict()
    assert order["steps"] == 2


def test_peers_get_our_batches_without_rows_of_padding(tmp_path):
    workload = workload_of(tmp_path)
    task = make_task(workload)
    found = measurements.training_peers(["torch"], workload, task, 2, 3, tmp_path)["torch"].order
    assert found["model"] == dataclasses.asdict(task.predictor.model.config)
    with np.load(found["batches"]) as arrays:
        assert len(arrays) == 2 * 3 * len(Batch._fields)
        for i in range(6):
            for name, expected in task.plan[i]._asdict().items():
                np.testing.assert_array_equal(arrays[f"{name}_{i}"], expected)
    batch = make_batch([[5, 6], []], [[7], []], 4, 4)
    kept = measurements._batch_arrays([batch])
    assert [kept[f"{name}_0"].shape for name in Batch._fields] == [(2, 4)] * 3


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_a_peer_leaves_out_no_layer(norm_position):
    given = {}
    package = types.SimpleNamespace(
        M2M100Config=lambda **settings: given.update(settings),
        MarianConfig=lambda **settings: given.update(settings),
        M2M100ForConditionalGeneration=lambda settings: "M2M100",
        MarianMTModel=lambda settings: "Marian",
    )
    kind = make_marian(package, tiny_config(norm_position=norm_position))
    assert kind == {"pre": "M2M100", "post": "Marian"}[norm_position]
    assert given["encoder_layerdrop"] == given["decoder_layerdrop"] == 0.0
