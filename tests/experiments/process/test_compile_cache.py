"""Compiled programs come back whole, or are compiled again; none that is damaged is run."""

import os
import subprocess
import sys

import jax
import pytest

from experiments.process.compile_cache import ProgramCache, keep_programs

pytestmark = pytest.mark.full

PROGRAM = bytes(range(256)) * 5


@pytest.fixture
def cache(tmp_path):
    return ProgramCache(tmp_path / "programs")


def test_a_program_comes_back_as_it_was_and_another_key_has_none(cache, said):
    assert cache.get("a") is None
    cache.put("a", PROGRAM)
    assert cache.get("a") == PROGRAM
    assert cache.get("b") is None
    assert said == []


@pytest.mark.parametrize("damage", ["bit of the digest", "bit", "cut", "empty", "another name"])
def test_a_damaged_program_is_not_used(cache, damage, said):
    cache.put("a", PROGRAM)
    [path] = cache._path.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "another name":
        path = path.rename(path.with_name(path.name.replace("a.", "b.")))
    elif damage.startswith("bit"):
        data[700 if damage == "bit" else 31] ^= 8
    else:
        data = data[: 500 * (damage == "cut")]
    path.write_bytes(data)
    key = "b" if damage == "another name" else "a"
    assert cache.get(key) is None
    assert said == [f"{path} is damaged: the program is compiled again"]
    assert not path.exists()
    cache.put(key, PROGRAM)
    assert cache.get(key) == PROGRAM


CODE = """
import logging, sys
from pathlib import Path
import jax, jax.numpy as jnp
from experiments.process.compile_cache import keep_programs
logging.basicConfig(stream=sys.stdout, format="%(message)s")
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
    """The lines of a process that compiles a program, or takes it from the cache."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(
        [sys.executable, "-c", CODE, str(folder), *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    return ended.stdout.splitlines() if ended.returncode == 0 else ended.stderr.splitlines()[-1:]


def test_a_second_process_takes_the_program_and_never_a_damaged_one(tmp_path):
    [first] = start(tmp_path)
    assert first.endswith(" 0 from the cache")
    second = first.replace(" 0 from", " 1 from")
    files = sorted(tmp_path.iterdir())
    assert files
    assert all(path.suffix == ".program" for path in files)  # and nothing else of XLA's
    assert start(tmp_path, "compile nothing") == [second]
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    again = start(tmp_path)
    assert again[-1] == first
    assert sorted(again[:-1]) == [f"{p} is damaged: the program is compiled again" for p in files]
    assert start(tmp_path) == [second]
    for path in files:
        path.write_bytes(b"")
    # The control: what is damaged is compiled.
    assert start(tmp_path, "compile nothing") not in ([first], [second])


def test_of_a_jax_that_keeps_programs_in_another_way_none_is_kept(tmp_path, monkeypatch, said):
    from jax._src import compilation_cache

    before = jax.config.jax_compilation_cache_dir
    monkeypatch.delattr(compilation_cache, "get_file_cache")
    keep_programs(tmp_path)
    wanted = f"compiled programs are not kept: jax {jax.__version__} has no cache to check"
    assert said == [wanted]
    assert jax.config.jax_compilation_cache_dir == before
