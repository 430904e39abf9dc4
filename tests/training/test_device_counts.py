"""A run of some devices trains, and goes on as one of any other number of them."""

import jax
import numpy as np
import pytest
from device_processes import on_devices

from runs import Unigrams, lines, newest_state, unigram_config
from transformer.data.batches import BatchPlan
from transformer.model import losses
from transformer.training.loop import Trainer
from transformer.training.placement import SingleRun, VmappedRuns
from transformer.training.run import TrainingRun

# -- the reductions of a step


def reduce_gradients(**terms):
    rng = np.random.default_rng(0)
    rows, length, width, vocab = 15, 7, 5, 11
    features = rng.normal(size=(rows, length, width)).astype(np.float32)
    table = rng.normal(size=(vocab, width)).astype(np.float32)
    labels = rng.integers(vocab, size=(rows, length))
    weights = (rng.random((rows, length)) < 0.7).astype(np.float32)
    losses.CHUNK_LOGITS["cpu"] = 3 * vocab * 2  # two of the seven positions of three rows

    def sums_and_gradients(features, table, labels, weights):
        def loss(features, table):
            rows = losses.repeat_rows((features, labels, weights), terms)
            if terms:  # the second pass over a row is another one
                rows = rows[0].at[1::2].multiply(1.5), *rows[1:]
            sums = losses.cross_entropy(rows[0], table, *rows[1:], 0.1, terms)
            return sums.loss, sums

        return jax.value_and_grad(loss, (0, 1), has_aux=True)(features, table)

    alone = jax.jit(sums_and_gradients)(features, table, labels, weights)
    placement = SingleRun(jax.devices(), 1)
    own, *others = placement.put_batch((features, labels, weights))
    divided = jax.jit(placement.on_mesh(sums_and_gradients))(own, placement.put([table]), *others)
    for ours, theirs in zip(*map(jax.tree.leaves, (divided, alone)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    [_, (d_features, d_table)] = divided
    assert d_features.addressable_shards[0].data.shape == (3, 7, 5)
    assert d_table.is_fully_replicated
    # Control: what one device adds up is not the sum.
    _, (_, d_part) = sums_and_gradients(features[:3], table, labels[:3], weights[:3])
    assert not np.allclose(d_part, d_table, rtol=0.1)


def reduce_gradients_of_two_passes():
    reduce_gradients(r_drop=0.7)


@pytest.mark.full
@pytest.mark.parametrize("work", [reduce_gradients, reduce_gradients_of_two_passes])
def test_the_gradients_of_five_devices_are_those_of_one(work):
    on_devices(5, work)


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
    """Trains 7 and 9 runs on eight devices, and each alone on one, and compares them."""
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
    for count in (7, 9):
        together = folder / str(count)
        assert Trainer(seeded_runs(together, count)).run()
        assert sorted(path.name for path in together.iterdir()) == [str(i) for i in range(count)]
        for run in seeded_runs(folder / "alone", count):
            folders = together / run.workdir.name, run.workdir
            np.testing.assert_allclose(*map(numbers, folders), rtol=1e-5, atol=1e-6)
            states = [newest_state(run.task, run.config, each) for each in folders]
            np.testing.assert_allclose(*(state.params["w"] for state in states), 1e-5, 1e-6)
    # Control: the runs differ from one another.
    assert not np.allclose(*(numbers(folder / "alone" / name) for name in "78"), rtol=1e-3)


@pytest.mark.slow
def test_runs_of_any_number_use_as_many_devices_as_help_and_are_what_they_would_be_alone(tmp_path):
    on_devices(8, divide_runs, tmp_path)
