"""Programs are compiled in other threads, before the batches come that need them."""

import contextlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.losses import TokenSums
from transformer.optim import OptimizerConfig
from transformer.optim.optimizers import make_optimizer
from transformer.training.placement import SingleRun, VmappedRuns
from transformer.training.programs import StepPrograms, look_ahead
from transformer.training.step import init_state, make_train_step


def batch(rows):
    return {"tokens": jnp.ones((rows, 5), jnp.int32), "numbers": jnp.ones(rows)}


class Stub(StepPrograms):
    """Programs of nothing: `compile` calls a function in place of the compiler."""

    def __init__(self, compiler):
        super().__init__(abs, abs, None)
        self.compiler = compiler

    def compile(self, *arguments):
        self.compiler()


def prepare(programs, rows=7):
    return programs.prepare(batch(rows), lambda: (jnp.ones(3), batch(rows)))


@contextlib.contextmanager
def count_compilations():
    """Yields a list of which each program that XLA compiles makes longer."""
    found = []

    def listen(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_each_shape_is_compiled_once_and_by_another_thread():
    threads = []
    programs = Stub(lambda: threads.append(threading.current_thread()))
    ready = [prepare(programs, rows) for rows in (7, 7, 11)]
    for each in ready:
        each.result()
    assert ready[0] is ready[1]
    assert len(threads) == 2
    assert threading.current_thread() not in threads


@pytest.mark.parametrize(
    ("ahead", "count", "prepared"),
    [
        (3, 20, [2, 3, 6, 7]),
        (3, 5, [2, 3, 5, 5]),
        (3, 2, [2, 2, 3, 4]),
        (3, 0, [1, 2, 3, 4]),
        (0, 20, [1, 2, 3, 4]),
    ],
)
def test_batches_are_prepared_ahead_but_none_delays_the_first_two_steps(ahead, count, prepared):
    seen = []
    coming = look_ahead(iter(range(100)), ahead, count, lambda x: seen.append(x) or -x)
    for i, expected in enumerate(prepared):
        assert next(coming) == (i, -i)
        assert seen == list(range(expected))


# -- a training step

NUMBERS = {
    **{"seed": np.uint32(0), "batches": np.int32(9), "weight_decay": np.float32(0)},
    **{"learning_rate": np.float32(0.1), "warmup_steps": np.float32(1)},
    **{"total_steps": np.float32(9), "decay_fraction": np.float32(1)},
}


def squares(params, batch, hparams, key):
    distance = batch["numbers"][:, None] * params["w"] - batch["tokens"]
    count = jnp.float32(distance.size)
    total = (distance**2).sum()
    return TokenSums(total, total, count, count)


def shaped_batch(rows, runs):
    one = jax.tree.map(np.asarray, batch(rows))
    return one if runs == 1 else jax.tree.map(lambda x: np.stack([x] * runs), one)


def placed_step(place, runs):
    """The plain step and the state of one run; step, state and arguments of placed ones."""
    optimizer = make_optimizer(OptimizerConfig())
    plain = make_train_step(squares, optimizer, "constant", 5, 1)
    placement = place(jax.devices(), runs)
    state = jax.device_get(init_state({"w": jnp.linspace(-1.0, 1.0, 5)}, optimizer, ema=False))
    hparams = placement.put([NUMBERS] * runs)

    def arguments(state, batch):
        return placement.arguments(state, batch, hparams, range(runs))

    return (
        plain,
        state,
        placement.compile(plain, lambda: state),
        placement.put([state] * runs),
        arguments,
    )


@pytest.mark.parametrize(("place", "runs"), [(SingleRun, 1), (VmappedRuns, 3)])
def test_batches_of_all_shapes_share_one_update_and_steps_find_their_programs(place, runs):
    plain, alone, step, state, arguments = placed_step(place, runs)
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    batches = [shaped_batch(rows, runs) for rows in (7, 11, 13)]
    with count_compilations() as compiled:
        for each in batches:  # the shapes of a state are enough
            step.prepare(each, lambda each=each: arguments(like, each)).result()
    assert len(compiled) == 3 + 1
    expected = alone
    with count_compilations() as compiled:
        for each in [*batches, batches[0]]:
            state, metrics = step(*arguments(state, each))
    assert not compiled
    for rows in (7, 11, 13, 7):
        expected, sums = jax.jit(plain)(expected, shaped_batch(rows, 1), NUMBERS)
    for found, one in zip(
        jax.tree.leaves((state, metrics)), jax.tree.leaves((expected, sums)), strict=True
    ):
        np.testing.assert_allclose(np.reshape(found, (runs, -1))[-1], np.ravel(one), rtol=1e-5)
    assert not np.allclose(expected.params["w"], alone.params["w"])
    with count_compilations() as compiled:  # control
        step(*arguments(state, shaped_batch(17, runs)))
    assert compiled


def test_arguments_may_be_overwritten_while_their_program_compiles(monkeypatch):
    _, _, step, state, arguments = placed_step(SingleRun, 1)
    release, lower = threading.Event(), step.compile
    monkeypatch.setattr(step, "compile", lambda *args: release.wait(60) and lower(*args))
    of_step = arguments(state, shaped_batch(7, 1))
    ready = step.prepare(shaped_batch(7, 1), lambda: of_step)
    for x in jax.tree.leaves(of_step):
        x.delete()
    release.set()
    ready.result()


def test_the_memory_of_a_step_counts_the_whole_state():
    _, _, step, state, arguments = placed_step(SingleRun, 1)
    of_step = arguments(state, shaped_batch(7, 1))
    moments = sum(x.nbytes for x in jax.tree.leaves(state.opt_state))
    temporary = step.compile(*of_step)[0].memory_analysis().temp_size_in_bytes
    batch_bytes = sum(x.nbytes for x in jax.tree.leaves(shaped_batch(7, 1)))
    assert step.count_bytes(*of_step) >= moments + temporary + batch_bytes > moments
