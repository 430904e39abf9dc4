"""Lives of a run: processes, forked from this one, that are killed or meet a trouble."""

import contextlib
import functools
import json
import math
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import portpicker

import experiments.evaluate.run
import experiments.sweep.sweep  # noqa: F401
import tiny_classifier
import tiny_language_model
import tiny_run
import tiny_scenes
import tiny_sweep
from experiments.command.main import main
from experiments.process.process import run_process
from runs import lines

PAIR, PAIR_DEADLINE = "two_processes", 15  # of one run, and seconds within which both end
DEADLINE = 20  # a life that takes this many times as long as an unbroken run hangs
TEXTS = {
    "language_model": ("text", tiny_language_model.LINES * 10),
    "classifier": ("train.tsv", tiny_classifier.ROWS),
}
CONFIGS = {
    "translator": tiny_run.CONFIG,
    "language_model": tiny_language_model.CONFIG,
    "classifier": tiny_classifier.CONFIG,
    "pictures": tiny_scenes.CONFIG,
}
# After each step of 24: many kills come while a checkpoint is written.
OFTEN = """
    config.train.save_minutes = 1e-9
    config.train.steps, config.train.evaluate_every, config.train.log_every = 24, 8, 1
    return config"""
CLOCK = ("seconds", "tokens_per_second", "wall_seconds", "sha256")


Trouble = Callable[[], object]  # begins it


class Outcome(NamedTuple):
    """What became of a try, and what repeats it if it failed."""

    kind: str
    what: str
    failure: str = ""


def start(log: Path, *arguments: object, trouble: Trouble = lambda: None) -> int:
    """Forks a process that runs the command after some trouble began; returns its number."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        with log.open("ab", buffering=0) as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        trouble()
        with tiny_run.without_pictures():
            code = run_process(lambda: main(["launch.py", *map(str, arguments)]))
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(
    pid: int, seconds: float, begun: Callable[[], bool] = lambda: True, limit: float = math.inf
) -> int | None:
    """Returns the exit code; None if the process was killed because the time was over.

    Args:
      seconds: from the moment at which something has `begun` on.
      limit: seconds in all.
    """
    last = time.monotonic() + limit
    end = math.inf
    while time.monotonic() < min(end, last):
        if end == math.inf and begun():
            end = time.monotonic() + seconds
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def live(log: Path, seconds: float, *arguments: object, **named: Any) -> int | None:
    return wait(start(log, *arguments, **named), seconds)


def printed(log: Path) -> str:
    """What the process of a log printed."""
    return log.read_text(errors="replace")


def live_together(log: Path, seconds: float, victim: int, *arguments: object) -> list[int | None]:
    """Lets two processes train one run; returns how the victim and the other ended."""
    place = f"--processes=localhost:{portpicker.pick_unused_port()},2"
    flags = *arguments, f"--config.train.deadline={PAIR_DEADLINE}"
    pids = [start(log, *flags, f"{place},{i}") for i in range(2)]
    first = wait(pids[victim], seconds)
    return [first, wait(pids[1 - victim], 4 * PAIR_DEADLINE)]


def write_config(folder: Path, name: str) -> Path:
    """Writes the config of a tiny run, and its text, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "sweep":
        return tiny_sweep.write_config(folder, 2)
    if name == PAIR:
        name = "translator"
    if name in TEXTS:
        file, rows = TEXTS[name]
        (folder / file).write_text("".join(f"{row}\n" for row in rows))
    text = CONFIGS[name].replace("PATH", str(folder)).replace("CACHE", str(folder / "cache"))
    (folder / "config.py").write_text(text.replace("\n    return config", OFTEN))
    return folder / "config.py"


def content(folder: Path) -> dict[str, object]:
    """What must not depend on how often a run, or a sweep, was killed."""
    if (folder / "trials").exists():
        result = {path.name: content(path) for path in sorted((folder / "trials").iterdir())}
        return result | {"table": tiny_sweep.rows(folder)}
    scores = {
        split: {key: value for key, value in numbers.items() if key not in CLOCK}
        for split, numbers in json.loads((folder / "results.json").read_text()).items()
        if isinstance(numbers, dict)
    }
    weights = (folder / "weights.safetensors").read_bytes()
    return {"weights": weights, "lines": lines(folder), "scores": scores}


@functools.cache
def unbroken(place: Path, name: str) -> tuple[Path, float]:
    """Returns the config of a run that was never killed, and the seconds that it takes again."""
    file = write_config(place / name, name)
    seconds = 0.0
    for folder in (place / name / "first", place / name / "whole"):  # the first compiles
        begin, log = time.monotonic(), folder.with_suffix(".log")
        flags = f"--config={file}", f"--workdir={folder}"
        codes = live_together(log, 600, 0, *flags) if name == PAIR else [live(log, 600, *flags)]
        assert not any(codes), log.read_text()
        seconds = time.monotonic() - begin
    return file, seconds


def judge(kind: str, again: str, code: int | None, folder: Path) -> Outcome:
    """Returns what became of a run whose last life ended by itself."""
    whole, log = content(folder.parent / "whole"), folder.with_suffix(".log")
    if code != 0:
        return Outcome(kind, "failed", f"{again}: code {code}, see {log}")
    ours = content(folder)
    if differing := [key for key, value in whole.items() if ours[key] != value]:
        return Outcome(kind, "differs", f"{again}: {differing} of {folder}")
    if "Traceback" in log.read_text(errors="replace"):
        return Outcome(kind, "traceback", f"{again}: see {log}")
    shutil.rmtree(folder)
    return Outcome(kind, "ended with the same bits")
