"""Processes with any number of simulated devices."""

import os
import subprocess
import sys

import portpicker

from places import ROOT

SCRIPT = """
import importlib
import sys
from pathlib import Path
import jax
from experiments.process.environment import join
tests = importlib.import_module(sys.argv[3])
group = join(sys.argv[1], deadline=60.0)
assert jax.local_device_count() == int(sys.argv[2])
getattr(tests, sys.argv[4])(*[group] * bool(sys.argv[1]), *map(Path, sys.argv[5:]))
"""


def environment(count):
    """The environment of a process with a given number of devices."""
    flags = os.environ.get("XLA_FLAGS", "")
    return os.environ | {
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={count}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "JAX_PLATFORMS": "cpu",
    }


def on_devices(count, function, *paths):
    """Calls a function of a test file in a process with a given number of devices."""
    _wait(_start("", count, function, *paths))


def on_processes(count, function, *paths):
    """Calls it in two processes that belong together, of `count` devices each, with a `Group`."""
    address = f"localhost:{portpicker.pick_unused_port()},2"
    both = [_start(f"{address},{i}", count, function, *paths) for i in (1, 0)]
    for process in reversed(both):
        _wait(process)


def _start(place, count, function, *paths):
    command = [sys.executable, "-c", SCRIPT, place, str(count), function.__module__]
    command += [function.__name__, *map(str, paths)]
    options = {"env": environment(count), "cwd": ROOT, "text": True, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)


def _wait(process):
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
