"""Trains a model to the end and scores it, for the `train` and `evaluate` modes."""

import contextlib
import dataclasses
import functools
import hashlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from transformer import tasks
from transformer.config import flatten
from transformer.config.keys import having
from transformer.files import digest_file, write_arrays, write_bytes, write_json
from transformer.mesh import make_mesh
from transformer.metrics.registry import COUNTS, TABLE, Metric, find, metrics_of
from transformer.runs import run as runs
from transformer.runs import workdir
from transformer.runs.checkpoint import check_fingerprint
from transformer.runs.run import Run, State, TrainedRun
from transformer.runs.weights import Weights
from transformer.tasks.base import Task
from transformer.training.group import Group
from transformer.training.loop import Trainer
from transformer.training.progress import parameter_counts
from transformer.training.run import TrainingRun
from transformer.training.start import check_source
from ..attention import snapshots
from ..display import training_curves
from ..process import environment, modes
from ..process.text_io import join_lines
from ..results import report_page, run_tables
from ..results.table import Table, print_rows, with_interval

logger = logging.getLogger(__name__)


def train(run: Run, processes: str = "") -> int | None:
    """Trains or resumes a run, then scores it and draws its figures.

    Returns the signal that stopped the training early, or None.

    Args:
      processes: the value of `--processes`; see `environment.join`.
    """
    config, group = run.config, environment.join(processes, run.config.train.deadline)
    if not group.leads:
        logging.disable(logging.WARNING)  # the leader logs the same messages
    with group.together(), contextlib.ExitStack() as held:
        code = environment.describe()["code"]
        values = {k: v for k, v in flatten(config).items() if k not in having("path")}
        keys = {f"config.{key}": repr(value) for key, value in values.items()}
        group.compare({"jax": jax.__version__, "the code": str(code and code["commit"]), **keys})
        make_mesh(jax.devices(), config.train.mesh)  # raises if the mesh does not fit the devices
        check_source(run)
        run.check_same(training=True)
        make = functools.partial(tasks.REGISTRY[config.task], config, folder=run.folder)
        task = group.first(make)
        group.compare({"the tokenizer": task.fingerprint(), "the text": task.text_digest()})
        # Opening the checkpoints deletes incomplete ones, so no other process may write them now.
        group.agree(lambda: held.enter_context(workdir.locked(run.folder)))
        return _train_and_score(TrainingRun(task, config, run.folder, writes=group.leads), group)


def _train_and_score(run: TrainingRun, group: Group) -> int | None:
    trainer = Trainer([run], group=group)
    before = group.agree(lambda: _begin_run(run))
    if before < State.TRAINED and not trainer.run():
        group.part()
        return trainer.stop_signal
    group.part()
    if before == State.REPORTED or not group.leads:
        return None
    if before < State.TRAINED and run.scores:
        run.delete_results()  # the results are older than the last evaluation
    show_results(run.task, run, run.scores or score(run.task, run, run.folder, {}))
    return None


def _begin_run(run: TrainingRun) -> State:
    """Checks and describes a run; returns its state."""
    task, folder = run.task, run.folder
    run.checkpoints.check_fingerprint(task.fingerprint(), task.text_digest())
    if not run.step:
        run.refuse_results()
        _ = run.start  # raises before the folder becomes a run folder
    state = run.state
    if state == State.REPORTED:
        run.close()
        logger.info(f"{folder} is finished, {run.step} steps; its results:")
        print_results(runs.known_results(folder), run.config.task)
        advice = "raise it to continue, or use another folder to start from the beginning."
        logger.info(f"It ended by config.{(run.ended_by() or '').partition('=')[0]}: {advice}")
        return state
    run.claim()
    task.save_assets(folder)
    summary = task.data_summary()
    runs.record_run(folder, data=summary)
    if state >= State.TRAINED:  # scoring was interrupted, for example by a full disk
        run.close()
        return state
    environment.record(folder)
    for line in task.describe(summary):
        logger.info(line)
    return state


