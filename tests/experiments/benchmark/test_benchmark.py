"""Benchmarks measure systems in turn, and tell slower code from a slower machine."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
from systems import ask

from experiments.benchmark import __main__, turns, workloads
from experiments.benchmark.summary import spread, training_numbers
from experiments.benchmark.turns import MeasuredSystem
from experiments.benchmark.workloads import RandomTask, Shape, Workload, make_task
from experiments.process.process import peak_memory
from places import ROOT
from runs import toy_config
from transformer.errors import RunError

SYSTEMS = "tests.experiments.benchmark.systems"


def rounds(**columns):
    """The rounds of a system, given the numbers of each."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# In the last round all of the machine is half as fast.
FOUND = {
    "matmul": {"rounds": rounds(flops_per_second=[100e9, 100e9, 50e9]), "peak_bytes": 1},
    "step": {
        "rounds": rounds(
            seconds=[4.0, 4.0, 8.0], steps=[2] * 3, tokens=[80.0] * 3, flops=[200e9] * 3
        ),
        **{"peak_bytes": 700, "compile_seconds": 30.0},
    },
    "torch": {"rounds": rounds(seconds=[10.0, 12.0, 24.0]), "peak_bytes": 900},
}


def test_numbers_are_those_counted_by_hand():
    found = training_numbers(FOUND)
    # 200 GFLOP in 4 s are half of 100 GFLOP/s; at half the speed they take 8 s.
    assert found["step"]["cost"] == spread([2.0, 2.0, 2.0])
    assert found["step"]["fraction"]["median"] == 0.5
    assert found["step"]["step_seconds"] == {"median": 2.0, "low": 2.0, "high": 3.0}
    assert found["step"]["tokens_per_second"]["median"] == 20.0
    assert found["torch"]["ratio"] == {"median": 3.0, "low": 2.75, "high": 3.0}
    assert found["torch"]["peak_bytes"]["median"] == 900
    assert found["step"]["compile_cost"]["median"] == 3.0  # 30 s of 100 GFLOP/s


def test_systems_take_turns_in_processes_of_their_own(tmp_path):
    file = str(tmp_path / "calls")
    systems = {
        name: MeasuredSystem(f"{SYSTEMS}.write", {"name": name, "file": file, "seconds": i})
        for i, name in enumerate("ab")
    }
    found = turns.rotate(systems, 3, tmp_path)
    assert (tmp_path / "calls").read_text() == "ababab"
    assert found["b"]["rounds"] == [{"seconds": 1}] * 3
    assert found["a"]["ready"] == "a"
    assert (tmp_path / "a.log").read_text().count("a library prints this") == 3
    with pytest.raises(RunError, match="c has ended: ValueError: no room"):
        turns.rotate({"c": MeasuredSystem(f"{SYSTEMS}.fail", {})}, 3, tmp_path)


def test_the_memory_of_a_system_is_its_own(tmp_path):
    held, pages = 2**28, 2**20  # two processes that hold the same differ by some pages
    sizes = {"a": 0, "b": held + pages}
    systems = {
        name: MeasuredSystem(f"{SYSTEMS}.fill", {"bytes": size}) for name, size in sizes.items()
    }
    found = turns.rotate(systems, 1, tmp_path)
    little, much = (found[name]["peak_bytes"] for name in "ab")
    assert held <= much - little < 1.1 * held
    assert little < peak_memory() / 2  # of this process, which has started it


def test_peers_have_no_jax_in_their_process():
    modules = "import sys, experiments.benchmark.peers"
    code = f"{modules}; print('jax' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False True\n", done.stderr


def order_of(tmp_path, steps):
    shape = Shape(7, 5, 3)
    config = toy_config(tmp_path / "cache")
    return {**Workload(config, shape).order(), "steps": steps, "folder": str(tmp_path)}


@pytest.mark.full
def test_the_step_counts_the_tokens_of_its_batches(tmp_path):
    order = order_of(tmp_path, 3)
    about, first, second = ask(workloads.step, order, 2)
    task = RandomTask(toy_config(tmp_path), Shape(7, 5, 3))
    for record, batches in ((first, range(3)), (second, range(3, 6))):
        assert record["tokens"] == sum(int((task.plan[i].labels > 0).sum()) for i in batches)
        assert record["positions"] == 3 * 7 * 5
        assert record["seconds"] > 0
    assert first["tokens"] != second["tokens"]
    each = 6 * task.predictor.model.weights_per_token(task.predictor.param_shapes())
    assert first["flops"] == each * 3 * 7 * 5
    params = task.draw_params(jax.random.key(0))
    assert about["parameters"] == sum(x.size for x in jax.tree.leaves(params))


@pytest.mark.full
def test_the_loop_is_timed_with_a_line_of_metrics_for_each_round(tmp_path):
    records = ask(workloads.loop, order_of(tmp_path, 3), 4)
    assert records[0] == {}
    assert all(record["seconds"] > 0 for record in records[1:])
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    # The first of its 1 + 4 * 3 steps has compiled.
    assert [json.loads(line)["step"] for line in lines] == [3, 6, 9, 12]


def test_sentences_of_random_batches_have_all_lengths_and_an_end():
    task = make_task(__main__.tiny())
    lengths = np.concatenate([(task.plan[i].labels > 0).sum(axis=1) for i in range(2)])
    assert set(lengths) == set(range(11, 17))
    assert task.plan[0].labels.shape == (256, 16)
