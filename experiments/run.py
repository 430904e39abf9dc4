"""Training a run to its end and scoring it: the modes `train` and `evaluate`."""

import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import training_curves, workdir
from experiments.inference import draw_attention
from transformer import tasks
from transformer.checkpoint import check_fingerprint
from transformer.train import Trainer, write_json

SPLITS = ("validation", "test")
EXAMPLES = 5  # translations shown, and for the first of them its heat maps


def train(config: Any, folder: Path) -> None:
    """Trains, or goes on with, the run of `folder`, then scores it and draws its pictures.

    Raises:
      UserError: see `TranslationTask`, `Trainer.run` and `workdir.claim`.
    """
    workdir.check_same_run(folder, config)
    task = tasks.REGISTRY[config.task](config, _say)
    trainer = Trainer(task, config, folder, _say)
    trainer.checkpoints.check_fingerprint(task.fingerprint())
    workdir.claim(folder, config)
    task.save_assets(folder)
    steps = trainer.checkpoints.steps()
    results = workdir.load_results(folder)
    if results and trainer.finished(results["step"]):
        _say(f"{folder} is finished, {steps[-1]} steps; its results:")
        print_results(results)
        _say(
            "Raise --config.train.steps or --config.train.epochs to go on, or use another "
            "--workdir to begin anew."
        )
        return
    for line in task.describe():
        _say(line)
    if trainer.run():
        score(task, config, folder)


def evaluate(config: Any, folder: Path) -> None:
    """Scores a run's averaged or best checkpoint on validation and test set.

    Raises:
      UserError: there is no run or no checkpoint, or its text has changed.
    """
    workdir.check_same_run(folder, config)
    score(tasks.REGISTRY[config.task](config, _say), config, folder)


def score(task: Any, config: Any, folder: Path) -> None:
    """Writes and prints results, translations and pictures of a trained run."""
    _, params, steps, progress = workdir.load_translator(folder, config, _say)
    check_fingerprint(progress, task.fingerprint(), folder / "checkpoints")
    results: dict[str, Any] = {}
    for split in SPLITS:
        start = time.monotonic()
        results[split] = task.evaluate(params, split, final=True)
        results[split]["seconds"] = round(time.monotonic() - start, 3)
        lines = "".join(text + "\n" for text in results[split].pop("translations"))
        path = folder / "translations" / f"{split}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(lines, encoding="utf-8")
        _say(f"wrote {path}")
    write_json(
        folder / "results.json",
        {
            **results,
            "step": max(steps),
            "averaged_steps": steps,
            "parameters": sum(int(np.prod(x.shape)) for x in jax.tree.leaves(params)),
            "wall_seconds": round(progress["seconds"], 1),
        },
    )
    print_results(workdir.load_results(folder))
    sources = [pair.source for pair in task.examples("test", EXAMPLES)]
    for source, best in zip(sources, task.translator.translate(params, sources), strict=True):
        _say(f"  {source}\n  -> {best[0].text}")
    figures = folder / "figures"
    for picture in draw_attention(task.translator, params, sources[0], None, figures / "attention"):
        _say(f"wrote {picture}")
    try:
        _say(f"wrote {training_curves.draw(folder / 'metrics.jsonl', figures / 'training.png')}")
    except ValueError as error:  # a folder that was copied without its metrics
        _say(f"no picture of the training: {error}")


def print_results(results: dict[str, Any]) -> None:
    """Prints the scores as a table, a row a split, and the signatures below it."""
    table = Table(title=f"step {results['step']}, {results['parameters']:,} parameters")
    names = [n for n in results[SPLITS[0]] if f"{n}_signature" in results[SPLITS[0]]]
    columns = ("sentences", "perplexity", "accuracy", *names, "exact_match")
    table.add_column("split")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for split in SPLITS:
        scores = results[split]
        cells = [_cell(scores, column) for column in columns]
        table.add_row(split, *cells)
    # A file or a pipe has no width of its own, and nothing there should be cut.
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for name in names:
        _say(f"{name}: {results[SPLITS[0]][f'{name}_signature']}")


def _cell(scores: dict[str, Any], column: str) -> str:
    value = scores[column]
    text = f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
    if column in ("accuracy", "exact_match"):
        text = f"{value * (100 if column == 'accuracy' else 1):.1f}%"
    return text + (f" ± {scores[f'{column}_ci']:.2f}" if f"{column}_ci" in scores else "")


def _say(line: str) -> None:
    print(line, flush=True)
