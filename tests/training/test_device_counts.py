"""A run of some devices trains, is used, and goes on as one of any other number of them."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_vmapped_runs import seeds

from log_lines import heard
from places import ROOT
from runs import Unigrams, lines, newest_state, toy_config, unigram_config
from transformer import losses, workdir
from transformer.data.parallel.batches import BatchPlan
from transformer.devices.placement import SingleRun, VmappedRuns
from transformer.inference import devices
from transformer.run import Run
from transformer.tasks.translation import TranslationTask
from transformer.train import Trainer

SCRIPT = """
import sys
from pathlib import Path
import jax
import jax.numpy as jnp
import test_device_counts as tests
assert jax.device_count() == int(sys.argv[1])
getattr(tests, sys.argv[2])(*map(Path, sys.argv[3:]))
"""


def on_devices(count, function, *paths):
    """Calls a function of this file in a process with so many devices."""
    flags = os.environ.get("XLA_FLAGS", "")
    environment = os.environ | {
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={count}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", SCRIPT, str(count), function.__name__, *map(str, paths)]
    ended = subprocess.run(command, env=environment, cwd=ROOT, text=True, capture_output=True)
    assert ended.returncode == 0, ended.stderr[-3000:]


def train_unigrams(folder, steps=5):
    trainer = Trainer([Run(Unigrams(), unigram_config(**{"train.steps": steps}), folder)])
    assert trainer.run()
    return trainer


def go_on_with_unigrams(folder):
    config = unigram_config(**{"train.steps": 10})
    with heard() as said:
        assert Trainer([Run(Unigrams(), config, folder)]).run()
    assert "resuming from step 5" in said


def newest_weights(folder):
    trainer = Trainer([Run(Unigrams(), unigram_config(), folder)])
    with trainer.runs[0].checkpoints as checkpoints:
        step = checkpoints.steps()[-1]
        state, _ = checkpoints.restore_newest(trainer.fresh_state(), "none")
        weights = checkpoints.restore_weights([step], {"w": state.params["w"]})["w"]
    assert weights.devices() == {jax.devices()[0]}
    assert state.params["w"].devices() == set(jax.devices())
    assert np.array_equal(weights, state.params["w"])
    return np.asarray(weights)


def test_a_run_of_eight_devices_goes_on_with_one_and_the_other_way(tmp_path):
    eight, one = tmp_path / "eight", tmp_path / "one"
    on_devices(8, train_unigrams, eight)
    train_unigrams(one)
    np.testing.assert_allclose(newest_weights(eight), newest_weights(one), rtol=1e-5, atol=1e-6)
    go_on_with_unigrams(eight)
    on_devices(8, go_on_with_unigrams, one)
    np.testing.assert_allclose(newest_weights(eight), newest_weights(one), rtol=1e-5, atol=1e-6)


# -- the reductions of a step


def reductions(program):
    """The numbers of all-reduces in the bodies of loops, and elsewhere."""
    text = program.as_text()
    bodies = set(re.findall(r" while\(.*body=%?([\w.\-]+)", text))
    assert bodies
    inside, outside, name = 0, 0, ""
    for line in text.splitlines():
        if start := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line):
            name = start[1]
        elif re.search(r" all-reduce(-start)?\(", line):
            inside, outside = inside + (name in bodies), outside + (name not in bodies)
    return inside, outside


def reduce_a_step(folder):
    config = toy_config(folder / "cache")
    task = TranslationTask(config)
    run = Run(task, config, folder / "run")
    rows, length = task.plan[0].labels.shape
    size = task.predictor.model.config.target_vocab_size
    losses.CHUNK_LOGITS["cpu"] = rows // 2 * size * -(-length // 3)  # a third of the positions
    trainer = Trainer([run])
    batch = trainer.placement.put_batch(task.plan[0])
    arguments = trainer.fresh_state(), batch, trainer.hparams
    inside, outside = reductions(trainer.train_step.lower(*arguments).compile().gradient)
    assert (inside, outside > 0) == (0, True)

    def add(rows):
        start, steps = jnp.zeros((7, 7)), jnp.moveaxis(rows, 1, 0)
        return jax.lax.scan(lambda total, x: (total + x.T @ x, None), start, steps)[0]

    # Control: XLA's own division of such a loop, whose body reduces the sum over the rows.
    own = trainer.placement.put_batch(np.ones((2 * 11, 5, 7), np.float32))
    assert reductions(jax.jit(add).lower(own).compile())[0] > 0


@pytest.mark.slow
def test_a_step_of_two_devices_reduces_nothing_within_the_loop_over_chunks(tmp_path):
    on_devices(2, reduce_a_step, tmp_path)


def reduce_gradients(r_drop=None):
    rng = np.random.default_rng(0)
    rows, length, width, vocab = 15, 7, 5, 11
    features = rng.normal(size=(rows, length, width)).astype(np.float32)
    table = rng.normal(size=(vocab, width)).astype(np.float32)
    labels = rng.integers(vocab, size=(rows, length))
    weights = (rng.random((rows, length)) < 0.7).astype(np.float32)
    losses.CHUNK_LOGITS["cpu"] = 3 * vocab * 2  # two of the seven positions of three rows

    def sums_and_gradients(features, table, labels, weights):
        def loss(features, table):
            rows = losses.two_passes((features, labels, weights), r_drop)
            if r_drop:  # the second pass over a row is another one
                rows = rows[0].at[1::2].multiply(1.5), *rows[1:]
            sums = losses.cross_entropy(rows[0], table, *rows[1:], 0.1, r_drop)
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
        Run(SeededUnigrams(seed), config, folder / str(seed)) for seed, config in enumerate(configs)
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


# -- a translator, and several of them together


def translator_config(folder, steps=4):
    changes = {"train.steps": steps, "train.evaluate_every": 4, "evaluate.max_sentences": 1}
    return toy_config(folder.parent / "cache", **changes, **{"evaluate.checkpoint": "last"})


def train_translator(folder, steps=4):
    config = translator_config(folder, steps)
    task = TranslationTask(config)
    folder.mkdir(exist_ok=True)
    workdir.claim(folder, config)
    task.save_assets(folder)
    assert Trainer([Run(task, config, folder)]).run()


def train_together(folder):
    assert seeds(folder.parent, folder.name, count=9, **{"train.steps": 3}).run()
    for trial in folder.iterdir():
        config = toy_config(folder.parent / "cache", seed=int(trial.name), **{"train.steps": 3})
        workdir.claim(trial, config)
        TranslationTask(config).save_assets(trial)


def translate(folder, *outputs):
    """Writes the translations of a few texts, and the digest of the weights."""
    config = workdir.load_config(folder)
    run = workdir.load_trained(folder, config)
    translator, variables = run.predictor, run.variables
    found = translator.translate(variables, ["a b c", "d", "e f a"])
    texts = [(best.text, best.tokens) for [best, *_] in found]  # scores differ by rounding
    bits = b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(variables))
    outputs[0].write_text(json.dumps([str(texts), hashlib.sha256(bits).hexdigest()]))


def divide_batches():
    variables = {"params": {"w": np.ones((3, 2)), "b": np.ones(2)}}
    rows = np.arange(8.0).reshape(8, 1)
    everywhere = devices.on_all_devices(variables)
    parts = [
        float(shard.data[0, 0]) for shard in devices.divide(everywhere, rows).addressable_shards
    ]
    assert sorted(parts) == [0, 2, 4, 6]
    for left in (
        (everywhere, rows[:7]),  # not divisible by four
        (variables, rows),  # on no device yet
        (jax.device_put(variables, jax.devices()[1]), rows),
        (jax.device_put({"w": rows}, VmappedRuns(jax.devices(), 8).by_run), rows),
    ):
        assert devices.divide(*left) is left[1]


def test_batches_are_divided_among_devices_that_hold_the_same_variables():
    on_devices(4, divide_batches)


def use_everywhere(folder):
    """Checks that a translator on all devices divides its work, and finds what one device does."""
    run = workdir.load_trained(folder, workdir.load_config(folder))
    translator = run.predictor
    variables = jax.device_put(jax.device_get(run.variables), jax.devices()[0])
    texts = ["a b c", "d", "e f a", "b", "c c", "f a b e", "d e", "a"]
    finished, continue_search = [], translator._search._continue

    def spy(*arguments):
        finished.append(continue_search(*arguments).finished)
        return continue_search(*arguments)

    translator._search._continue = spy
    together = translator.translate(run.variables, texts)
    assert {len(x.sharding.device_set) for x in finished} == {4}
    assert all(4 * x.addressable_shards[0].data.size == x.size for x in finished), finished
    alone = translator.translate(variables, texts)
    assert [best[0].text for best in together] == [best[0].text for best in alone]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a[0].score, b[0].score, rtol=1e-5)
    scores = [list(translator.score(where, texts, texts)) for where in (run.variables, variables)]
    np.testing.assert_allclose(*scores, rtol=1e-5)


@pytest.mark.slow
def test_a_translator_divides_sentences_among_devices(tmp_path):
    train_translator(tmp_path / "run")
    on_devices(4, use_everywhere, tmp_path / "run")


def go_on(folder):
    train_translator(folder, 6)


@pytest.mark.slow
def test_a_translator_of_any_number_of_devices_is_used_and_goes_on_with_any_other(tmp_path):
    counts = (8, 2, 1)
    for trained in (8, 1):
        folder = tmp_path / f"trained_{trained}"
        on_devices(trained, train_translator, folder)
        outputs = [tmp_path / f"{trained}_{count}.json" for count in counts]
        for count, output in zip(counts, outputs, strict=True):
            on_devices(count, translate, folder, output)
        assert len({output.read_text() for output in outputs}) == 1
        weights = []
        for count in counts:
            copy = tmp_path / f"copy_{trained}_{count}"
            shutil.copytree(folder, copy)
            on_devices(count, go_on, copy)
            run = workdir.load_trained(copy, translator_config(copy, 6))
            variables, steps = run.variables, run.steps
            assert list(steps) == [6]
            weights.append(jax.tree.leaves(variables))
        for other in weights[1:]:
            for a, b in zip(weights[0], other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_trials_that_trained_together_on_eight_devices_are_used_on_one(tmp_path):
    on_devices(8, train_together, tmp_path / "together")
    for number in (0, 8):
        trial, outputs = tmp_path / "together" / str(number), []
        for count in (1, 8):
            outputs.append(tmp_path / f"{number}_{count}.json")
            on_devices(count, translate, trial, outputs[-1])
        assert outputs[0].read_text() == outputs[1].read_text()


# -- one step

DEVICES = """
import sys
sys.path[:0] = ["tests/support", "tests/support/equations", "tests", "."]
from pathlib import Path
import jax, numpy as np
from runs import toy_config
from transformer.tasks.translation import TranslationTask
from transformer.run import Run
from transformer.train import Trainer

