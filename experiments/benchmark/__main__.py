"""Measures the standard workloads: `make bench`.

    python -m experiments.benchmark --out=DIR [--parts=tiny,start] [--data=FOLDER] [--peers=torch]

Each part leaves DIR/PART.json, and a later start skips those that are there for the same machine,
version of JAX, commit (without changes) and peers. DIR/benchmark.json holds all of them; as
`--baseline` of a later start it says what became slower since, and the exit code is then 1. Without
--baseline it is docs/results/speed.json.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from configs import multi30k_2cores, quickstart
from experiments import environment, process
from experiments.benchmark import baseline, comparison, workloads
from experiments.benchmark.benchmark import choose, show
from experiments.benchmark.parts import KINDS, Setting
from experiments.benchmark.rotation import ROOT, share_device
from experiments.benchmark.workloads import Workload
from experiments.studies.accelerator.multi30k import find_data
from experiments.studies.command import Parser, whole
from transformer.storage.files import write_json

logger = logging.getLogger("experiments.benchmark")  # not that of `__main__`

BASELINE = ROOT / "docs" / "results" / "speed.json"


class Part(NamedTuple):
    """A part: its kind, see `parts.KINDS`, and its workload, given the folder of Multi30k."""

    kind: str
    workload: Callable[[Path | None], Workload]


def text(data: Path | None) -> Workload:
    """Returns Multi30k as two cores train it, or if it is not there, the quickstart."""
    if data is None:
        return Workload(quickstart.get_config())
    config = multi30k_2cores.get_config()
    config.data.path = str(data)
    return Workload(config)


def text_of_peers(data: Path | None) -> Workload:
    """Returns the same with the positions and the optimizer that the peers have."""
    workload = text(data)
    workload.config.model.positions = "split"
    workload.config.optimizer.name = "adam"
    return workload


PARTS = {
    "tiny": Part("training", lambda data: workloads.tiny()),
    "tutorial": Part("training", lambda data: workloads.tutorial()),
    "decoding": Part("decoding", text),
    "start": Part("start", text),
    "text": Part("training", text_of_peers),
}


def read_part(path: Path, conditions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what a part has measured; None if it has not, or in other conditions."""
    code = conditions["code"]
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        same = record["conditions"] == conditions and code and not code["changed"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record["result"] if same else None


def measure(names: Sequence[str], out: Path, data: Path | None, setting: Setting) -> dict[str, Any]:
    """Measures the parts that are not there yet; returns the whole benchmark, as JSON has it."""
    found = environment.describe()
    keys = ("devices", "processor", "cores", "code", "packages")
    conditions = {
        **{key: found[key] for key in keys},
        "peers": list(setting.peers),
        "rounds": setting.rounds,
        "data": str(data),
    }
    parts = {}
    for name in PARTS:
        path = out / f"{name}.json"
        result = read_part(path, conditions)
        if result is None and name in names:
            logger.info(f"{name} ...")
            start = time.monotonic()
            result = KINDS[PARTS[name].kind](PARTS[name].workload(data), setting)
            seconds = time.monotonic() - start
            write_json(path, {"conditions": conditions, "seconds": seconds, "result": result})
        elif name in names:
            logger.info(f"{name}: there since an earlier start")
        if result is not None:
            parts[name] = result
    whole_benchmark = {"environment": found, "parts": parts}
    write_json(out / "benchmark.json", whole_benchmark)
    return whole_benchmark


def _path(text: str) -> Path:
    return Path(text).expanduser()


def run(arguments: Sequence[str]) -> int:
    """Measures as the command line says; returns 1 if something is worse than the baseline."""
    parser = Parser(__doc__)
    parser.add_argument("--out", type=_path, required=True, help="folder of records")
    parser.add_argument("--parts", help=f"of {','.join(PARTS)}; by default all")
    parser.add_argument("--data", type=_path, help="folder of Multi30k")
    parser.add_argument("--peers", help="others to train in turn; by default those installed")
    parser.add_argument("--rounds", type=whole(1, 1000), default=Setting().rounds)
    parser.add_argument("--trace", type=_path, help="folder of profiler traces of the steps")
    parser.add_argument("--baseline", type=_path, help="an earlier benchmark.json")
    flags = parser.parse_args(arguments)
    names, data = choose(flags.parts, list(PARTS)), find_data(flags.data)
    file = flags.baseline or (BASELINE if BASELINE.is_file() else None)
    before = None if file is None else baseline.read(file)
    out = flags.out.absolute()
    share_device()
    with process.logging_to("stdout"):
        setting = Setting(flags.rounds, tuple(comparison.choose(flags.peers)), flags.trace)
        out.mkdir(parents=True, exist_ok=True)
        found = measure(names, out, data, setting)
        return int(show(found, before, "standard workloads"))


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, 1 if something is worse, or 2 after a line on a user error."""
    return process.exit_code(lambda: run(arguments), place="--out", memory="the number of --peers")


if __name__ == "__main__":
    sys.exit(process.run_process(lambda: main(sys.argv[1:])))
