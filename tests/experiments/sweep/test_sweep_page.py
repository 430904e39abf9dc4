"""A sweep's page and pictures show its numbers, whatever these are, and need no other file."""

import html
import math
import re
import warnings

import numpy as np
import pytest
from matplotlib.image import imread

from experiments.results.figures import draw
from experiments.results.statistics import score_of
from experiments.results.systems import read_sweep
from experiments.results.table import build_tables
from experiments.results.tasks import bleu_of_sums
from experiments.sweep.sweep import write_results
from sweeps import write_trial

pytestmark = pytest.mark.full

PICTURES = ["scores.png", "curves.png", "lengths.png"]


def write_sweep(root, settings=3, seeds=(0, 1), **changes):
    """Trials of as many settings, each a little worse than the one before."""
    plan = [(i, seed) for i in range(settings) for seed in seeds]
    return [
        write_trial(
            root, n, {"model.architecture": f"k{i}", "seed": seed}, 0.1 + 0.04 * i, **changes
        )
        for n, (i, seed) in enumerate(plan)
    ]


def answer(trials, folder):
    """The files of the results, and the page."""
    paths = write_results("translation", trials, folder / "answer", "Positions", "python x", 0)
    return paths, (folder / "answer" / "index.html").read_text(encoding="utf-8")


def test_the_page_has_the_table_and_refers_to_nothing_outside_itself(tmp_path):
    trials = write_sweep(tmp_path)
    paths, text = answer(trials, tmp_path)
    assert [path.name for path in paths] == ["index.html", "results.md", "results.csv", *PICTURES]
    assert all(np.ptp(imread(path)[..., :3]) > 0.5 for path in paths[3:])
    assert "//" not in text.replace("<!doctype", "")
    assert {*re.findall(r"url\((.)", text)} <= {"#"}
    table = build_tables(read_sweep("translation", trials, 0))[0]
    cells = [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", text)]
    assert cells == [cell for row in table.rows for cell in row]
    assert re.findall(r"<tr( class=.*?)?>", text) == ["", ' class="baseline"', "", ""]


def test_figures_show_means_deviations_and_seeds(tmp_path):
    sweep = read_sweep("translation", write_sweep(tmp_path, seeds=(0, 1, 2)), 0)
    figures = draw(sweep)
    axes = figures["scores"][0].axes[0]
    assert axes.get_xlabel() == "BLEU"
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["architecture=k0 (baseline)", "architecture=k1", "architecture=k2"]
    for row, setting in enumerate(sweep.systems):
        spread = setting.over_seeds("test.bleu")
        mean, (low, high), _ = axes.containers[row].lines
        assert list(mean.get_xdata()) == [spread.mean]
        ends = [low.get_xdata()[0], high.get_xdata()[0]]
        np.testing.assert_allclose(ends, spread.mean + spread.deviation * np.array([-1, 1]))
        dots = [line for line in axes.lines if list(line.get_ydata()) == [row + 0.25] * 3]
        np.testing.assert_allclose(
            dots[0].get_xdata(), [run.score("test.bleu") for run in setting.runs]
        )
    loss, score = figures["curves"][0].axes
    assert (loss.get_ylabel(), score.get_ylabel()) == ("validation loss (nats)", "validation BLEU")
    steps, values = sweep.systems[1].curve("bleu")
    np.testing.assert_allclose(score.lines[1].get_xdata(), steps)
    np.testing.assert_allclose(score.lines[1].get_ydata(), values.mean(0))
    edges = score.collections[1].get_paths()[0].vertices[:, 1]
    deviation = values.std(0, ddof=1)
    np.testing.assert_allclose(edges.max(), (values.mean(0) + deviation).max())
    np.testing.assert_allclose(edges.min(), (values.mean(0) - deviation).min())


def test_scores_by_length_are_those_of_the_sentences_of_that_length(tmp_path):
    sweep = read_sweep("translation", write_sweep(tmp_path, seeds=(0,)))
    lengths = sweep.runs[0].lengths
    left, right = draw(sweep)["lengths"][0].axes
    labels = [label.get_text() for label in left.get_xticklabels()]
    low, high, count = map(int, re.fullmatch(r"(\d+)–(\d+)\n\((\d+)\)", labels[0]).groups())
    rows = np.flatnonzero((lengths >= low) & (lengths <= high))
    assert len(rows) == count
    assert sum(int(text.split("(")[1][:-1]) for text in labels) == len(lengths)
    counts = sweep.systems[1].runs[0].counts
    expected = score_of(counts["bleu"][rows], bleu_of_sums)
    np.testing.assert_allclose(left.lines[1].get_ydata()[0], expected)
    right_ones = counts["exact_match"][rows, 0]
    np.testing.assert_allclose(right.lines[1].get_ydata()[0], 100 * right_ones.mean())


@pytest.mark.parametrize(
    ("settings", "seeds", "changes"),
    [
        (1, (0,), {}),
        (2, (0, 1), {"test": {"bleu": math.nan, "exact_match": math.nan}}),
        (2, (0,), {"references": ["one"], "hypotheses": [" "]}),
    ],
    ids=["one trial", "not a number", "one sentence"],
)
def test_few_and_degenerate_scores_are_drawn_without_warnings(tmp_path, settings, seeds, changes):
    trials = write_sweep(tmp_path, settings, seeds, **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths, _ = answer(trials, tmp_path)
    assert [path.name for path in paths[3:]] == PICTURES
    for trial in trials:  # without evaluations there are no curves
        (trial.folder / "metrics.jsonl").unlink()
    paths, _ = answer(trials, tmp_path)
    assert [path.name for path in paths[3:]] == ["scores.png", "lengths.png"]
