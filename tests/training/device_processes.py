"""Processes with any number of simulated devices."""

import os
import subprocess
import sys

from places import ROOT

SCRIPT = """
import importlib
import sys
from pathlib import Path
import jax
tests = importlib.import_module(sys.argv[2])
assert jax.device_count() == int(sys.argv[1])
getattr(tests, sys.argv[3])(*map(Path, sys.argv[4:]))
"""


def on_devices(count, function, *paths):
    """Calls a function of a test file in a process with a given number of devices."""
    flags = os.environ.get("XLA_FLAGS", "")
    environment = os.environ | {
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={count}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "JAX_PLATFORMS": "cpu",
    }
    name = function.__module__, function.__name__
    command = [sys.executable, "-c", SCRIPT, str(count), *name, *map(str, paths)]
    ended = subprocess.run(command, env=environment, cwd=ROOT, text=True, capture_output=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
