"""What the best evaluation is, where the metric says nothing."""

import json

import pytest

from experiments.display.training_curves import build_figure, read_curves
from runs import Unigrams, lines, make_trainer, unigram_config
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.workdir import find_trials
from transformer.training.run import TrainingRun


@pytest.mark.parametrize(
    "metric", ["bleu", pytest.param("word_perplexity", marks=pytest.mark.full)]
)
@pytest.mark.parametrize(
    ("values", "losses", "end", "best"),
    [
        ((0, 0, 0, 0, 0), (5, 4, 3, 2, 1), 5, 5),  # nothing but the loss tells
        ((0, 0, 0, 0, 0), (1, 4, 3, 2, 1), 3, 1),  # nor does that
        ((3, 3, 3, 3, 3), (5, 4, 6, 7, 8), 4, 2),
        ((2, 1, 1, 1, 1), (5, 4, 3, 2, 1), 5, 1),  # the constant is not the best
        ((4, 3, 2, 1, 0.5), (5, 4, 3, 2, 1), 3, 1),  # as ever
        ((1, 2, 1.5, 3, 3.5), (1, 2, 3, 4, 5), 5, 5),  # whatever the loss is
    ],
)
def test_ties_are_broken_by_the_loss_and_what_says_nothing_costs_no_patience(
    metric, values, losses, end, best, tmp_path
):
    sign = -1 if metric == "word_perplexity" else 1
    scores = [{metric: sign * v, "loss": x} for v, x in zip(values, losses, strict=True)]
    changes = {"train.steps": 5, "train.evaluate_every": 1, "train.patience": 2}
    config = unigram_config(**changes, **{"train.best_metric": metric, "train.keep_last": 1})
    trainer = make_trainer(TrainingRun(Unigrams(scores), config, tmp_path))
    assert trainer.run()
    assert lines(tmp_path, "validation")[-1]["step"] == end
    assert trainer.runs[0].progress.best_step == best
    with Checkpoints(tmp_path / "checkpoints", best_metric=metric, read_only=True) as checkpoints:
        assert checkpoints.best_step() == best
        assert checkpoints.steps() == sorted({best, end})


def test_lists_of_trials_and_training_curves_name_the_same_best(tmp_path):
    config = json.dumps({"train": {"best_metric": "bleu"}})
    evaluations = [{"bleu": 0.0, "loss": loss} for loss in (3.0, 1.0, 2.0)]
    for number, scores in enumerate(evaluations):
        place = tmp_path / f"trials/{number:03d}"
        place.mkdir(parents=True)
        (place / "config.json").write_text(config)
        (place / "results.json").write_text(json.dumps({"validation": scores}))
    assert [trial.folder.name for trial in find_trials(tmp_path)] == ["001", "002", "000"]
    events = [{"step": n, "split": "validation", **own} for n, own in enumerate(evaluations, 1)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, events)))
    figure = build_figure(read_curves(tmp_path / "metrics.jsonl"), "file")
    labels = [text.get_text() for axes in figure.axes for text in axes.get_legend().get_texts()]
    assert "validation BLEU (best 0.00 at step 2)" in labels
