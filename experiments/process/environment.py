"""The environment of a training run: versions, hardware and the commit of the code."""

import datetime
import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from transformer.runs.run import record_run

CODE_FOLDER = Path(__file__).parents[2]
PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "scipy", "scikit-learn"),
    *("clu", "ml-collections", "sentencepiece", "sacrebleu", "sacremoses", "matplotlib"),
    "transformer-jax",  # this code, if installed
)


def record(folder: Path) -> None:
    """Writes the result of `describe` into a run's folder, at each start."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record_run(folder, environment={"started": now, **describe()})


@functools.cache
def describe() -> dict[str, Any]:
    """Returns the versions, the machine and the commit of this process, for JSON."""
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _cpu_fact("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "devices": {"kind": device.device_kind, "count": jax.device_count()},
        "code": _commit_of_code(CODE_FOLDER),
        "packages": {name: version for name in PACKAGES if (version := _package_version(name))},
    }


def _cpu_fact(key: str) -> str:
    """Returns a field of the first core in /proc/cpuinfo; '' outside Linux."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _package_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit_of_code(folder: Path) -> dict[str, Any] | None:
    """Returns the commit of a checkout, and whether files were changed since; None outside git."""
    git = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if not (folder / ".git").exists():  # a checkout around the folder is not of this code
        return None
    try:
        name = subprocess.check_output(git, cwd=folder, stderr=subprocess.DEVNULL, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    commit, _, dirty = name.strip().partition("-")
    return {"commit": commit, "changed": bool(dirty)}
