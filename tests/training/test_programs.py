"""Programs are compiled in other threads, before the batches come that need them."""

import contextlib
import threading

import jax
import jax.numpy as jnp
import pytest

from transformer.programs import Programs, look_ahead


@jax.jit
def doubled(state, batch):
    return jax.tree.map(lambda x: 2 * x, state), batch["tokens"].sum()


def batch(rows):
    return {"tokens": jnp.ones((rows, 5), jnp.int32), "numbers": jnp.ones(rows)}


class Lowering:
    """A jitted function that calls `before()` when it is lowered."""

    def __init__(self, before):
        self.before = before

    def __call__(self, *args):
        return doubled(*args)

    def lower(self, *args):
        self.before()
        return doubled.lower(*args)


def programs(step):
    return Programs(step, lambda state, batch: (state, batch))


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


@pytest.mark.parametrize("place", [lambda x: x, lambda x: jax.device_put(x, jax.devices()[0])])
def test_calls_find_the_program_that_was_compiled_for_their_shapes(place):
    doubled.clear_cache()
    prepared = place((jnp.ones(3), batch(7)))
    programs(doubled).prepare(*prepared).result()
    with count_compilations() as compiled:
        doubled(*prepared)
    assert not compiled
    with count_compilations() as compiled:  # control
        doubled(jnp.ones(3), batch(11))
    assert compiled


def test_each_shape_is_compiled_once_and_by_another_thread():
    threads = []
    known = programs(Lowering(lambda: threads.append(threading.current_thread())))
    ready = [known.prepare(jnp.ones(3), batch(rows)) for rows in (7, 7, 11)]
    for each in ready:
        each.result()
    assert ready[0] is ready[1]
    assert len(threads) == 2
    assert threading.current_thread() not in threads


def test_the_shapes_of_a_state_are_enough():
    doubled.clear_cache()
    state, place = jnp.ones(3), jax.sharding.SingleDeviceSharding(jax.devices()[0])
    like = jax.ShapeDtypeStruct(state.shape, state.dtype, sharding=place)
    programs(doubled).prepare(like, batch(7)).result()
    with count_compilations() as compiled:
        doubled(jax.device_put(state, place), batch(7))
    assert not compiled


def test_arguments_may_be_overwritten_while_their_program_compiles():
    release, given = threading.Event(), (jnp.ones(3), batch(7))
    ready = programs(Lowering(lambda: release.wait(60))).prepare(*given)
    for x in jax.tree.leaves(given):
        x.delete()
    release.set()
    ready.result()


def test_what_the_compiler_raises_reaches_whoever_needs_the_program():
    def fail():
        raise MemoryError("too large")

    ready = programs(Lowering(fail)).prepare(jnp.ones(3), batch(7))
    with pytest.raises(MemoryError, match="too large"):
        ready.result()


@pytest.mark.parametrize(
    ("ahead", "count", "prepared"),
    [
        (3, 20, [4, 5, 6, 7]),
        (3, 5, [4, 5, 5, 5]),
        (3, 2, [2, 2, 3, 4]),
        (3, 0, [1, 2, 3, 4]),
        (0, 20, [1, 2, 3, 4]),
    ],
)
def test_batches_are_prepared_ahead_except_those_that_are_not_needed(ahead, count, prepared):
    seen = []
    coming = look_ahead(iter(range(100)), ahead, count, lambda x: seen.append(x) or -x)
    for i, expected in enumerate(prepared):
        assert next(coming) == (i, -i)
        assert seen == list(range(expected))
