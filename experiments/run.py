"""Training a run to its end and scoring it: the modes `train` and `evaluate`."""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich import print as rich_print
from rich.table import Table

from experiments import training_curves, workdir
from experiments.inference import draw_attention
from transformer import tasks
from transformer.model.config import check_choice
from transformer.train import Trainer, write_json

SPLITS = ("validation", "test")
EXAMPLES = 5  # translations shown, and for the first of them its heat maps


def train(config: Any, folder: Path) -> None:
    """Trains, or goes on with, the run of `folder`, then scores it and draws its pictures.

    Raises:
      UserError: see `TranslationTask`, `Trainer.run` and `workdir.claim`.
    """
    task = _make_task(config)
    trainer = Trainer(task, config, folder, _say)
    workdir.claim(folder, config)
    task.save_assets(folder)
    steps = trainer.checkpoints.steps()
    results = workdir.load_results(folder)
    if results and trainer.finished(results["step"]):
        _say(f"{folder} is finished, {steps[-1]} steps; its results:")
        print_results(results)
        _say("Raise train.steps or train.epochs to go on, or use another --workdir to begin anew.")
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
    score(_make_task(config), config, folder)


def score(task: Any, config: Any, folder: Path) -> None:
    """Writes and prints results, translations and pictures of a trained run."""
    translator, params, steps, progress = workdir.load_translator(folder, config, _say)
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
    for source, best in zip(sources, translator.translate(params, sources), strict=True):
        _say(f"  {source}\n  -> {best[0].text}")
    for picture in [
        *draw_attention(translator, params, sources[0], None, folder / "figures" / "attention"),
        training_curves.draw(folder / "metrics.jsonl", folder / "figures" / "training.png"),
    ]:
        _say(f"wrote {picture}")


def print_results(results: dict[str, Any]) -> None:
    """Prints the scores as a table, a row a split, and the signatures below it."""
    table = Table(title=f"step {results['step']}, {results['parameters']:,} parameters")
    names = [n for n in results[SPLITS[0]] if f"{n}_signature" in results[SPLITS[0]]]
    columns = ("sentences", "perplexity", "accuracy", *names, "exact_match")
    for column in ("split", *columns):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split in SPLITS:
        scores = results[split]
        cells = [_cell(scores, column) for column in columns]
        table.add_row(split, *cells)
    rich_print(table)
    for name in names:
        _say(f"{name}: {results[SPLITS[0]][f'{name}_signature']}")


def _cell(scores: dict[str, Any], column: str) -> str:
    value = scores[column]
    text = f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
    if column == "accuracy":
        text = f"{100 * value:.1f}%"
    return text + (f" ± {scores[f'{column}_ci']:.2f}" if f"{column}_ci" in scores else "")


def _make_task(config: Any) -> Any:
    check_choice("task", config.task, tasks.REGISTRY)
    return tasks.REGISTRY[config.task](config, _say)


def _say(line: str) -> None:
    print(line, flush=True)
