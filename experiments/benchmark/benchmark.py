"""The mode `benchmark`: how fast a config trains, decodes and starts on this machine."""

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments import environment
from experiments.benchmark import baseline, comparison
from experiments.benchmark.parts import KINDS, Setting, kinds_of
from experiments.benchmark.rotation import share_device
from experiments.benchmark.table import print_tables
from experiments.benchmark.workloads import Workload
from experiments.options import Options
from experiments.text_io import open_output
from transformer.errors import UserError

logger = logging.getLogger(__name__)


def benchmark(config: ConfigDict, folder: Path, options: Options) -> None:
    """Measures a config and prints tables; with --output, also writes the numbers as JSON.

    Nothing is trained that is kept, and no folder of a run is made.

    Raises:
      UserError: a flag has an unknown name; the text or the device cannot be used; a part has
        failed.
    """
    share_device()
    kinds = choose(options.parts, kinds_of(config))
    peers = comparison.choose(options.peers)
    before = baseline.read(Path(options.baseline).expanduser()) if options.baseline else None
    trace = Path(options.trace).expanduser() if options.trace else None
    with contextlib.ExitStack() as stack:
        file = options.output and stack.enter_context(open_output(options.output))
        setting, parts = Setting(peers=tuple(peers), trace=trace), {}
        for kind in kinds:
            logger.info(f"measuring: {kind}")
            parts[kind] = KINDS[kind](Workload(config), setting)
        found = {"environment": environment.describe(), "parts": parts}
        if file:
            file.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    show(found, before, config.name)
    if trace and "training" in kinds:
        logger.info(f"wrote profiler traces to {trace}")


def choose(text: str | None, known: Sequence[str]) -> list[str]:
    """Returns the parts of a flag, names with commas between, in their order; all if it is None.

    Raises:
      UserError: a name is unknown.
    """
    names = known if text is None else text.split(",")
    for name in names:
        if name not in known:
            raise UserError(f"--parts has {name!r}: choose from {','.join(known)}")
    return [name for name in known if name in names]


def show(found: Mapping[str, Any], before: Mapping[str, Any] | None, name: str) -> bool:
    """Prints a benchmark, and what is worse than before; returns whether anything is."""
    print_tables(found["parts"], f"{name} on {baseline.machine(found['environment'])}")
    if not before:
        return False
    changes = baseline.compare(before, found)
    for line in baseline.report(before, found, changes):
        print(line, flush=True)
    return any(change.worse for change in changes)
