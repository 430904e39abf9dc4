"""The report of a run: an HTML page with the information that is needed to judge the run.

The report uses only the run's folder and checkpoint, so it can be written again without the
training data.
"""

import base64
import dataclasses
import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from transformer import tasks
from transformer.data.pictures.sources import CAPTIONS
from transformer.errors import UserError
from transformer.files import read_file
from transformer.runs import run as runs
from transformer.runs.run import REPORT, Run, TrainedRun
from transformer.runs.workdir import load_config
from ..display import training_curves, web_page
from . import outputs, run_tables
from .outputs import Group
from .tasks import REGISTRY

# Images in `figures/` that are shown in a report, with their captions.
PICTURES = {
    "examples.png": "Pictures of the test set, and below what the class token looks at",
    "over_picture.png": "What the class token looks at: the heads of each layer, and the rollout",
    "confusion.png": "Confusion matrix of the test set: rows are true classes",
    "roc.png": "ROC curves of the test set: each class against all others",
    "reliability.png": "Reliability: accuracy against confidence on the test set",
    "map.png": "Features of the texts of the test set (t-SNE)",
    "reading.png": "What attention pooling reads: darker is more",
    "attention_snapshots/*.png": "Statistics of every head while training",
    "alignment/*.png": "Cross-attention against gold word links",
    "interventions/*.png": "Effects of interventions at single places",
    "positions/*.png": "Positional encodings",
    "embeddings/*.png": "Token embeddings",
}


def report(run: Run) -> Iterable[Path]:
    """Rewrites the report of a run, using the run's checkpoint if it is still available."""
    run.check_same()
    results, task = run.results, tasks.REGISTRY[run.config.task]
    if results is None:
        raise UserError(
            f"{run.folder} has no results.json, so there is nothing to report: train to the end, "
            "or score what there is by --mode=evaluate"
        )
    missing = "the checkpoints are not those of the results: --mode=evaluate scores them again"
    try:
        trained = run.load_trained()
        if task.label_type == CAPTIONS:  # the texts are image names, which only the task can read
            predictor = task.from_folder(run.folder, run.config).predictor
            trained = dataclasses.replace(trained, predictor=predictor)
    except UserError as error:
        return [write(run, results, None, str(error))]
    same = list(trained.steps) == results["averaged_steps"]
    return [write(run, results, trained if same else None, missing)]


def write(run: Run, results: dict[str, Any], trained: TrainedRun | None, missing: str = "") -> Path:
    """Writes `report.html` into a run's folder; returns its path.

    Args:
      results: the content of `results.json`.
      trained: the model that has these results, or None if the model is not available.
      missing: the reason, shown to the reader, why the model is not available.
    """
    config, folder = run.config, run.folder
    recorded = runs.read_run(folder)
    environment, data = recorded.get("environment"), recorded.get("data")
    # The report shows the saved config, since flags of this command did not affect the training.
    recorded = load_config(folder)
    differing = run_tables.differing(recorded)
    split = run_tables.main_split(results)
    behaviour = runs.read_results(folder / "evaluations/behaviour/results.json") or {}
    if behaviour.get("step") != results["step"]:  # the scores are of other weights
        behaviour = {}
    task, decode = tasks.REGISTRY[config.task], run_tables.decode_of(config.decode, results)
    try:
        if name := runs.damaged_text(folder, results):
            raise UserError(f"{name} is damaged: --mode=evaluate writes it again")
        write_groups = outputs.REGISTRY[REGISTRY[config.task].made]
        groups = write_groups(decode, folder, split, trained, missing)
    except (UserError, ValueError) as error:  # a file from elsewhere may have wrong columns
        groups = [Group("samples", "Texts", [str(error)])]
    return web_page.write_page(
        folder / REPORT,
        "report.html",
        title=f"{folder.resolve().name}: training report",
        name=config.name,
        task=config.task.replace("_", " "),
        started=environment and f"{datetime.fromisoformat(environment['started']):%Y-%m-%d %H:%M}",
        step=f"{results['step']:,}",
        parameters=f"{results['parameters']:,}",
        main_score=run_tables.main_score(config.task, results),
        scores=run_tables.score_table(config.task, results),
        classes=run_tables.class_table(results[split]),
        split=split,
        behaviour=run_tables.behaviour_table(behaviour),
        signatures=run_tables.signatures(results),
        costs=run_tables.cost_table(results, task.unit),
        curves=_curves(folder / "metrics.jsonl"),
        decoding=run_tables.decode_table(decode, config.task),
        groups=groups,
        pictures=_pictures(folder / "figures"),
        pages=[str(page.relative_to(folder)) for page in sorted(folder.glob("figures/**/*.html"))],
        data=data and run_tables.data_tables(data),
        preview=data and data.get("preview"),
        differing=run_tables.config_table(differing),
        command=run_tables.command(differing),
        config=json.dumps(recorded.to_dict(), indent=2, ensure_ascii=False),
        environment=environment and run_tables.environment_table(environment),
    )


def _curves(metrics: Path) -> Any:
    """Returns the training curves in the page's colours, or an explanation if there are none."""
    caption = "Loss, scores and learning rate over the steps of the training"
    try:
        figure = training_curves.build_figure(training_curves.read_curves(metrics), metrics.name)
    except ValueError as error:  # the folder was copied without its metrics
        return f"No curves: {error}"
    return web_page.figure_svg(figure, "curves", caption)


def _pictures(figures: Path) -> dict[str, str]:
    """Returns a run's figures as data URLs keyed by caption, sorted by file name."""
    pictures = {}
    for pattern, caption in PICTURES.items():
        for path in sorted(figures.glob(pattern)):
            name = f": {path.stem.replace('_', ' ')}" if "*" in pattern else ""
            data = base64.b64encode(read_file(path)).decode("ascii")
            pictures[caption + name] = f"data:image/png;base64,{data}"
    return pictures
