"""Checks and measures the device of this machine, and writes a page about it: `make accelerator`.

    python -m experiments.benchmark.accelerator --out=DIR [--data=FOLDER] [--parts=base,tests]

The parts are some of `make bench`, the tests of numbers and a training on Multi30k. Each is a
command of its own, and is ended after --minutes. A later start goes on with the parts that are not
done for this device, these versions and this code, which have a folder of their own in DIR, with
PART.log, the output of each. The page is DIR/accelerator.md.
"""

import contextlib
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import process
from experiments.benchmark.benchmark import (
    OTHER_HEAD,
    SHARED,
    TRAINING_HEAD,
    Records,
    choose,
    other_rows,
    training_rows,
)
from experiments.benchmark.summary import machine
from experiments.benchmark.turns import ROOT, ending
from experiments.benchmark.workloads import find_data
from experiments.options import Parser, whole
from experiments.results.table import Table, markdown_table
from transformer.errors import UserError
from transformer.files import write_text

logger = logging.getLogger("experiments.benchmark.accelerator")  # not that of `__main__`

BENCHMARKS, TESTS, MULTI30K = ("base", "big", "text", "decoding"), "tests", "multi30k"
ACCELERATOR_PARTS = (*BENCHMARKS, TESTS, MULTI30K)  # the most valuable ones first
TEST_FILES = (
    *("model/attention/test_attention", "model/attention/test_long_attention"),
    *("model/test_dropout", "model/test_layers", "model/test_positions", "model/test_transformer"),
    *("model/test_stepwise", "inference/test_decode", "inference/test_decode_transformer"),
    *("inference/test_sampling", "model/test_losses", "training/test_step"),
    *("optim/test_optimizers", "optim/test_weight_decay"),
)
MAX_WORKERS = 8  # processes of tests; most of the time they compile
SCORING = 1.25  # minutes that the start and the final scores of a training take
# An epoch should take less than a second: evaluations after each would take most of the time.
MULTI30K_SETTINGS = ("train.evaluate_every=500", "evaluate.snapshot_statistics=0")
FETCH = "python launch.py --config=configs/multi30k.py --mode=fetch"
# In a process of its own: this one leaves the device to the parts.
DESCRIBE = """
import json, jax
from experiments import environment
print(json.dumps({**environment.describe(), "backend": jax.default_backend()}))
"""


def describe() -> dict[str, Any]:
    """Returns the device and the versions, see `environment.describe`, and the `backend`."""
    command = [sys.executable, "-c", DESCRIBE]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if answer.returncode:
        raise UserError(f"JAX cannot use the device: {answer.stderr.strip().splitlines()[-1]}")
    described = json.loads(answer.stdout.splitlines()[-1])
    if described["backend"] == "cpu" and not os.environ.get("JAX_PLATFORMS"):
        raise UserError(
            "JAX finds no accelerator but a CPU: install JAX for it, such as `pip install "
            '"jax[cuda13]"`, or set JAX_PLATFORMS=cpu to measure the CPU'
        )
    return described


def commands(out: Path, data: Path | None, backend: str, minutes: int) -> dict[str, list[str]]:
    """Returns the arguments of Python by part, without Multi30k if its text is not there."""
    measure = ["-m", "experiments.benchmark", f"--out={out}", "--peers="]
    measure += [f"--data={data}"] * (data is not None)
    workers = min(MAX_WORKERS, os.cpu_count() or 1) if backend in SHARED else 0
    # Another version of JAX or a plugin may warn, which says nothing of the numbers.
    tests = ["-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider", f"-n{workers}"]
    limit = f"train.minutes={max(0.3, minutes - SCORING)}"
    settings = (f"data.path={data}", f"data.cache_dir={out / 'cache'}", limit, *MULTI30K_SETTINGS)
    train = ["launch.py", "--config=configs/multi30k.py", f"--workdir={out / MULTI30K}"]
    return {
        **{name: [*measure, f"--parts={name}"] for name in BENCHMARKS},
        TESTS: [*tests, *(f"tests/{name}.py" for name in TEST_FILES)],
        **({MULTI30K: [*train, *(f"--config.{key}" for key in settings)]} if data else {}),
    }


def run_command(arguments: Sequence[str], log: Path, seconds: float) -> str:
    """Runs Python with its output in a file; returns in a line why it failed, or ''."""
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # some share the device
    options: dict[str, Any] = {"cwd": ROOT, "env": environment, "process_group": 0}
    with log.open("wb") as file:
        command = [sys.executable, *arguments]
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **options)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"not done after {seconds / 60:.0f} minutes, see {log.name}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # with what it has started
            child.wait()
    return f"{ending(log)} (exit code {code}, see {log.name})" if code else ""


