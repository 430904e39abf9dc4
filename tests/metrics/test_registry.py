"""A metric that stands in the registry is shown wherever metrics are."""

import contextlib
import io
import json
from dataclasses import asdict

import jax.numpy as jnp
import pytest

from configs import quickstart
from experiments.display.training_curves import build_figure, read_curves
from experiments.evaluate import run
from experiments.results.run_tables import score_table
from experiments.results.systems import read_sweep
from experiments.results.table import build_tables
from experiments.sweep.study import Study
from experiments.sweep.trial_configs import plan_trials
from log_lines import heard
from sweeps import write_trial
from transformer import tasks
from transformer.checks import check
from transformer.errors import UserError
from transformer.metrics import registry, text
from transformer.metrics.registry import PANELS, SCORES, Metric, metrics_of
from transformer.runs import weights
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.run import RunProgress
from transformer.runs.workdir import find_trials
from transformer.training.progress import Progress

INVENTED = Metric("invented", "edits", "%", higher_is_better=False, panel=SCORES)
HERE, THERE = 37.5, 62.5  # the better and the worse


def config():
    made = quickstart.get_config()
    made.train.best_metric = INVENTED.name
    return made


def results(**scores) -> dict:
    costs = {"step": 1, "averaged_steps": [1], "parameters": 1}
    return costs | {"test": {"loss": 1.0, "nll": 1.0, "sentences": 3, **scores}}


def final_table(folder) -> bool:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run.print_results(
            results(invented=HERE, invented_ci=1.5, invented_signature="case:lc"), "translation"
        )
    shown = (" edits ", "37.5% ± 1.50", "\nedits: case:lc\n")
    return all(part in out.getvalue() for part in shown)


def line_while_training(folder) -> bool:
    with heard() as said, Progress(10, 0, "tokens") as progress:
        progress.note(5, {"loss": 1.0, INVENTED.name: HERE})
    return said == ["validation at step 5: loss 1  invented 37.5"]


def best_checkpoint(folder) -> bool:
    with Checkpoints(folder / "checkpoints", 5, INVENTED.name) as checkpoints:
        for step, value in ((1, THERE), (2, HERE)):
            checkpoints.save(step, {"params": jnp.zeros(1)}, {})
            checkpoints.record_evaluation(step, {INVENTED.name: value}, {})
        return checkpoints.best_step() == 2


def patience(folder) -> bool:
    progress = RunProgress("x")
    for step, value in ((1, THERE), (2, HERE)):
        progress.record(step, INVENTED.name, {INVENTED.name: value})
    return progress.best_step == 2


def check_of_best_metric(folder) -> bool:
    try:
        check(config())
    except UserError:
        return False
    return True


def choice_of_weights(folder) -> bool:
    candidate = {"what": weights.BEST, "steps": [1], "score": HERE}
    choice = {"steps": [1], "rule": "auto", "metric": INVENTED.name, "candidates": [candidate]}
    return "37.5 edits on validation" in weights._choice_line(choice)


def training_curves(folder) -> bool:
    lines = [
        {"step": step, "split": "validation", "bleu": 1.0, INVENTED.name: value}
        for step, value in ((1, HERE), (2, THERE))
    ]
    file = folder / "metrics.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    [axes] = build_figure(read_curves(file), "file").axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    return labels[1:] == ["validation edits (best 37.50 at step 1)"]


def table_of_a_sweep(folder) -> bool:
    trials = [
        write_trial(folder, n, {"seed": n}, test={INVENTED.name: value})
        for n, value in enumerate((HERE, THERE))
    ]
    table = build_tables(read_sweep("translation", trials))[0]
    cells = dict(zip(table.head, table.rows[0], strict=True))
    return "edits (%)" in cells and cells["edits (%)"].startswith("50.00 ± ")


def search_of_a_sweep(folder) -> bool:
    trials = plan_trials(config(), [{"seed": 0}], folder)
    return Study(config(), trials, None, folder)._study.direction.name == "MINIMIZE"


def trials_of_a_sweep(folder) -> bool:
    for number, value in enumerate((THERE, HERE)):
        place = folder / f"trials/{number:03d}"
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps(config().to_dict()))
        (place / "results.json").write_text(json.dumps({"validation": {INVENTED.name: value}}))
    return find_trials(folder)[0].score == HERE


def report(folder) -> bool:
    rows = score_table("translation", results(invented=HERE)).rows
    return ["edits (%)", "37.50"] in rows


CONSUMERS = (
    *(final_table, line_while_training, best_checkpoint, patience, check_of_best_metric),
    *(choice_of_weights, training_curves, table_of_a_sweep, trials_of_a_sweep, report),
)


@pytest.mark.parametrize("shows", CONSUMERS, ids=lambda shows: shows.__name__)
def test_a_metric_of_the_registry_alone_is_shown_everywhere(shows, tmp_path, monkeypatch):
    for folder in ("without", "with"):
        (tmp_path / folder).mkdir()
    assert not shows(tmp_path / "without")  # the control
    entries = (*registry.REGISTRY["translations"], INVENTED)
    monkeypatch.setitem(registry.REGISTRY, "translations", entries)
    assert shows(tmp_path / "with")


def test_a_search_goes_the_way_that_is_better(tmp_path, monkeypatch):
    entries = (*registry.REGISTRY["translations"], INVENTED)
    monkeypatch.setitem(registry.REGISTRY, "translations", entries)
    assert search_of_a_sweep(tmp_path)


def test_a_function_is_all_that_a_score_of_translations_adds(monkeypatch):
    monkeypatch.setattr(text, "FUNCTIONS", dict(text.FUNCTIONS))

    @text.text_metric
    def invented(corpus):
        return text.CorpusScore(float(len(corpus.hypotheses)), 0.5, "case:lc")

    scores = text.corpus_scores(["a", "b"], ["a", "c"])
    assert {k: v for k, v in scores.items() if k.startswith("invented")} == {
        "invented": 2.0,
        "invented_ci": 0.5,
        "invented_signature": "case:lc",
    }


def test_every_task_has_metrics_and_every_score_of_text_an_entry():
    assert set(registry.REGISTRY) == {task.metrics for task in tasks.REGISTRY.values()}
    assert set(text.FUNCTIONS) <= set(metrics_of("translations"))


def test_a_metric_is_the_same_in_every_task():
    differing = ("shown", "heading", "about", "final")
    known: dict[str, dict] = {}
    for metrics in registry.REGISTRY.values():
        assert len({metric.name for metric in metrics}) == len(metrics)
        for metric in metrics:
            fields = {k: v for k, v in asdict(metric).items() if k not in differing}
            assert known.setdefault(metric.name, fields) == fields
            assert metric.panel in ("", *PANELS)
