"""Measures the standard workloads: `make bench`.

    python -m experiments.benchmark --out=DIR [--parts=tiny,start] [--data=FOLDER] [--peers=torch]

DIR/benchmark.json holds the results. As the `--baseline` of a later benchmark, it is compared
with the new results; if something became slower, that is printed and the exit code is 1. On a
CPU, docs/results/speed.json is the default, and the paper's `base` and `big` run only if named.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from transformer.config import load_page
from transformer.files import write_json
from ..process import process
from . import summary, workloads
from .benchmark import choose, share_device, show_results
from .measurements import Setting, choose_peers, measure
from .turns import ROOT
from .workloads import Shape, Workload

transformer_base = load_page("transformer_base")
transformer_big = load_page("transformer_big")

BASELINE = ROOT / "docs" / "results" / "speed.json"
FULL_SHAPE = Shape(768, 32, 32)  # the paper's batches: 25,000 tokens per side
# Kind (see `measurements.KINDS`) and workload of each part, given the folder of Multi30k.
BENCH_PARTS: dict[str, tuple[str, Callable[[Path | None], Workload]]] = {
    "base": ("training", lambda data: Workload(transformer_base.get_config(), FULL_SHAPE)),
    "big": ("training", lambda data: Workload(transformer_big.get_config(), FULL_SHAPE)),
    "tiny": ("training", lambda data: workloads.tiny()),
    "tutorial": ("training", lambda data: workloads.tutorial()),
    "decoding": ("decoding", workloads.text),
    "start": ("start", workloads.text),
    "text": ("training", workloads.text_of_peers),
}
LARGE = ("base", "big")


def _output_path(text: str) -> Path:
    return Path(text).expanduser()


def _run_parts(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=_output_path, required=True, help="folder of records")
    parser.add_argument("--parts", help=f"of {','.join(BENCH_PARTS)}")
    parser.add_argument("--data", type=_output_path, help="folder of Multi30k")
    parser.add_argument("--peers", help="others to measure in turn; by default those installed")
    parser.add_argument("--rounds", type=int, default=Setting().rounds)
    parser.add_argument("--trace", type=_output_path, help="folder of profiler traces of the steps")
    parser.add_argument("--baseline", type=_output_path, help="an earlier benchmark.json")
    flags = parser.parse_args(arguments)
    names, data = choose(flags.parts, [*BENCH_PARTS]), workloads.find_data(flags.data)
    share_device()
    if jax.default_backend() == "cpu":
        names = [name for name in names if flags.parts or name not in LARGE]
        flags.baseline = flags.baseline or (BASELINE if BASELINE.is_file() else None)
    before = flags.baseline and summary.read(flags.baseline)
    out = flags.out.absolute()
    with process.logging_to("stdout"):
        setting = Setting(flags.rounds, tuple(choose_peers(flags.peers)), flags.trace)
        out.mkdir(parents=True, exist_ok=True)
        parts = {name: (kind, workload(data)) for name, (kind, workload) in BENCH_PARTS.items()}
        results = measure({name: parts[name] for name in names}, setting)
        write_json(out / "benchmark.json", results)
        return int(show_results(results, before, "standard workloads"))


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, 1 if something is slower, or 2 after a line on a user error."""
    return process.exit_code(
        lambda: _run_parts(arguments), place="--out", memory="the number of --peers"
    )


if __name__ == "__main__":
    sys.exit(process.run_process(lambda: main(sys.argv[1:])))