def _speed(out: Path, names: Sequence[str]) -> Iterator[str]:
    results = json.loads((out / "benchmark.json").read_text(encoding="utf-8"))
    parts = {name: results["parts"][name] for name in names}
    for head, rows in ((TRAINING_HEAD, training_rows(parts)), (OTHER_HEAD, other_rows(parts))):
        yield markdown_table(Table("", head, [*map(list, rows)], 2))


def _multi30k(out: Path, names: Sequence[str]) -> Iterator[str]:
    run = out / MULTI30K
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    events = [event for event in map(json.loads, lines) if "bleu" in event]
    yield f"{results['step']:,} steps took {results['wall_seconds']:.0f} s."
    numbers = {k: v for k, v in results["test"].items() if isinstance(v, int | float)}
    scores = [[name, f"{value:,.4g}"] for name, value in numbers.items()]
    yield markdown_table(Table("", ("test_2016_flickr", ""), scores))
    curve = [[f"{e['step']:,}", f"{e['seconds']:.0f}", f"{e['bleu']:.2f}"] for e in events]
    yield markdown_table(Table("", ("step", "seconds", "BLEU on validation, greedy"), curve, 0))


SECTIONS = {
    "Speed": (BENCHMARKS, _speed),
    "Tests": ((TESTS,), lambda out, _: [f"{ending(out / 'tests.log').strip('= ')}."]),
    "Multi30k": ((MULTI30K,), _multi30k),
}


def page(
    out: Path, about: Mapping[str, Any], command: Mapping[str, Sequence[str]], states: Mapping
) -> Iterator[str]:
    """Yields the lines of the page; a state is the seconds of a part, or why it is not done."""
    code = about["code"]
    changed = " with changes" if code and code["changed"] else ""
    commit = f"commit {code['commit'][:7]}{changed}" if code else "no checkout"
    yield from (f"# On {about['devices']['count']} x {about['devices']['kind']}", "")
    yield from (f"{machine(about)}, Python {about['python']}; code of {commit}.", "")
    for title, (names, lines) in SECTIONS.items():
        texts = [shlex.join(["python", *command[name]]) for name in names if name in command]
        texts = [text.replace(str(out), "DIR") for text in texts]
        yield from (f"## {title}", "", "```", *texts, "```", "")
        if measured := [name for name in names if isinstance(states.get(name), float)]:
            for text in lines(out, measured):
                yield from (text, "")
        for name in names:
            state = states.get(name, "not measured")
            yield f"- {name}: " + (state if isinstance(state, str) else f"took {state:.0f} s")
        yield ""


def _run(arguments: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of records and page")
    parser.add_argument("--data", type=Path, help="folder of Multi30k")
    parser.add_argument("--parts", help=f"of {','.join(ACCELERATOR_PARTS)}; by default all")
    parser.add_argument("--minutes", type=whole(1, 600), default=5, help="for each part")
    flags = parser.parse_args(arguments)
    names, data = choose(flags.parts, ACCELERATOR_PARTS), find_data(flags.data)
    about, out = describe(), flags.out.expanduser().absolute()
    records = Records(out, about)
    folder = out / records.key
    folder.mkdir(parents=True, exist_ok=True)
    command = commands(folder, data, about["backend"], flags.minutes)
    states = records.read("accelerator") or {}
    with process.logging_to("stdout"):
        for name in names:
            if isinstance(states.get(name), float):
                logger.info(f"{name}: there since an earlier start")
                continue
            if name not in command:
                states[name] = f"no text: name it with --data, or fetch it: {FETCH}"
            else:
                logger.info(f"{name}: up to {flags.minutes} minutes ...")
                start = time.monotonic()
                error = run_command(command[name], folder / f"{name}.log", 60 * flags.minutes)
                states[name] = error or time.monotonic() - start
            records.write("accelerator", states)
            logger.info(f"{name}: {states[name] if isinstance(states[name], str) else 'done'}")
        lines = page(folder, about, command, states)
        write_text(out / "accelerator.md", "\n".join(lines))
        logger.info(f"wrote {out / 'accelerator.md'}")
    return int(any(isinstance(states[name], str) for name in names if name in command))


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, 1 if a part has failed, or 2 after a line on a user error."""
    return process.exit_code(lambda: _run(arguments), place="--out", memory="--parts")


if __name__ == "__main__":
    # A signal ends the part, too, which would go on and slow down those of a later start.
    sys.exit(process.run_process(lambda: main(sys.argv[1:])))
