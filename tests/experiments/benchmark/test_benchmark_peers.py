"""Peers train the same model on the same batches.

Without the packages of requirements-peers.txt, what needs them is skipped.
"""

import dataclasses
import importlib
import importlib.util
import types

import jax
import numpy as np
import pytest

from experiments.benchmark import measurements
from experiments.benchmark.peers import (
    PEERS,
    make_marian,
    make_model,
    make_step,
)
from experiments.benchmark.workloads import Shape, Workload, make_task, read_workload
from runs import toy_config
from tiny_models import tiny_config
from transformer.data.batches import Batch, make_batch


def needs(*packages):
    there = all(importlib.util.find_spec(name) for name in packages)
    return pytest.mark.skipif(not there, reason="needs the packages of requirements-peers.txt")


needs_peers = needs("transformers", "torch")
ORDER = {
    "label_smoothing": 0.1,
    "optimizer": {
        **{"name": "adam", "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9},
        **{"weight_decay": 0.0, "clip_norm": 5.0},
    },
}


def workload_of(tmp_path, **changes):
    settings = {"model.attention_bias": True, "model.positions": "split", **changes}
    return Workload(toy_config(tmp_path / "cache", **settings), Shape(7, 5, 3))


def test_the_functions_of_all_peers_are_there():
    for peer in PEERS.values():
        module, _, name = peer.function.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name))


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


def test_work_that_peers_do_not_do_is_measured_without_them(tmp_path, caplog):
    key, value = "train.r_drop", 1.0
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
