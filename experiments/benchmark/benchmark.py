"""The mode `benchmark`: how fast a config trains, decodes and starts on this machine."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments import environment
from experiments.benchmark import baseline, comparison
from experiments.benchmark.parts import KINDS, Setting, kinds_of
from experiments.benchmark.rotation import ROOT, share_device
from experiments.benchmark.table import print_tables
from experiments.benchmark.workloads import Workload
from experiments.options import Options
from experiments.text_io import open_output
from transformer.errors import UserError
from transformer.storage.files import write_json

logger = logging.getLogger(__name__)


def benchmark(config: ConfigDict, folder: Path, options: Options) -> None:
    """Measures a config and prints tables; with --output, also writes the numbers as JSON.

    Nothing is trained that is kept, and no folder of a run is made.
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
        numbers = {"environment": environment.describe(), "parts": parts}
        if file:
            file.write(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n")
    show(numbers, before, config.name)
    if trace and "training" in kinds:
        logger.info(f"wrote profiler traces to {trace}")


def choose(text: str | None, known: Sequence[str]) -> list[str]:
    """Returns the parts of a flag, names with commas between, in their order; all if it is None."""
    names = known if text is None else text.split(",")
    for name in names:
        if name not in known:
            raise UserError(f"--parts has {name!r}: choose from {','.join(known)}")
    return [name for name in known if name in names]


def show(numbers: Mapping[str, Any], before: Mapping[str, Any] | None, name: str) -> bool:
    """Prints a benchmark, and what is worse than before; returns whether anything is."""
    print_tables(numbers["parts"], f"{name} on {baseline.machine(numbers['environment'])}")
    if not before:
        return False
    changes = baseline.compare(before, numbers)
    for line in baseline.report(before, numbers, changes):
        print(line, flush=True)
    return any(change.worse for change in changes)


class Records:
    """Results of parts in files, which hold for the same code, device, versions and `others`."""

    def __init__(self, folder: Path, found: Mapping[str, Any], **others: Any):
        digest = hashlib.sha256()  # of the code that is measured, committed or not
        for name in ("configs", "experiments", "tests", "transformer"):
            for path in sorted((ROOT / name).rglob("*.py")):
                digest.update(f"{path.relative_to(ROOT)} ".encode() + path.read_bytes())
        keys = ("devices", "processor", "cores", "packages")
        conditions = {**{key: found[key] for key in keys}, "files": digest.hexdigest(), **others}
        self._folder, self._conditions = folder, conditions
        self.key = hashlib.sha256(json.dumps(conditions).encode()).hexdigest()[:8]

    def write(self, part: str, result: Any) -> None:
        """Writes the result of a part."""
        content = {"conditions": self._conditions, "result": result}
        write_json(self._folder / f"{part}.json", content)

    def read(self, part: str) -> Any:
        """Returns the result of a part; None if there is none, or of other conditions."""
        try:
            record = json.loads((self._folder / f"{part}.json").read_text(encoding="utf-8"))
            return record["result"] if record["conditions"] == self._conditions else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
