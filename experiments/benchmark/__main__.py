"""Measures the standard workloads: `make bench`.

    python -m experiments.benchmark --out=DIR [--parts=tiny,text] [--data=FOLDER] [--peers=P]

DIR/benchmark.json contains the results. On a CPU, the paper's models are measured only if `--parts`
names them.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from transformer.config import load_page
from transformer.files import write_json
from ..process import process
from .benchmark import choose, share_device, show_results
from .measurements import Setting, choose_peers, measure
from .workloads import Shape, Workload

FULL_SHAPE = Shape(768, 32, 32)  # as in the paper: about 25,000 tokens per side
DROPOUT = 0.3  # rate of all kinds of dropout in the "tiny" workload


def page(name: str, shape: Shape | None = None) -> Workload:
    """Returns the workload for a config file in `configs/`."""
    return Workload(load_page(name).get_config(), shape)


def tiny() -> Workload:
    """Returns Transformer-Tiny (Wu et al. 2021): 256 sentences of up to 16 tokens, with dropout."""
    workload = page("multi30k", Shape(256, 16, 11))
    for name in ("embedding", "residual", "attention", "activation"):
        workload.config.model[f"dropout_{name}"] = DROPOUT
    workload.config.optimizer.clip_norm = 0.0
    return workload


def text(data: Path | None) -> Workload:
    """Returns the two-core Multi30k workload in the folder `data`, or quickstart without one.

    It has the peers' positional encoding and optimizer.
    """
    workload = page("multi30k_2cores" if data else "quickstart")
    if data:
        workload.config.data.path = str(data)
    workload.config.model.positions = "split"
    workload.config.optimizer.name = "adam"
    return workload


# Functions that map the Multi30k folder to the workload of a part.
BENCH_PARTS: dict[str, Callable[[Path | None], Workload]] = {
    "base": lambda data: page("transformer_base", FULL_SHAPE),
    "big": lambda data: page("transformer_big", FULL_SHAPE),
    "tiny": lambda data: tiny(),
    # The tutorial's model with its batch shape: 64 sentences, all padded to 41 tokens.
    "tutorial": lambda data: page("tutorial_en_de", Shape(64, 41, 4)),
    "text": text,
}
LARGE = ("base", "big")


def _absolute_path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _run_parts(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=_absolute_path, required=True, help="folder of records")
    parser.add_argument("--parts", help=f"of {','.join(BENCH_PARTS)}")
    parser.add_argument("--data", type=_absolute_path, help="folder of Multi30k")
    parser.add_argument("--peers", help="others to measure in turn; by default those installed")
    parser.add_argument("--rounds", type=int, default=Setting().rounds)
    flags = parser.parse_args(arguments)
    names = choose(flags.parts, [*BENCH_PARTS])
    share_device()
    if jax.default_backend() == "cpu":
        names = [name for name in names if flags.parts or name not in LARGE]
    with process.logging_to("stdout"):
        setting = Setting(flags.rounds, tuple(choose_peers(flags.peers)))
        flags.out.mkdir(parents=True, exist_ok=True)
        results = measure({name: BENCH_PARTS[name](flags.data) for name in names}, setting)
        write_json(flags.out / "benchmark.json", results)
        show_results(results, "standard workloads")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, or 2 after printing a user error."""
    return process.exit_code(
        lambda: _run_parts(arguments), place="--out", memory="the number of --peers"
    )


if __name__ == "__main__":
    sys.exit(process.run_process(lambda: main(sys.argv[1:])))
