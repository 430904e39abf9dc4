"""Batches are searched at the same time on the cores of a CPU, with the same results."""

import itertools
import threading
import time
from typing import NamedTuple

import jax.numpy as jnp
import pytest

from transformer.inference import batching


class Device(NamedTuple):
    platform: str
    number: int


@pytest.fixture
def cores(monkeypatch):
    """Sets the number of cores that the process may use."""
    return lambda count: monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(count)))


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (1, 64, (1, 32)),
        (2, 64, (2, 32)),
        (2, 31, (2, 15)),
        (8, 64, (8, 8)),
        (96, 64, (16, 4)),
        (8, 1, (1, 1)),
        (8, 7, (1, 7)),
        (2, 1000, (2, 32)),
    ],
)
@pytest.mark.parametrize("system", ["Linux", "macOS"])
def test_a_cpu_shares_the_sentences_among_its_cores(
    cores, monkeypatch, system, count, most, expected
):
    cores(count)
    if system == "macOS":  # which does not bind processes to cores
        monkeypatch.delattr("os.sched_getaffinity")
        monkeypatch.setattr("os.cpu_count", lambda: count)
    found = batching.share({"params": jnp.ones(3)}, most)
    assert found == expected
    assert found[0] * found[1] <= most


@pytest.mark.parametrize("platforms", [["gpu"], ["cpu", "cpu"], ["tpu"] * 4])
def test_programs_of_accelerators_or_several_devices_run_one_after_another(
    cores, monkeypatch, platforms
):
    cores(8)
    devices = {Device(platform, number) for number, platform in enumerate(platforms)}
    monkeypatch.setattr(batching, "devices_of", lambda _: devices)
    assert batching.share({}, 64) == (1, 64)


@pytest.mark.parametrize("count", [1, 3])
def test_results_come_in_the_order_of_the_items(count):
    later = threading.Event()

    def slow(item):
        if count > 1:  # the first ends last
            later.set() if item else later.wait(9)
        return 2 * item

    assert list(batching.each(slow, range(11), count)) == list(range(0, 22, 2))


def test_several_items_are_computed_at_the_same_time():
    both = threading.Barrier(2, timeout=9)
    assert len(list(batching.each(lambda _: both.wait(), range(4), 2))) == 4


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_ends_it_and_what_has_not_begun_is_left_out(count):
    begun = itertools.count()

    def failing(item):
        next(begun)
        if item == 0:
            raise ValueError(item)
        time.sleep(0.01)

    with pytest.raises(ValueError, match="0"):
        list(batching.each(failing, range(1000), count))
    assert next(begun) < 1000