folder = Path(sys.argv[1])
config = toy_config(folder)
results = {}
task = TranslationTask(config)
start = Run(task, config, folder / "1").fresh_state()
for count in (1, 3, 8):
    trainer = Trainer([Run(task, config, folder / str(count))], jax.devices()[:count])
    state = jax.device_put(jax.tree.map(np.array, start), trainer.placement.replicated)
    losses = []
    for i in range(3):
        batch = trainer.placement.put_batch(task.plan[i])
        assert len(batch.source.sharding.device_set) == count
        rows = batch.source.addressable_shards[0].data.shape[0]
        assert rows == -(-len(task.plan[i].source) // count)
        state, metrics = trainer.train_step(state, batch, trainer.hparams)
        losses.append([float(x) for x in (metrics.loss.total, metrics.loss.count)])
    assert jax.tree.leaves(state.params)[0].sharding.is_fully_replicated
    results[f"{count} losses"] = np.array(losses)
    for i, leaf in enumerate(jax.tree.leaves(state.params)):
        results[f"{count} parameter {i}"] = np.array(leaf)
    # The same step as the last, but for the number that dropout depends on.
    before = jax.device_put(jax.tree.map(np.array, start), trainer.placement.replicated)
    for number in (0, 1):
        again = jax.tree.map(jax.numpy.copy, before).replace(step=before.step + number)
        _, metrics = trainer.train_step(again, batch, trainer.hparams)
        results[f"{count} dropout {number}"] = np.array(metrics.loss.total)
np.savez(folder / "results.npz", **results)
"""


@pytest.mark.slow  # test_a_run_of_eight_devices_goes_on_with_one_and_the_other_way is fast
def test_any_number_of_devices_gives_the_losses_and_parameters_of_one(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    environment["JAX_PLATFORMS"] = "cpu"
    subprocess.run([sys.executable, "-c", DEVICES, tmp_path], env=environment, check=True)
    found = np.load(tmp_path / "results.npz")
    names = [name.removeprefix("1 ") for name in found if name.startswith("1 ")]
    assert len(names) > 13
    # Adam makes much of the rounding of gradients that are nearly zero.
    tolerances = {"losses": (1e-5, 0.0), "dropout": (1e-5, 0.0), "parameter": (1e-3, 1e-4)}
    for name in names:
        rtol, atol = tolerances[name.split()[0]]
        for count in (3, 8):
            theirs, ours = found[f"{count} {name}"], found[f"1 {name}"]
            np.testing.assert_allclose(theirs, ours, rtol, atol)
    # Other zeros change the loss by far more than other devices do.
    assert abs(found["1 dropout 0"] / found["1 dropout 1"] - 1) > 1e-4
