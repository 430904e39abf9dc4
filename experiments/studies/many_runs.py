"""Measures the speed of many runs: vmapped, sequential, and in separate processes.

    python -m experiments.studies.many_runs --runs=1,4,16 --steps=20 --processes=16

The models are quickstart's and differ in their seeds. First only the steps are measured: every run
takes the same number of them, vmapped and sequentially, once to compile and then several times, the
two alternating; the median is printed. Then, with `--processes`, whole runs of `--run-steps` steps
are measured with all that belongs to them (start, text, compilation, evaluation, scores), once as
the trials of one sweep and once as separate commands.
"""

import copy
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np
from rich.table import Table

from configs import quickstart
from experiments.studies.command import Parser, exit_code, whole, wholes
from experiments.text_io import print_table
from transformer.run import Run
from transformer.tasks.translation import TranslationTask
from transformer.train import Trainer

ROOT = Path(__file__).parents[2]
REPEATS = 3
SWEEP = """
from configs import quickstart

def get_config():
    return quickstart.get_config()

def sweep():
    for seed in range(COUNT):
        yield {"seed": seed}
"""


def run(arguments: Sequence[str]) -> None:
    """Runs the benchmark that the command line describes."""
    parser = Parser(__doc__)
    sizes, steps = wholes(1, 10_000), whole(1, 1_000_000)
    parser.add_argument("--runs", type=sizes, default="1,4,16", help="sizes of the batch of runs")
    parser.add_argument("--steps", type=steps, default=20, help="timed steps of each run")
    parser.add_argument("--processes", type=whole(0, 10_000), default=0, help="whole runs, or 0")
    parser.add_argument("--run-steps", type=steps, default=100, help="steps of a whole run")
    options = parser.parse_args(arguments)
    device = jax.devices()[0]
    title = f"{jax.device_count()} x {device.device_kind}, {options.steps} steps of each run"
    table = Table(title=title)
    for column in ("runs", "vmap, s", "sequential, s", "speed-up", "MB per run"):
        table.add_column(column, justify="right")
    lead = TranslationTask(quickstart.get_config())
    for count in options.runs:
        vmapped, sequential, megabytes = measure_steps(lead, count, options.steps)
        numbers = (f"{vmapped:.2f}", f"{sequential:.2f}", f"{sequential / vmapped:.2f}")
        table.add_row(str(count), *numbers, f"{megabytes:.1f}")
    print_table(table)
    if options.processes:
        sweep, processes = measure_runs(options.processes, options.run_steps)
        print(
            f"{options.processes} whole runs of {options.run_steps} steps: {sweep:.0f} s as one "
            f"sweep, {processes:.0f} s as commands of their own, ratio {sweep / processes:.2f}"
        )


def measure_steps(lead: TranslationTask, count: int, steps: int) -> tuple[float, float, float]:
    """Returns the seconds of `steps` steps of `count` runs, vmapped and sequential, and megabytes.

    The latter are of the parameters and the optimizer state of one run. The runs have the config of
    `lead`, and seeds from zero.
    """
    configs = [copy.deepcopy(lead.config) for _ in range(count)]
    for seed, config in enumerate(configs):
        config.seed = seed
    tasks = [lead.with_config(config) for config in configs]
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(i) for i in range(2 * count)]
        runs = [Run(*each) for each in zip(tasks, configs, folders[:count], strict=True)]
        ways = (
            _vmapped(runs, steps),
            _sequential(tasks, configs, folders[count:], steps),
        )
        seconds = [[_timed(way) for way in ways] for _ in range(1 + REPEATS)][1:]
        state = runs[0].fresh_state()
        for run in runs:
            run.close()
    megabytes = sum(x.nbytes for x in jax.tree.leaves(state)) / 1e6
    return *np.median(seconds, axis=0).tolist(), megabytes


def _timed(way: Callable[[], None]) -> float:
    start = time.monotonic()
    way()
    return time.monotonic() - start


def _vmapped(runs: Sequence[Run], steps: int) -> Callable[[], None]:
    """Returns a function that trains all runs as one vmapped program."""
    trainer, numbers = Trainer(runs), range(len(runs))
    state, plans = trainer.fresh_state(), [run.task.plan for run in runs]
    batches = list(itertools.islice(trainer.placement.batches(plans, 0, steps), steps))
    batches = [trainer.placement.put_batch(batch) for batch in batches]

    def train() -> None:
        nonlocal state
        for batch in batches:
            arguments = trainer.placement.arguments(state, batch, trainer.hparams, numbers)
            state, _ = trainer.train_step(*arguments)
        jax.block_until_ready(state)

    return train


def _sequential(tasks: Sequence, configs: Sequence, folders: Sequence, steps: int):
    """Returns a function that trains one run after another, with the same compiled step."""
    trainers: list[Trainer] = []
    for each in zip(tasks, configs, folders, strict=True):
        shared = trainers[0].train_step if trainers else None
        trainers.append(Trainer([Run(*each)], train_step=shared))
        trainers[-1].runs[0].close()
    states = [trainer.fresh_state() for trainer in trainers]
    batches = [
        [t.placement.put_batch(t.runs[0].task.plan[i]) for i in range(steps)] for t in trainers
    ]

    def train() -> None:
        for i, trainer in enumerate(trainers):
            for batch in batches[i]:
                states[i], _ = trainer.train_step(states[i], batch, trainer.hparams)
            jax.block_until_ready(states[i])

    return train


def measure_runs(count: int, steps: int) -> tuple[float, float]:
    """Returns the seconds of `count` whole runs as one sweep, and as one command after another.

    Each way starts with an empty cache of texts and compiled programs.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sweep.py").write_text(SWEEP.replace("COUNT", str(count)))
        common = [f"--config.train.steps={steps}", f"--config.train.evaluate_every={steps}"]

        def launch(config: Path, workdir: str, *flags: str) -> None:
            cache = f"--config.data.cache_dir={folder / workdir.split('_')[0]}_cache"
            command = [sys.executable, "launch.py", f"--config={config}", *common, cache, *flags]
            command.append(f"--workdir={folder / workdir}")
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

        sweep = _timed(lambda: launch(folder / "sweep.py", "sweep"))
        alone = ROOT / "configs/quickstart.py"
        processes = sum(
            _timed(lambda i=i: launch(alone, f"alone_{i}", f"--config.seed={i}"))
            for i in range(count)
        )
    return sweep, processes


if __name__ == "__main__":
    sys.exit(exit_code(run, sys.argv[1:]))
