"""Measures how long a large text takes until the first batch, and how much memory.

    python -m experiments.studies.large_text --folder=DIR [--pairs=5000000]

Writes generated English-German pairs into DIR, and prepares them twice as a training with
configs/own_text.py does, each time in a process of its own: the first start holds out, cleans,
trains the tokenizer and encodes; the second finds all that in the cache, DIR/cache. Memory is that
of all processes, shared pages counted once.
"""

import multiprocessing
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
from ml_collections import ConfigDict
from rich.table import Table

from configs import own_text
from experiments import recipe
from experiments.studies.command import Parser, exit_code, whole
from experiments.text_io import print_table
from transformer.data.synthetic.grammar import MAX_WORDS, MIN_WORDS, Composer, align
from transformer.storage.files import whole_file
from transformer.tasks.translation import TranslationTask

SEED = 7
SIDES = ("train.en", "train.de")


class Measured(NamedTuple):
    """One start: seconds to the first batch without imports, peak of memory, training pairs."""

    seconds: float
    megabytes: float
    kept: int


def write_text(folder: Path, pairs: int) -> None:
    """Writes generated pairs, some of them repeated, as two files, unless they are there."""
    source, target = (folder / name for name in SIDES)
    if source.exists() and target.exists():
        return
    composer, count = Composer(SEED), 0
    with whole_file(source) as sources, whole_file(target) as targets:
        while count < pairs:
            sides = composer.sentence()
            if min(map(len, sides)) >= MIN_WORDS and max(map(len, sides)) <= MAX_WORDS:
                pair = align(*sides)
                sources.write(f"{pair.source}\n")
                targets.write(f"{pair.target}\n")
                count += 1


def config_of(folder: Path) -> ConfigDict:
    """Returns the config of a training on these files."""
    config = own_text.get_config()
    config.data.path, config.data.cache_dir = str(folder), str(folder / "cache")
    config.data.train_source, config.data.train_target = SIDES
    config.tokenizer.vocab_size = 2000  # of which the grammar's few words need no more
    return config


def start(folder: Path) -> Measured:
    """Prepares the text up to the first batch."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        own, last = psutil.Process(), False
        while not last:
            last = done.wait(0.5)
            peak[0] = max(peak[0], sum(map(_memory, (own, *own.children(recursive=True)))))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    began, config = time.monotonic(), config_of(folder)
    recipe.apply(config, ["tokenizer.vocab_size"])
    task = TranslationTask(config)
    task.plan[0]
    seconds = time.monotonic() - began
    done.set()
    watcher.join()
    return Measured(
        seconds, peak[0] / 2**20, task.data_summary()["splits"]["train"]["sentence pairs"]
    )


def _memory(process: psutil.Process) -> int:
    """The bytes of a process, its part of what it shares; none if it is gone."""
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


def run(arguments: Sequence[str]) -> None:
    """Prints the table of docs/results/large_text.md."""
    parser = Parser(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for the text and its cache")
    parser.add_argument("--pairs", type=whole(2000, 50_000_000), default=5_000_000)
    flags = parser.parse_args(arguments)
    flags.folder.mkdir(parents=True, exist_ok=True)
    write_text(flags.folder, flags.pairs)
    table = Table(
        "start", "seconds", "peak memory, MB", "pairs kept", title=f"{flags.pairs:,} pairs"
    )
    for name in ("first", "second"):
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            found = pool.submit(start, flags.folder).result()
        table.add_row(name, f"{found.seconds:.1f}", f"{found.megabytes:,.0f}", f"{found.kept:,}")
    print_table(table)


if __name__ == "__main__":
    sys.exit(exit_code(run, sys.argv[1:]))
