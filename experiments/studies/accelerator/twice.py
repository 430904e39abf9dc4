"""The part `twice`: whether two starts of the same training give the same bits.

As a command it is one of these starts, which writes the state that it ends with:

    python -m experiments.studies.accelerator.twice OUT.npz CACHE STEPS [--toy]
"""

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs import quickstart
from experiments.studies.accelerator.parts import Order, shrink
from transformer.errors import RunError
from transformer.run import Run
from transformer.storage.files import write_arrays
from transformer.tasks.translation import TranslationTask
from transformer.train import Trainer

STEPS, TOY_STEPS = 20, 3
MODULE = "experiments.studies.accelerator.twice"


def measure(order: Order) -> dict[str, Any]:
    """Returns how the states of two processes differ, see `differences`."""
    steps = TOY_STEPS if order.toy else STEPS
    states = []
    with tempfile.TemporaryDirectory() as name:
        for i in range(2):
            out, cache = Path(name) / f"{i}.npz", order.folder / "cache"
            command = [sys.executable, "-m", MODULE, out, cache, str(steps)]
            code = subprocess.run([*command, *["--toy"] * order.toy]).returncode
            if code:
                raise RunError(f"start {i + 1} ended with exit code {code}")
            with np.load(out) as arrays:
                states.append(dict(arrays))
    return {"steps": steps, **differences(*states)}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how many arrays there are and differ, and the largest difference, with its name."""
    largest = {
        name: float(np.max(np.abs(np.subtract(one[name], other[name], dtype=np.float64))))
        for name in one
        if one[name].tobytes() != other[name].tobytes()
    }
    name = max(largest, key=lambda name: largest[name], default="")
    found = {"arrays": len(one), "different": len(largest), "name": name}
    return {**found, "difference": largest.get(name, 0.0)}


def train(cache: str, steps: int, toy: bool) -> dict[str, np.ndarray]:
    """Returns the arrays of the quickstart's state after some steps, by name."""
    config = quickstart.get_config()
    config.data.cache_dir, config.data.train_size = cache, 4000
    config.data.num_buckets = 1  # one shape is compiled, in place of four
    task = TranslationTask(shrink(config) if toy else config)
    with tempfile.TemporaryDirectory() as name:
        run = Run(task, config, Path(name))
        trainer = Trainer([run])
        state, place = trainer.fresh_state(), trainer.placement
        for batch in itertools.islice(place.batches([task.plan], 0, 2), steps):
            arguments = place.arguments(state, batch, trainer.hparams, [0])
            state, _ = trainer.train_step(*arguments)
        run.close()
    leaves = jax.tree.leaves_with_path(jax.device_get(state))
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in leaves
    }


def main(arguments: Sequence[str]) -> None:
    """Trains as the arguments say."""
    out, cache, steps, *toy = arguments
    write_arrays(Path(out), train(cache, int(steps), bool(toy)))


if __name__ == "__main__":
    main(sys.argv[1:])
