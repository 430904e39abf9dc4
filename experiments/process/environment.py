"""The environment of a training run: versions, hardware, commit of the code, and processes."""

import datetime
import functools
import math
import os
import platform
import re
import socket
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from transformer import signals
from transformer.errors import UserError, one_line, shorten
from transformer.files import INSTALLED
from transformer.runs.run import record_run
from transformer.training.group import FAREWELL, Group

CODE_FOLDER = Path(__file__).parents[2]
PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "scipy", "scikit-learn"),
    *("clu", "ml-collections", "sentencepiece", "sacrebleu", "sacremoses", "matplotlib"),
    *["transformer-jax"] * INSTALLED,
)


def record(folder: Path) -> None:
    """Records the start time and the result of `describe` in a run's folder."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record_run(folder, environment={"started": now, **describe()})


@functools.cache
def describe() -> dict[str, Any]:
    """Returns the package versions, the hardware and the commit of the code, for JSON."""
    device, file = jax.devices()[0], Path("/proc/cpuinfo")  # a file of Linux
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": next(names, platform.processor() or platform.machine()),
        "cores": os.cpu_count(),
        "devices": {"kind": device.device_kind, "count": jax.device_count()},
        "code": _commit_of_code(CODE_FOLDER),
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def _commit_of_code(folder: Path) -> dict[str, Any] | None:
    """Returns the commit of a checkout and whether files have changed, or None outside git."""
    git = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if not (folder / ".git").exists():  # an enclosing repository is unrelated
        return None
    try:
        name = subprocess.check_output(git, cwd=folder, stderr=subprocess.DEVNULL, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    commit, _, dirty = name.strip().partition("-")
    return {"commit": commit, "changed": bool(dirty)}


def join(text: str, deadline: float) -> Group:
    """Joins the processes of a training run and returns the group; call this before JAX starts.

    Args:
      text: `--processes`: auto, HOST:PORT,COUNT,INDEX (address of process 0), or '' for just one.

    Raises:
      UserError: if the text is malformed or the processes cannot connect. If some are missing after
        `deadline` seconds, the process exits instead.
    """
    if not text:
        return Group()
    match = re.fullmatch(r"(\S+:\d+),([1-9]\d*),(\d+)", text)
    if text != "auto" and (not match or int(match[3]) >= int(match[2])):
        raise UserError(
            f"--processes={text} is neither auto nor HOST:PORT,COUNT,INDEX with an index below the "
            "count, such as --processes=10.0.0.1:9876,2,0 of the first of two"
        )
    if match and match[3] == "0":
        try:
            socket.create_server(("", int(match[1].rpartition(":")[2]))).close()
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise UserError(f"--processes={text}: {why}: name another port") from None
    jax.config.update("jax_enable_preemption_service", False)  # the service would handle SIGTERM
    place: dict[str, Any] = {}
    if match:
        place = {"num_processes": int(match[2]), "process_id": int(match[3])}
        place |= {"coordinator_address": match[1], "cluster_detection_method": "deactivate"}
    # Each process autotunes alone; otherwise, all would wait for a process with a cached program.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_shard_autotuning=false"
    fix = "start all, each with its own index" if match else "name HOST:PORT,COUNT,INDEX"

    def give_up() -> None:
        after = f"within {deadline:g} seconds (config.train.deadline)"
        print(f"error: --processes={text}: not all were there {after}: {fix}", file=sys.stderr)
        signals.end(2)

    patience = threading.Timer(deadline, give_up)
    patience.start()
    try:
        jax.distributed.initialize(
            **place,
            initialization_timeout=math.ceil(2 * deadline),  # so that our own message comes first
            heartbeat_timeout_seconds=math.ceil(4 * deadline),  # JAX may abort after half of it
            shutdown_timeout_seconds=math.ceil(FAREWELL),
        )
    except (ValueError, RuntimeError) as error:
        why = shorten(one_line(str(error)))
        raise UserError(f"--processes={text} finds no other processes ({why}): {fix}") from None
    finally:
        patience.cancel()
    group = Group(jax.process_index(), jax.process_count(), deadline)
    if group.count > 1:
        group.watch()
    return group
