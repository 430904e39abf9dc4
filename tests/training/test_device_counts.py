"""A run of some devices trains, and goes on as one of any other number of them."""

import jax
import numpy as np
import pytest
from device_processes import on_devices

from runs import Unigrams, lines, newest_state, unigram_config
from transformer.data.batches import BatchPlan
from transformer.training.loop import Trainer
from transformer.training.placement import VmappedRuns
from transformer.training.run import TrainingRun

# -- several runs together


class SeededUnigrams(Unigrams):
    """Unigrams whose batches are the seed's, and whose score is a function of the parameters."""

    def __init__(self, seed):
        super().__init__()
        store = self.plan.plan.source
        self.plan = BatchPlan(store, store, seed, 20, 1, 2)

    def evaluate(self, params, split, final):
        return {"loss": float(params["w"].max())}

    def evaluate_runs(self, params, split):
        return [self.evaluate({"w": w}, split, False) for w in jax.device_get(params["w"])]


def seeded_runs(folder, count):
    configs = [unigram_config(seed=seed, **{"train.steps": 6}) for seed in range(count)]
    return [
        TrainingRun(SeededUnigrams(seed), config, folder / str(seed))
        for seed, config in enumerate(configs)
    ]


def numbers(folder):
    return [x for line in lines(folder) for x in line.values() if not isinstance(x, str)]


# Runs to the devices that they use, of eight, and the runs on each, copies included.
DIVISIONS = {2: (2, 1), 7: (7, 1), 8: (8, 1), 9: (5, 2), 16: (8, 2), 17: (6, 3), 25: (7, 4)}


def divide_runs(folder):
    """Trains 9 runs on eight devices, and each alone on one, and compares them."""
    for count, (used, on_each) in DIVISIONS.items():
        placement = VmappedRuns(jax.devices(), count)
        stacked = placement.put([{"x": np.full(3, i)} for i in range(count)])["x"]
        assert [shard.data.shape for shard in stacked.addressable_shards] == [(on_each, 3)] * used
        assert [part["x"][0] for part in placement.split({"x": stacked})] == list(range(count))
    step = None
    for run in seeded_runs(folder / "alone", 9):
        trainer = Trainer([run], jax.devices()[:1], train_step=step)
        step = trainer.train_step
        assert trainer.run()
    together = folder / "together"
    assert Trainer(seeded_runs(together, 9)).run()
    assert sorted(path.name for path in together.iterdir()) == [str(i) for i in range(9)]
    for run in seeded_runs(folder / "alone", 9):
        folders = together / run.folder.name, run.folder
        np.testing.assert_allclose(*map(numbers, folders), rtol=1e-5, atol=1e-6)
        states = [newest_state(run.task, run.config, each) for each in folders]
        np.testing.assert_allclose(*(state.params["w"] for state in states), 1e-5, 1e-6)
    # Control: the runs differ from one another.
    assert not np.allclose(*(numbers(folder / "alone" / name) for name in "78"), rtol=1e-3)


@pytest.mark.slow
def test_runs_of_any_number_use_as_many_devices_as_help_and_are_what_they_would_be_alone(tmp_path):
    on_devices(8, divide_runs, tmp_path)
