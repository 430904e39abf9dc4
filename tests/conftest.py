"""What all tests share: one cache of programs, and what somebody added to the registries."""

import gc
import os
import shutil
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
import transformer
from chromium import browser
from log_lines import heard
from task_runs import train_runs
from tiny_run import shared_run
from transformer.model.layers import ACTIVATIONS
from transformer.model.positions.base import LAYER_HOOKS, STACK_HOOKS, use_hooks
from transformer.model.positions.registry import REGISTRY, acts_in

UNTIMED = {"full", "slow", "browser", "device"}  # marks of the tests that `make test` leaves out
MAX_SECONDS = 10  # of CPU in any other test: 3 on an idle machine, since machines differ

# Accelerators multiply float32 in fewer bits unless told otherwise.
jax.config.update("jax_default_matmul_precision", "highest")


def pytest_configure(config):
    """Lets all tests of a session, in however many processes, share what XLA compiles."""
    # Traced programs are millions of objects that stay: to look through them often takes minutes.
    gc.set_threshold(50_000, 20, 100)
    if not hasattr(config, "workerinput"):
        os.environ["TESTS_XLA_CACHE"] = tempfile.mkdtemp(prefix="tests_xla_")
        # Where commands without a cache folder keep it, too.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["TESTS_XLA_CACHE"]
    jax.config.update("jax_compilation_cache_dir", os.environ["TESTS_XLA_CACHE"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def pytest_unconfigure(config):
    """Deletes it again."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["TESTS_XLA_CACHE"], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fails a test that takes long, unless its mark leaves it to CI; set-ups are shared."""
    start = time.process_time()
    result = yield
    seconds = time.process_time() - start
    marks = {mark.name for mark in item.iter_markers()}
    if "XLA_FLAGS" in os.environ and not UNTIMED & marks:  # `make test` sets it
        assert seconds < MAX_SECONDS, f"{seconds:.1f} s of CPU: mark the test as full"
    return result


@pytest.fixture
def said():
    """See `heard`."""
    with heard() as lines:
        yield lines


@pytest.fixture(scope="module")  # so that it is made while pictures are drawn
def tiny(tmp_path_factory):
    """The tiny trained run, which most modes are tested on."""
    return shared_run(tmp_path_factory)


@pytest.fixture
def copy(tiny, tmp_path):
    """A copy of its folder, to be changed."""
    return tiny.copy(tmp_path / "copy")


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    """A run of each task, as Python opens it."""
    return {task: transformer.load(folder) for task, folder in train_runs(tmp_path_factory).items()}


@pytest.fixture(scope="module")
def chromium():
    """A browser for the tests of a file; its event loop is in nobody else's way."""
    with browser() as started:
        yield started


def added_activation(name):
    """Of an activation without an equation in `reference`: its own, as it is."""
    function, gated = ACTIVATIONS[name]
    return lambda x: np.asarray(function(jnp.asarray(x, jnp.float32)), np.float64), gated


def added_shapes(name, config, place):
    """Of an encoding without equations in `reference`: what it asks for itself."""
    hooks = {"stack": STACK_HOOKS, "layer": LAYER_HOOKS}[place]
    if not acts_in(name, hooks):
        return {}

    def init(key):
        return REGISTRY[name](config).init(key, hooks, method=use_hooks)

    params = jax.eval_shape(init, jax.random.key(0)).get("params", {})
    return jax.tree.map(lambda x: x.shape, params)


# So that the tests over the registries meet what somebody adds to them as well.
reference.added_activation, reference.added_shapes = added_activation, added_shapes
