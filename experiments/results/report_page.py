"""The report of a run: one page with everything needed to judge it.

It reads only the run's folder and its checkpoint, so it can be made again without the training
data.
"""

import base64
import dataclasses
import io
import json
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from PIL import Image

from transformer import tasks
from transformer.data.pictures.sources import CAPTIONS
from transformer.errors import UserError
from transformer.runs import json_files
from transformer.runs.run import REPORT, Run, TrainedRun
from transformer.runs.workdir import load_config
from ..display import web_page
from . import outputs, run_tables
from .outputs import Group
from .tasks import REGISTRY

# Pictures in `figures/` that a report shows, with their captions.
PICTURES = {
    "examples.png": "Pictures of the test set, and below what the class token looks at",
    "over_picture.png": "What the class token looks at: the heads of each layer, and the rollout",
    "confusion.png": "Confusion matrix of the test set: rows are true classes",
    "roc.png": "ROC curves of the test set: each class against all others",
    "reliability.png": "Reliability: accuracy against confidence on the test set",
    "map.png": "Features of the texts of the test set (t-SNE)",
    "reading.png": "What attention pooling reads: darker is more",
    "attention_snapshots/*.png": "Attention of a few fixed sentences while training",
    "alignment/*.png": "Cross-attention against gold word links",
    "heads/*.png": "Importance of the attention heads",
    "positions/*.png": "Positional encodings",
    "embeddings/*.png": "Token embeddings",
}
# Exceptions of Pillow for broken pictures, and for pictures too large to open.
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
DRAWN, SHOWN = 200, 110  # pixels per inch of a drawn picture, and of the shown one


class Picture(NamedTuple):
    """A picture embedded in the page, and its size in pixels."""

    source: str
    caption: str
    width: int
    height: int


def report(run: Run) -> Iterable[Path]:
    """Writes the report of a run again, with its checkpoint if that is still available."""
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
        if task.label_type == CAPTIONS:  # the texts are picture names, which only the task can read
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
      trained: the model with these results; None if it is not available.
      missing: the reason, for the reader, if it is not available.
    """
    config, folder = run.config, run.folder
    recorded = json_files.read_run(folder)
    environment, data = recorded.get("environment"), recorded.get("data")
    # The report shows the saved config: the flags of a mode do not change the training.
    recorded = load_config(folder)
    differing = run_tables.differing(recorded)
    split = run_tables.main_split(results)
    behaviour = json_files.read_results(folder / "evaluations/behaviour/results.json") or {}
    if behaviour.get("step") != results["step"]:  # scores of other weights
        behaviour = {}
    pictures, damaged = _pictures(folder / "figures")
    task, decode = tasks.REGISTRY[config.task], run_tables.decode_of(config.decode, results)
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
        kinds=run_tables.kind_table(results[split]),
        split=split,
        behaviour=run_tables.behaviour_table(behaviour),
        signatures=run_tables.signatures(results),
        costs=run_tables.cost_table(results, task.unit),
        curves=_curves(folder / "metrics.jsonl"),
        decoding=run_tables.decode_table(decode, config.task),
        groups=_groups(run, decode, results, trained, missing),
        pictures=pictures,
        damaged=damaged,
        pages=[str(page.relative_to(folder)) for page in sorted(folder.glob("figures/**/*.html"))],
        data=data and run_tables.data_tables(data),
        preview=data and data.get("preview"),
        differing=run_tables.config_table(differing),
        command=run_tables.command(differing),
        config=json.dumps(recorded.to_dict(), indent=2, ensure_ascii=False),
        environment=environment and run_tables.environment_table(environment),
    )


def _groups(
    run: Run,
    decode: ConfigDict,
    results: dict[str, Any],
    trained: TrainedRun | None,
    missing: str,
) -> list[Group]:
    folder, split = run.folder, run_tables.main_split(results)
    try:
        if name := json_files.damaged_text(folder, results):
            raise UserError(f"{name} is damaged: --mode=evaluate writes it again")
        groups = outputs.REGISTRY[REGISTRY[run.config.task].made]
        return groups(decode, folder, split, trained, missing)
    except UserError as error:
        return [Group("samples", "Texts", [str(error)])]


def _curves(metrics: Path) -> Any:
    """Returns the training curves in the page's colours, or a line of text if there are none."""
    from ..display import training_curves  # matplotlib takes a third of a second

    caption = "Loss, scores and learning rate over the steps of the training"
    try:
        figure = training_curves.build_figure(training_curves.read_curves(metrics), metrics.name)
    except ValueError as error:  # the folder was copied without its metrics
        return f"No curves: {error}"
    return web_page.figure_svg(figure, "curves", caption)


def _pictures(figures: Path) -> tuple[list[Picture], list[str]]:
    """Returns the pictures, and the names of those that cannot be read."""

    def place(path: Path) -> str:
        return re.sub(r"\d+", lambda number: number[0].zfill(9), path.name)  # strip_2 < strip_10

    shown, damaged = [], []
    for pattern, caption in PICTURES.items():
        for path in sorted(figures.glob(pattern), key=place):
            name = f": {path.stem.replace('_', ' ')}" if "*" in pattern else ""
            try:
                shown.append(_picture(path, caption + name))
            except UNREADABLE:
                damaged.append(str(path.relative_to(figures.parent)))
    return shown, damaged


def _picture(path: Path, caption: str) -> Picture:
    """Returns a picture for the page; raises one of `UNREADABLE` if it is damaged."""
    # PNG alone, whatever the file's name: formats such as PostScript are programs.
    with Image.open(path, formats=["PNG"]) as image:
        # Colours stand for numbers: this method keeps each one close, in a third of the bytes.
        picture = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    width, height = (round(side * SHOWN / DRAWN) for side in picture.size)
    small = io.BytesIO()
    picture.save(small, "PNG", optimize=True)
    source = f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode('ascii')}"
    return Picture(source, caption, width, height)
