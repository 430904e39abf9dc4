"""Reproduces the pages in docs/results/: runs their commands, and collects the scores.

    CORPORA=~/corpora python -m studies.results
    CORPORA=~/corpora python -m studies.results --pages=positions,heads --workers=2

The pages are listed in the first table of docs/results/README.md. Each page lists its commands in
its first code block, as a user would type them. $CORPORA is a folder with a subfolder for each
corpus; see README.md. Each worker uses one core and runs one page at a time. An interrupted command
resumes, and a finished command returns immediately, so this command can be repeated after any
interruption.

The scores of each run are written to docs/results/data/<name of its folder>.csv; the training time
of each page is printed in minutes.
"""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from flax.traverse_util import flatten_dict

from experiments.process.process import exit_code
from experiments.results.table import Table, print_rows
from transformer.errors import UserError
from transformer.files import whole_file

PAGES = Path("docs/results")
DATA = PAGES / "data"
LOGS = Path("runs/logs_of_results")
BLOCK = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)
LISTED = re.compile(r"^\| \[[^]]+\]\((\w+)\.md\)", re.MULTILINE)
FOLDER = re.compile(r"--workdir=(\S+)")


def read_pages(folder: Path) -> dict[str, list[str]]:
    """Returns the commands of each page that a folder's README lists, keyed by page."""
    pages = {}
    for page in LISTED.findall((folder / "README.md").read_text("utf-8")):
        [block, *_] = BLOCK.findall((folder / f"{page}.md").read_text("utf-8"))
        text = block.replace("\\\n", " ")
        lines = (line.partition(" #")[0].split() for line in text.splitlines())
        pages[page] = [" ".join(line) for line in lines]
    return pages


def run_pages(pages: Mapping[str, list[str]], workers: int) -> list[str]:
    """Runs the commands of each page, one page per core; returns failed commands and their logs.

    A page stops at its first failed command, since later commands may need its results.
    """
    cores: SimpleQueue[int] = SimpleQueue()
    for core in sorted(os.sched_getaffinity(0))[:workers]:
        cores.put(core)

    def pin() -> None:
        os.sched_setaffinity(0, {cores.get()})  # for this thread and its child processes

    def run(page: str) -> str:
        for command in pages[page]:
            print(f"{page}: {command}", flush=True)
            _, *words = map(os.path.expandvars, shlex.split(command))
            with (LOGS / f"{page}.log").open("a") as log:
                process = subprocess.run([sys.executable, *words], stdout=log, stderr=log)
                if code := process.returncode:
                    return f"{command}: exit code {code}, see {log.name}"
        return ""

    with ThreadPoolExecutor(workers, initializer=pin) as pool:
        try:
            return [failure for failure in pool.map(run, pages) if failure]
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def collect(folder: Path) -> list[dict[str, Any]]:
    """Copies the scores of a run, or of a sweep's trials, to DATA; returns a row for each run."""
    table, single, target = folder / "results.csv", folder / "results.json", DATA / folder.name
    if table.exists():
        text = table.read_text("utf-8")
        rows = list(csv.DictReader(text.splitlines()))
    elif single.exists():
        scores = flatten_dict(json.loads(single.read_text("utf-8")), sep="_")
        rows = [{name: x for name, x in scores.items() if not isinstance(x, list)}]
    else:
        return []
    with whole_file(target.with_suffix(".csv")) as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return rows


def run(arguments: Sequence[str]) -> int:
    """Reproduces the pages named on the command line; prints the training time of each page."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--pages", default="", help="names of pages, with commas; '': all")
    parser.add_argument("--workers", type=int, default=2, help="cores, one page each")
    options = parser.parse_args(arguments)
    pages = read_pages(PAGES)
    if options.pages:
        names = options.pages.split(",")
        if unknown := [name for name in names if name not in pages]:
            raise UserError(f"--pages={unknown[0]} is not there: use {', '.join(pages)}")
        pages = {name: pages[name] for name in names}
    if "CORPORA" not in os.environ:
        raise UserError(f"CORPORA is not set: name the folder that {PAGES}/README.md describes")
    LOGS.mkdir(parents=True, exist_ok=True)
    DATA.mkdir(exist_ok=True)
    failed = run_pages(pages, options.workers)
    rows = []
    for page, commands in pages.items():
        folders = dict.fromkeys(name for each in commands for name in FOLDER.findall(each))
        runs = [row for folder in folders for row in collect(Path(folder))]
        seconds = sum(float(row.get("wall_seconds") or 0) for row in runs)
        rows.append([page, str(len(runs)), f"{seconds / 60:.0f}"])
    print_rows(Table("Trainings", ("page", "runs", "minutes of one core"), rows, 1))
    print(*failed, sep="\n")
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, 1 if a command failed, or 2 after printing a user error."""
    return exit_code(lambda: run(arguments), place="runs", memory="--workers")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
