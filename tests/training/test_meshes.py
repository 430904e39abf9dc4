"""A run on a mesh of devices computes what it computes on one, and each device has its part."""

import itertools
import re
import shutil
from collections import Counter

import jax
import numpy as np
import pytest
from device_processes import on_devices
from jax.sharding import PartitionSpec

from log_lines import heard
from runs import lines, newest_state, toy_config
from tiny_run import CONFIG, refused
from transformer.model import losses as model
from transformer.optim.parameters import named_leaves
from transformer.tasks.translation import TranslationTask
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun

MESHES = {"one": "auto", "data": "data=8", "fsdp": "fsdp=8", "tensor": "data=4,tensor=2"}
STEPS = {}  # the compiled step of each mesh


def mesh_trainer(folder, name, group=None, **changes):
    changes |= {"model.d_model": 16, "model.d_ff": 32, "train.mesh": MESHES[name]}
    changes |= {"train.epochs": 0.0, "train.evaluate_every": 99, "train.ema_decay": 0.9}
    # A rate at which the noise of rounding does not grow within fifty steps.
    config = toy_config(folder.parent / "cache", **changes, **{"optimizer.learning_rate": 1e-3})
    run = TrainingRun(TranslationTask(config), config, folder, not group or group.leads)
    devices = jax.devices()[: 1 if name == "one" else 8]
    trainer = Trainer([run], devices, train_step=STEPS.get(name), group=group)
    STEPS[name] = trainer.train_step
    return trainer


def losses(folder):
    return [line["loss"] for line in lines(folder, "train")]


def collectives(program):
    """How often each reduction or exchange stands in a program, and how many in loops."""
    name, result, within = "", Counter(), 0
    bodies = set(re.findall(r" while\(.*body=%?([\w.\-]+)", program.as_text()))
    kinds = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    for line in program.as_text().splitlines():
        if start := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line):
            name = start[1]
        elif found := re.search(rf" ({kinds})(?:-start)?\(", line):
            result[found[1]] += 1
            within += name in bodies
    return result, within


def compiled(trainer):
    """The programs of a gradient and an update."""
    batch, run = trainer.runs[0].task.plan[0], trainer.runs[0]
    like = trainer.placement.like(run.state_shapes())
    arguments = trainer.placement.arguments(like, batch, trainer.hparams, [0])
    return trainer.train_step.compile(*arguments)


def train_on_each(folder):
    model.CHUNK_LOGITS["cpu"] = 500  # so that a loss has several chunks
    for name in MESHES:
        assert mesh_trainer(folder / name, name, **{"train.steps": 50}).run()
    expected, parts = losses(folder / "one"), {}
    assert len(expected) == 50
    assert expected[-1] < expected[0] - 0.1
    [scores] = lines(folder / "one", "validation")
    assert "bleu" in scores  # of a search
    for name in MESHES:
        np.testing.assert_allclose(losses(folder / name), expected, rtol=0, atol=1e-5)
        [others] = lines(folder / name, "validation")
        assert others == pytest.approx(scores, abs=1e-5)
        state = named_leaves(mesh_trainer(folder / name, name).fresh_state())
        shards = {key: x.addressable_shards[0].data for key, x in state.items()}
        of_one, of_all = (sum(x.nbytes for x in each.values()) for each in (shards, state))
        parts[name] = of_one / of_all
    assert parts["one"] == parts["data"] == 1.0
    assert parts["fsdp"] < 1 / 7
    assert parts["tensor"] < 0.52
    [table] = (x for key, x in state.items() if re.search(r"^params/\w*embedding\w*/table", key))
    assert table.sharding.spec == PartitionSpec("tensor", None)
    programs = {
        name: [collectives(program) for program in compiled(mesh_trainer(folder / name, name))]
        for name in ("data", "fsdp", "tensor")
    }
    # One reduction of the gradient, and one of the sums.
    assert programs["data"] == [({"all-reduce": 2}, 0), ({}, 0)]
    [(gradient, in_loops), (update, _)] = programs["fsdp"]
    assert gradient.keys() == {"all-gather", "all-reduce"}
    assert gradient["all-reduce"] == 2
    assert in_loops == 0
    assert update == {"all-reduce": 1}  # of the norm
    # The devices of `tensor` have parts of the logits, and so of each softmax over them.
    [(gradient, in_loops), _] = programs["tensor"]
    assert gradient.keys() == {"all-reduce"}
    assert in_loops == 3


@pytest.mark.full
def test_fifty_steps_on_each_mesh_are_those_of_one_device(tmp_path):
    on_devices(8, train_on_each, tmp_path)


def resume_each_on_each(folder):
    whole = folder / "whole"
    assert mesh_trainer(whole, "one", **{"train.steps": 6}).run()
    states = []
    for first in MESHES:
        assert mesh_trainer(folder / first, first, **{"train.steps": 4}).run()
    for first, second in itertools.product(MESHES, MESHES):
        place = folder / f"{first}_{second}"
        shutil.copytree(folder / first, place)
        trainer = mesh_trainer(place, second, **{"train.steps": 6})
        with heard() as said:
            assert trainer.run()
        assert "resuming from step 4" in said
        np.testing.assert_allclose(losses(place), losses(whole), rtol=0, atol=1e-5)
        run = trainer.runs[0]
        states.append(named_leaves(newest_state(run.task, run.config, place)))
    for state in states[1:]:
        for name, x in state.items():
            np.testing.assert_allclose(x, states[0][name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_a_run_of_each_mesh_goes_on_with_each(tmp_path):
    on_devices(8, resume_each_on_each, tmp_path)


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ("rows=2", "config.train.mesh=rows=2 is no mesh: use auto, or sizes of data, fsdp, tensor"),
        ("tensor=3", "does not divide config.model.num_heads=2: use tensor=2"),
        ("fsdp=64", "does not divide config.model.d_model=16: use fsdp=16"),
        ("data=5", "config.train.mesh=data=5 does not divide the 1 devices here: choose"),
    ],
)
def test_a_mesh_that_divides_neither_devices_nor_model_is_refused(mesh, says, tmp_path):
    (tmp_path / "config.py").write_text(CONFIG.replace("CACHE", str(tmp_path / "cache")))
    refused(
        f"--config={tmp_path / 'config.py'}",
        f"--workdir={tmp_path / 'run'}",
        f"--config.train.mesh={mesh}",
        says=says,
    )
    assert not (tmp_path / "run").exists()
