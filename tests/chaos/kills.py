"""Runs, and commands that write, killed at random moments until they have ended."""

import functools
import random
import shutil
import time
from pathlib import Path

import fake_store
from lives import (
    DEADLINE,
    PAIR,
    Outcome,
    Trouble,
    judge,
    live,
    live_together,
    printed,
    start,
    unbroken,
    wait,
)

from experiments.command import bucket

SENTENCES = "".join(f"{'abc'[i % 3]} {'defg'[i % 4]} {'hijkl'[i % 5]}\n" for i in range(2000))
COMMANDS = {
    "translate": ("--mode=translate",),
    "export": ("--mode=export",),
    "page": ("--mode=export", "--format=html"),
}
BUCKET, STALE, READERS = "bucket", 3.0, 3  # of a bucket: its name, seconds, and how many at once
SLOWNESS = (0.0, 0.01, 0.03, 0.1, 0.3)  # seconds of an object


def kill(place: Path, name: str, seed: int) -> list[Outcome]:
    """Kills a run until it has ended; returns the outcome of each of its lives."""
    rng = random.Random(f"{name} {seed}")
    file, seconds = unbroken(place, name)
    folder = place / name / str(seed)
    log, again = folder.with_suffix(".log"), f"kill {name} {seed}"
    outcomes, flags = [], (f"--config={file}", f"--workdir={folder}")
    code, other = None, 0
    if name != PAIR and rng.random() < 0.5:  # soon after the first checkpoint

        def saved() -> bool:
            records = "checkpoints/*/record.json", "trials/*/checkpoints/*/record.json"
            return any(path for pattern in records for path in folder.glob(pattern))

        code = wait(start(log, *flags), rng.random() * seconds / 10, saved, DEADLINE * seconds)
        outcomes += [Outcome(f"kill {name}", "killed")] * (code is None)
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


# -- commands that write


def files_of(place: Path) -> dict[str, bytes]:
    """The content of a file, or of those of a folder, by name; empty if there is nothing."""
    paths = [path for path in (place, *place.rglob("*")) if path.is_file()]
    return {str(path.relative_to(place)): path.read_bytes() for path in paths}


@functools.cache
def unbroken_command(place: Path, name: str) -> tuple[tuple[str, ...], float]:
    """Returns the flags of a command that was never killed, and the seconds that it takes."""
    unbroken(place, "translator")
    folder = place / name
    (folder / "whole").mkdir(parents=True)
    (folder / "lines.txt").write_text(SENTENCES)
    flags = (*COMMANDS[name], f"--workdir={place / 'translator' / 'whole'}")
    flags += (f"--input={folder / 'lines.txt'}",) * (name == "translate")
    begin, log = time.monotonic(), folder / "whole.log"
    code = live(log, 600, *flags, f"--output={folder / 'whole' / 'output'}")
    assert code == 0, printed(log)
    return flags, time.monotonic() - begin


def kill_command(place: Path, name: str, seed: int) -> list[Outcome]:
    """Kills a command that writes one output until it has ended."""
    rng = random.Random(f"{name} {seed}")
    flags, seconds = unbroken_command(place, name)
    whole, folder = files_of(place / name / "whole/output"), place / name / str(seed)
    folder.mkdir()
    log, output, kind = folder.with_suffix(".log"), folder / "output", f"kill {name}"
    outcomes, code = [], None
    while code is None and not output.exists():  # a kill may come after the end of the work
        quick = rng.random() < 0.7
        life = seconds * (rng.random() if quick else DEADLINE)
        code = live(log, life, *flags, f"--output={output}")
        if code is None:
            hung = "" if quick else f"kill {name} {seed}: hung, see {log}"
            outcomes.append(Outcome(kind, "hung" if hung else "killed", hung))
    others = [path.name for path in folder.iterdir() if path != output]
    if code or files_of(output) != whole or (others and code == 0) or "Traceback" in printed(log):
        failure = f"kill {name} {seed}: code {code}, see {log}; next to the output: {others}"
        return [*outcomes, Outcome(kind, "failed", failure)]
    shutil.rmtree(folder)
    return [*outcomes, Outcome(kind, "ended with the same output")]


