"""Troubles of a process: disks that are full or broken, limits of files and of memory."""

import ctypes
import errno
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

import psutil
from lives import DEADLINE, Outcome, Trouble, judge, live, printed, unbroken


def break_disk(error: int, kinds: int, count: int = -1, delay: int = 0) -> Callable[..., Trouble]:
    """Returns what begins the trouble that some calls fail, or take `delay` microseconds more."""

    def begin(rng: random.Random, folder: Path) -> Trouble:
        first = int(10 ** rng.uniform(0, 3.7))  # of the calls that concern the folder
        arguments = os.fsencode(folder), error, kinds, first, count, delay
        return lambda: ctypes.CDLL(None).break_disk(*arguments)

    return begin


def limit_files(rng: random.Random, folder: Path) -> Trouble:
    more = rng.randrange(40)

    def begin() -> None:
        here = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (here + more, here + more))

    return begin


def limit_memory(rng: random.Random, folder: Path) -> Trouble:
    more = int(2 ** rng.uniform(20, 32))

    def begin() -> None:
        here = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (here + more, here + more))

    return begin


CREATE, OPEN_TO_WRITE, WRITE, READ = 1, 2, 4, 8  # of disk.c
TROUBLES = {
    "full disk": break_disk(errno.ENOSPC, CREATE | WRITE),
    "quota exceeded": break_disk(errno.EDQUOT, CREATE | WRITE),
    "read-only disk": break_disk(errno.EROFS, CREATE | OPEN_TO_WRITE),
    "broken disk": break_disk(errno.EIO, CREATE | OPEN_TO_WRITE | WRITE | READ),
    "one failure of a disk": break_disk(errno.EIO, CREATE | OPEN_TO_WRITE | WRITE | READ, 1),
    "slow disk": break_disk(0, CREATE | OPEN_TO_WRITE | WRITE | READ, delay=5000),
    "too many files": limit_files,
    "little memory": limit_memory,
}


def trouble(place: Path, name: str, seed: int) -> list[Outcome]:
    """Lets a run live with a trouble of its disk, files or memory, and then without."""
    file, seconds = unbroken(place, name)
    folder, what = place / name / f"trouble_{seed}", [*TROUBLES][seed % len(TROUBLES)]
    log, again = folder.with_suffix(".log"), f"trouble {name} {seed}, {what}"
    begin = TROUBLES[what](random.Random(f"trouble {name} {seed}"), folder)
    flags = f"--config={file}", f"--workdir={folder}"
    code = live(log, 2 * DEADLINE * seconds, *flags, trouble=begin)
    said = printed(log)
    # A process without memory may end in any way.
    said_so = what == "little memory" or (code in (0, 2) and "Traceback" not in said)
    if code is None or not said_so:
        return [Outcome(what, "failed", f"{again}: code {code}, see {log}")]
    log.unlink()
    how = {0: "not met", 2: "said in a line"}.get(code, "ended otherwise")
    # Trials that had no memory have failed.
    retry = ["--config.sweep.retry_failed=True"] * (name == "sweep")
    code = live(log, DEADLINE * seconds, *flags, *retry)
    return [Outcome(what, how), judge(what, again, code, folder)]
