"""The part `multi30k`: a whole training with a limit of time."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from configs import multi30k
from experiments.studies.accelerator.parts import Order
from transformer.data.files.locate import corpus_folder
from transformer.errors import RunError, UserError

ROOT = Path(__file__).parents[3]
SCORING = 75.0  # seconds that the start and the final scores take, most of them to compile
FIRST_FILE = "train.en"
# An epoch of about 70 steps should take less than a second there: evaluations after each would take
# most of the time.
SETTINGS = ("train.evaluate_every=500", "evaluate.snapshot_statistics=0")
TOY = (
    *("model.d_model=16", "model.d_ff=32", "model.num_heads=2", "model.num_encoder_layers=1"),
    *("model.num_decoder_layers=1", "train.steps=4", "train.evaluate_every=2"),
    *("data.train_subset=200", "data.num_buckets=1", "tokenizer.vocab_size=400"),
    *("evaluate.max_sentences=4", "evaluate.snapshot_statistics=0", "evaluate.checkpoint=last"),
)


def find_data(given: Path | None) -> Path | None:
    """Returns the folder of Multi30k: the given one, or the one that was fetched, if it is there.

    Raises:
      UserError: the given one has not its files.
    """
    folder = given.expanduser() if given else corpus_folder(multi30k.get_config().data)
    if any(folder.glob(f"{FIRST_FILE}*")):
        return folder.absolute()
    if given:
        raise UserError(
            f"--data={given} has no {FIRST_FILE}: name a folder with train, val and "
            "test_2016_flickr, each .en and .de, or leave --data out"
        )
    return None


def measure(order: Order) -> Iterator[dict[str, Any]]:
    """Yields the course of a training with `configs/multi30k.py`, and its scores on test.

    Raises:
      RunError: the training failed, or the time was over before the test set was scored.
    """
    run = Path(tempfile.mkdtemp(prefix="multi30k_run_", dir=order.folder))  # none is resumed
    limit = max(20.0, order.seconds - SCORING)
    command = [sys.executable, "launch.py", "--config=configs/multi30k.py", f"--workdir={run}"]
    command += [f"--config.{setting}" for setting in settings(order, limit)]
    code = 0
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = subprocess.run(command, cwd=ROOT, timeout=order.seconds).returncode
    if code:
        raise RunError(f"the training ended with exit code {code}, see multi30k.log")
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found = {"limit_seconds": limit, **read_course(map(json.loads, lines))}
    results = run / "results.json"
    if not results.exists():
        yield found
        raise RunError("the time was over before the test set was scored")
    yield {**found, **read_scores(json.loads(results.read_text(encoding="utf-8")))}


def settings(order: Order, limit: float) -> list[str]:
    """Returns what the training changes in `configs/multi30k.py`, as KEY=VALUE.

    Args:
      limit: seconds of the training.
    """
    return [
        f"data.path={order.data}",
        f"data.cache_dir={order.folder / 'cache'}",
        f"train.minutes={limit / 60:.3f}",
        *(TOY if order.toy else SETTINGS),
    ]


def read_course(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns steps, seconds and BLEU of the evaluations, and which of them had the best BLEU."""
    course = [
        {"step": event["step"], "seconds": event["seconds"], "bleu": event["bleu"]}
        for event in events
        if event.get("split") == "validation" and "bleu" in event
    ]
    best = max(course, key=lambda own: own["bleu"], default=None)
    return {"course": course, "best": best}


def read_scores(results: dict[str, Any]) -> dict[str, Any]:
    """Returns the numbers of a run's `results.json` that the page shows."""
    names = ("step", "wall_seconds", "tokens_per_second", "parameters")
    scores = {k: v for k, v in results["test"].items() if isinstance(v, int | float)}
    return {**{name: results[name] for name in names}, "test": scores}
