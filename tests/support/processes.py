"""Commands that start processes of their own."""

import os
import signal
import subprocess
import sys
import time

import psutil

from places import ROOT


def end_with_worker(command: list[str], module: str) -> None:
    """Sends SIGTERM to a command once it has started `module`: both end."""
    with psutil.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not (workers := [p for p in process.children() if module in _arguments(p)]):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.communicate()[1].startswith("SIGTERM: ending; ")
        assert process.returncode == 143
    assert psutil.wait_procs(workers, timeout=20)[1] == []


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # or a zombie: a command such as `git` that has ended meanwhile
        return []
