"""The memory that a process keeps for its programs, and what it gives back."""

import ctypes
import subprocess
import sys

import pytest

from places import ROOT

PAGES = 16_384  # of 4 KiB: an array of 64 MiB
COUNT_FAULTS = """
import resource, sys, time
from experiments.process import process
if sys.argv[1] == "keep":
    process.keep_program_memory()
import jax, jax.numpy as jnp
program = jax.jit(lambda x: jax.lax.optimization_barrier(x.T) @ jnp.ones(len(x)))
x = jnp.zeros((4096, 4096))
counts = []
for _ in range(20):
    time.sleep(0.01)  # another thread may still have to free the block of the last execution
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    program(x).block_until_ready()
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(counts))
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
@pytest.mark.parametrize(("way", "few"), [("keep", True), ("leave", False)])
def test_a_program_gets_the_memory_that_its_last_execution_freed(way, few):
    command = [sys.executable, "-c", COUNT_FAULTS, way]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert (int(done.stdout) < 0.1 * PAGES) == few


FREED = """
import ctypes, gc, sys, threading
from pathlib import Path
from experiments.process import process
if sys.argv[1] == "free":
    process.keep_program_memory()
else:
    process.keep_freed_memory()
import jax, jax.numpy as jnp
jax.config.update("jax_enable_compilation_cache", False)
def unrolled(x):
    for i in range(300):
        x = jnp.sin(x.at[i].add(i)) @ x
    return x
def compile():
    jax.jit(unrolled).lower(jnp.ones((512, 512))).compile()
def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
thread = threading.Thread(target=compile)
thread.start()
thread.join()
gc.collect()
before = held()
ctypes.CDLL(None).malloc_trim(0)
print(before - held())
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
@pytest.mark.parametrize(("way", "few"), [("free", True), ("keep", False)])
def test_the_memory_that_a_compilation_has_freed_goes_back(way, few):
    command = [sys.executable, "-c", FREED, way]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert (int(done.stdout) < 5 * 2**20) == few
