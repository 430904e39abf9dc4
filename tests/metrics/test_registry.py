"""A metric of the registry is shown wherever metrics are."""

import contextlib
import io
import json

import jax.numpy as jnp
import pytest

from experiments.display.training_curves import build_figure, read_curves
from experiments.evaluate import run
from experiments.results.systems import read_sweep
from experiments.results.table import build_tables
from sweeps import write_trial
from transformer import tasks
from transformer.metrics import registry, text
from transformer.metrics.registry import SCORES, Metric, metrics_of
from transformer.runs.checkpoint import Checkpoints

INVENTED = Metric("invented", "edits", "%", higher_is_better=False, panel=SCORES)
HERE, THERE = 37.5, 62.5  # the better and the worse


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


def best_checkpoint(folder) -> bool:
    with Checkpoints(folder / "checkpoints", 5, INVENTED.name) as checkpoints:
        for step, value in ((1, THERE), (2, HERE)):
            checkpoints.save(step, {"params": jnp.zeros(1)}, {})
            checkpoints.record_evaluation(step, {INVENTED.name: value}, {})
        return checkpoints.best_step() == 2


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


CONSUMERS = final_table, best_checkpoint, training_curves, table_of_a_sweep


@pytest.mark.parametrize("shows", CONSUMERS, ids=lambda shows: shows.__name__)
def test_a_metric_of_the_registry_alone_is_shown_everywhere(shows, tmp_path, monkeypatch):
    for folder in ("without", "with"):
        (tmp_path / folder).mkdir()
    assert not shows(tmp_path / "without")  # the control
    entries = (*registry.REGISTRY["translations"], INVENTED)
    monkeypatch.setitem(registry.REGISTRY, "translations", entries)
    assert shows(tmp_path / "with")


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
