"""Compiled programs come back whole, or are compiled again; none that is damaged is run."""

import os
import subprocess
import sys

import pytest

CODE = """
import sys
from pathlib import Path
import jax, jax.numpy as jnp
from experiments.process.process import keep_programs
keep_programs(Path(sys.argv[1]))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
if len(sys.argv) > 2:
    from jax._src import compiler
    compiler.backend_compile_and_load = None  # nothing can be compiled
lowered = jax.jit(lambda x: jnp.sin(x) @ x).lower(jnp.arange(9.0))
hits = []
jax.monitoring.register_event_listener(lambda e, **_: e.endswith("/cache_hits") and hits.append(e))
program = lowered.compile()
print(float(program(jnp.arange(9.0))), len(hits), "from the cache")
"""


def start(folder, *arguments):
    """A process that compiles a program, or takes it from the cache."""
    return subprocess.run(
        [sys.executable, "-c", CODE, str(folder), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )


@pytest.mark.full
def test_a_second_process_takes_the_program_and_never_a_damaged_one(tmp_path):
    first = start(tmp_path).stdout
    assert first.endswith(" 0 from the cache\n")
    second = start(tmp_path, "compile nothing")
    assert (second.stdout, second.stderr) == (first.replace(" 0 from", " 1 from"), "")
    for path in tmp_path.iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    again = start(tmp_path)
    assert again.stdout == first
    assert "Error reading persistent compilation cache entry" in again.stderr
    assert start(tmp_path, "compile nothing").returncode  # the control