# -- readers and writers of one bucket


class SlowStore(fake_store.FakeStore):
    """A store whose objects take some time."""

    seconds = 0.0

    def get_file(self, there, here, **named):
        time.sleep(self.seconds)
        super().get_file(there, here, **named)

    def put_file(self, here, there, **named):
        time.sleep(self.seconds)
        super().put_file(here, there, **named)


def on_machine(folder: Path, number: int, seconds: float, delay: float = 0.0) -> Trouble:
    """Returns what makes a process one of a machine with copies of its own."""

    def begin() -> None:
        fake_store.fsspec.register_implementation("fake", SlowStore, clobber=True)
        SlowStore.seconds = seconds
        bucket.COPIES, bucket.STALE = str(folder / f"machine_{number}"), STALE
        time.sleep(delay)

    return begin


def kill_in_bucket(place: Path, name: str, seed: int) -> list[Outcome]:
    """Kills trainings of one run in a bucket, on two machines while others read, until it ends."""
    rng = random.Random(f"{name} {seed}")
    file, seconds = unbroken(place, "translator")
    folder = place / "translator" / f"{name}_{seed}"
    log, again, kind = folder.with_suffix(".log"), f"kill {name} {seed}", f"kill {name}"
    machines, store = folder.with_suffix(".machines"), f"--workdir=fake://{folder}"
    machines.mkdir(parents=True)
    (machines / "lines.txt").write_text(SENTENCES[:600])
    reads = (store, "--mode=translate", f"--input={machines / 'lines.txt'}")
    slow, outcomes, readers, code = rng.choice(SLOWNESS), [], {}, None

    def on(delay: float = 0.0) -> Trouble:
        return on_machine(machines, rng.randrange(2), slow, delay)

    while code is None:
        quick = rng.random() < 0.8
        writer = start(log, f"--config={file}", store, trouble=on())
        while len(readers) < READERS:
            own = machines / f"reader_{len(outcomes)}_{len(readers)}.log"
            readers[own] = start(own, *reads, trouble=on(seconds * rng.random()))
        code = wait(writer, 2 * seconds * (rng.random() if quick else DEADLINE))
        if code is None:
            outcomes.append(Outcome(kind, "killed"))
            time.sleep(STALE)  # until then the lock is that of the killed one
        if code == 2 and " trains in " in printed(log):
            code = None
        for own, reader in list(readers.items()) if code is None else ():
            ended = wait(reader, rng.choice((0.0, 60.0)))
            outcomes.append(_read(kind, again, ended, own))
            del readers[own]
    outcomes += [_read(kind, again, wait(reader, 60), own) for own, reader in readers.items()]
    before, together = files_of(folder), {}
    for number in range(READERS):  # begin together, on a machine without a copy
        delay = number * rng.random() * slow * len(before)
        own = machines / f"together_{number}.log"
        together[own] = start(own, *reads, trouble=on_machine(machines, 2, slow, delay))
    for own, reader in together.items():
        if (ended := wait(reader, DEADLINE * seconds)) != 0:
            outcomes.append(Outcome(kind, "a reader failed", f"{again}: code {ended}, see {own}"))
    if files_of(folder) != before:
        outcomes.append(Outcome(kind, "a reader wrote", f"{again}: into {folder}"))
    outcomes.append(judge(kind, again, code, folder))
    if not any(outcome.failure for outcome in outcomes):
        shutil.rmtree(machines)
    return outcomes


def _read(kind: str, again: str, code: int | None, log: Path) -> Outcome:
    if code not in (0, 2, None) or "Traceback" in printed(log):
        return Outcome(kind, "a reader failed", f"{again}: code {code}, see {log}")
    ends = {0: "read", 2: "a reader was refused", None: "a reader was killed"}
    return Outcome(kind, ends[code])