def score(task: Task, run: Run, place: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Scores a run's trained model, writes the results and texts, and returns the results.

    Args:
      place: an existing folder for the files.
      settings: the config values that differ from those of the run.
    """
    folder = run.folder
    chosen = Weights(folder, run.config).choose(task, keep=place == folder)
    trained = run.load_trained(chosen["steps"])
    check_fingerprint(trained.progress, task.fingerprint(), folder / "checkpoints")
    results = score_splits(task, trained, place) | {
        "step": chosen["newest_step"],
        "weights": chosen,
    }
    if start := runs.read_run(folder).get("init_from"):
        results[run_tables.START] = start
    # Delete the old report first: a report must match the results next to it.
    (place / report_page.REPORT).unlink(missing_ok=True)
    results |= {"settings": settings} if settings else {}
    write_json(place / "results.json", results)
    return results


def score_splits(task: Task, run: TrainedRun, place: Path) -> dict[str, Any]:
    """Returns a trained model's scores on each split of a task, and the cost of the training.

    The scored texts and outputs are written to the folder `place`.
    """
    params, progress = run.variables["params"], run.progress
    results: dict[str, Any] = {}
    digests: dict[str, str] = {}
    for split in task.splits:
        logger.info(f"scoring {split} ...")
        start = time.monotonic()
        scores, texts, counts = _evaluate_split(task, params, split)
        copies = sum(part.get("seconds", 0.0) for part in scores.values())
        scores[split]["seconds"] = round(time.monotonic() - start - copies, 3)
        results |= scores
        for name, lines in texts.items():  # line i of each file belongs to text i
            data = "".join(f"{join_lines(text)}\n" for text in lines).encode()
            (place / name).parent.mkdir(exist_ok=True)
            write_bytes(place / name, data)
            digests[name] = hashlib.sha256(data).hexdigest()
        if split == "test":
            write_arrays(place / runs.SCORES, counts)
            digests[runs.SCORES] = digest_file(place / runs.SCORES, "")
        for parent in sorted({(place / name).parent for name in texts}):
            logger.info(f"wrote the texts of {', '.join(scores)} to {parent}")
    seconds = progress.get("training_seconds", 0.0)
    results |= {
        runs.FILE_DIGESTS: digests,
        "averaged_steps": list(run.steps),
        "parameters": sum(parameter_counts(params).values()),
        "wall_seconds": round(progress["seconds"], 1),
        "tokens_per_second": round(progress["tokens"] / seconds, 1) if seconds else None,
        "flops_per_token": task.predictor.model.flops_per_token(params),
    }
    if task.is_translated:  # recorded, since a later command may change decode.beam_size
        results[run_tables.DECODE] = task.config.decode.to_dict()
    return results


def _evaluate_split(task: Task, params: Any, split: str) -> tuple[dict[str, Any], ...]:
    """Returns scores keyed by split or part, text lines keyed by file, and per-text counts."""
    scores = task.evaluate(params, split, final=True)
    parts = {split: scores, **scores.pop("parts", {})}
    texts = {name: lines for part in parts.values() for name, lines in part.pop("texts").items()}
    counts = [part.pop("counts") for part in parts.values()]
    return parts, texts, counts[0]


def show_results(task: Task, run: Run, results: dict[str, Any]) -> None:
    """Prints a run's results and some examples, draws its figures and writes its report."""
    folder, settings = run.folder, run.config.train
    print_results(results, run.config.task)
    if results["step"] < settings.log_every:
        line = f"the run has fewer steps than train.log_every={settings.log_every}"
        logger.info(f"nothing is drawn, since {line}: --mode=report and --mode=attention draw")
        logger.info(f"wrote {report_page.write(run, results, None, line)}")
        return
    trained = run.load_trained(results["averaged_steps"])
    trained = dataclasses.replace(trained, predictor=task.predictor)  # is already compiled
    logger.info("drawing ...")
    for picture in modes.show(task, trained.variables, folder):
        logger.info(f"wrote {picture}")
    if (metrics := folder / "metrics.jsonl").exists():  # a bundle has none
        picture = training_curves.draw(metrics, folder / "figures" / "training.png")
        logger.info(f"wrote {picture}")
    for picture in snapshots.draw(folder):
        logger.info(f"wrote {picture}")
    logger.info(f"wrote {report_page.write(run, results, trained)}")


def print_results(results: dict[str, Any], task: str) -> None:
    """Prints the scores as a table with one row per split, and the signatures below the table."""
    steps = results["averaged_steps"]
    weights_of = f"step {steps[0]:,}"
    if len(steps) > 1:
        weights_of = f"mean of {len(steps)} checkpoints, steps {min(steps):,} to {max(steps):,}"
    splits = run_tables.rows_of(results)
    title = f"{weights_of}, {results['parameters']:,} parameters"
    print_scores(title, "split", splits, task)


def print_scores(title: str, head: str, rows: Mapping[str, dict[str, Any]], task: str) -> None:
    """Prints a table of scores, with `head` as the header of the first column, and signatures.

    The columns are the number of texts or tokens, and the task's metrics that any row has.
    """
    metrics = {name: find(name) for name in COUNTS} | metrics_of(
        tasks.REGISTRY[task].metrics, TABLE
    )
    metrics = [m for name, m in metrics.items() if any(name in r for r in rows.values())]
    cells = [
        [name, *(_score_cell(scores, m) if m.name in scores else "" for m in metrics)]
        for name, scores in rows.items()
    ]
    print_rows(Table(title, [head, *(m.title for m in metrics)], cells))
    for metric in metrics:
        of_rows = (scores.get(f"{metric.name}_signature") for scores in rows.values())
        if signatures := dict.fromkeys(filter(None, of_rows)):
            print(f"{metric.title}: {', '.join(signatures)}", flush=True)
    if why := next(iter(rows.values())).get("no_interval"):
        print(why, flush=True)


def _score_cell(scores: dict[str, Any], metric: Metric) -> str:
    value, interval = scores[metric.name], scores.get(f"{metric.name}_ci")
    text = f"{value:,}" if isinstance(value, int) else f"{metric.scale * value:.2f}"
    if metric.unit == "%":
        text = f"{value * metric.scale:.1f}%"
    return with_interval(text, interval, lambda x: f"{metric.scale * x:.2f}")
