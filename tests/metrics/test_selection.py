"""What the best evaluation is, where the metric says nothing."""

import pytest

from runs import Unigrams, lines, make_trainer, unigram_config
from transformer.runs.checkpoint import Checkpoints
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
