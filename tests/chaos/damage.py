"""Files of a run, of an export and of an import that are damaged."""

import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kills import files_of
from lives import DEADLINE, Outcome, live, printed, unbroken

Change = Callable[[random.Random, bytearray], str]  # damages bytes, and says how
UNREAD = ("figures", "events.", "report.html", "lock", "attention_snapshots")


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


def damage_one(rng: random.Random, change: Change, folder: Path) -> tuple[Path, str]:
    """Damages one file of a folder; returns its name within it, and what was done."""
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
    return path.relative_to(folder), what


def spoil(kind: str, change: Change, place: Path, name: str, seed: int) -> list[Outcome]:
    """Damages a file of a run, and scores it, or trains on if the file is a checkpoint's."""
    if name in USES:
        return spoil_export(kind, change, place, name, seed)
    rng = random.Random(f"{kind} {name} {seed}")
    _, seconds = unbroken(place, name)
    whole, folder = place / name / "whole", place / name / f"{kind}_{seed}"
    shutil.copytree(whole, folder)
    part, what = damage_one(rng, change, folder)
    path = folder / part
    trains = "checkpoints" in part.parts
    flags = ["--config.train.steps=28"] if trains else ["--mode=evaluate"]
    log = folder.with_suffix(".log")
    code = live(log, DEADLINE * seconds, f"--workdir={folder}", *flags)
    said = printed(log)
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


# -- exports and imports


class Use(NamedTuple):
    """What is done with a damaged folder.

    Attributes:
      whole: the folder before the damage, within the place of the translator.
      reads: flags of the command that reads a folder and writes an output.
      sealed: whether its files have digests, so that the output is that of the whole folder.
    """

    whole: str
    reads: Callable[[Path, Path], tuple[str, ...]]
    sealed: bool = True


def _export(format: str) -> Callable[[Path, Path], tuple[str, ...]]:
    return lambda folder, output: (
        "--mode=export",
        f"--format={format}",
        f"--workdir={folder}",
        f"--output={output}",
    )


def _import(folder: Path, output: Path) -> tuple[str, ...]:
    return "--mode=import", f"--input={folder}", f"--output={output}"


def _translate(folder: Path, output: Path) -> tuple[str, ...]:
    text = folder.parent / "sentences.txt"
    return "--mode=translate", f"--workdir={folder}", f"--input={text}", f"--output={output}"


USES = {
    "run to export": Use("whole", _export("bundle")),
    "bundle": Use("bundle", _translate),
    "model to import": Use("marian", _import, sealed=False),
    "imported run": Use("imported", _export("marian")),
}


@functools.cache
def whole_exports(place: Path) -> dict[str, dict[str, bytes]]:
    """Writes what is damaged; returns the output of each use of it."""
    unbroken(place, "translator")
    folder, log = place / "translator", place / "translator" / "exports.log"
    (folder / "sentences.txt").write_text("a b c\nd e f\n")

    def run(flags: tuple[str, ...]) -> None:
        assert live(log, 600, *flags) == 0, printed(log)

    model = (f"--config={folder / 'config.py'}", f"--workdir={folder / 'split'}")
    run((*model, "--config.model.positions=split"))
    run(_export("bundle")(folder / "whole", folder / "bundle"))
    run(_export("marian")(folder / "split", folder / "marian"))
    run(_import(folder / "marian", folder / "imported"))
    result = {}
    for name, use in USES.items():
        output = folder / f"output of {name}"
        run(use.reads(folder / use.whole, output))
        result[name] = files_of(output)
    return result


def spoil_export(kind: str, change: Change, place: Path, name: str, seed: int) -> list[Outcome]:
    """Damages a file of a folder that is exported, opened or imported."""
    rng = random.Random(f"{kind} {name} {seed}")
    expected, use = whole_exports(place)[name], USES[name]
    folder = place / "translator" / f"{kind} {name} {seed}"
    output, log = folder.with_suffix(".output"), folder.with_suffix(".log")
    shutil.copytree(place / "translator" / use.whole, folder)
    part, what = damage_one(rng, change, folder)
    code = live(log, 300, *use.reads(folder, output))
    said, again = printed(log), f"{kind} {name} {seed}: {part}, {what}, see {log}"
    outcome = Outcome(f"{kind} {name}", "failed", f"{again}, code {code}")
    if code == 2 and "Traceback" not in said:
        outcome = Outcome(f"{kind} {name}", "refused in a line")
    elif code == 0 and use.sealed and files_of(output) == expected:
        outcome = Outcome(f"{kind} {name}", "not read")
    elif code == 0 and not use.sealed:
        code = live(log, 300, *_translate(output, output.with_suffix(".text")))
        if code == 0 and "Traceback" not in printed(log):
            outcome = Outcome(f"{kind} {name}", "opens")
    if not outcome.failure:
        for path in (folder, output):
            shutil.rmtree(path, ignore_errors=True)
        for path in (output.with_suffix(".text"), output, log):
            path.unlink(missing_ok=True)
    return [outcome]
