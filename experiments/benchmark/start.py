"""The seconds from the command line to the second training step, with and without a warm cache."""

import contextlib
import os
import signal
import tempfile
import time
from pathlib import Path

from ml_collections import ConfigDict

from experiments.benchmark.rotation import System, Worker, start_module
from transformer.errors import RunError
from transformer.storage.files import write_json

COLD, WARM = 1, 3  # starts
PROGRAMS = "programs"  # the folder of compiled programs in the cache
COMMAND = "experiments.command.main"
LAST_STEP = "step 2/"  # the start of the line by which a training says that it has been taken


def measure(config: ConfigDict, reference: System) -> dict[str, tuple[list[float], list[float]]]:
    """Returns the seconds of starts and the speed of `reference` then, of "cold" and "warm" ones.

    The text is in the cache already, if it was made before; only compiled programs are not.
    """
    found: dict[str, tuple[list[float], list[float]]] = {"cold": ([], []), "warm": ([], [])}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Worker("matmul", reference, folder / "matmul.log") as worker:
            worker.receive()
            for number in range(COLD + WARM):
                seconds, speed = found["cold" if number < COLD else "warm"]
                cache = folder / f"cache_{min(number, COLD - 1)}"
                if not cache.exists():
                    copy_without_programs(config, cache)
                speed.append(worker.measure()["flops_per_second"])
                seconds.append(second_step(config, folder / f"run_{number}", cache))
    return found


def copy_without_programs(config: ConfigDict, folder: Path) -> None:
    """Makes a cache with all that is in the user's, by links, but without compiled programs."""
    folder.mkdir()
    cache = Path(config.data.cache_dir or "~/.cache/transformer").expanduser().absolute()
    for path in cache.iterdir() if cache.is_dir() else ():
        if path.name != PROGRAMS:
            (folder / path.name).symlink_to(path)


def second_step(config: ConfigDict, run: Path, cache: Path) -> float:
    """Returns the seconds until a training in the folder `run` has taken its second step.

    Raises:
      RunError: it ends before.
    """
    run.mkdir()
    write_json(run / "config.json", config.to_dict())
    flags = [f"--workdir={run}", f"--config.data.cache_dir={cache}", "--config.train.log_every=1"]
    begin = time.monotonic()
    with (run / "errors").open("wb") as errors:
        process = start_module([COMMAND, *flags], stderr=errors, process_group=0, text=True)
    assert process.stdout is not None, "it is a pipe"
    try:
        for line in process.stdout:
            if line.startswith(LAST_STEP):
                return time.monotonic() - begin
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    lines = (run / "errors").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise RunError(f"the training has ended early: {lines[-1] if lines else 'without a word'}")
