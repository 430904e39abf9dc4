"""Scores of counts are those of sacreBLEU, and a comparison tests as a sweep does."""

import numpy as np
import pytest
import sacrebleu

from experiments.results.runs import read_systems
from experiments.results.systems import SweepTrial, read_sweep
from experiments.results.tasks import bleu_of_sums, chrf_of_sums
from sweeps import sentences, translations, translator
from transformer.metrics.text import corpus_scores

REFERENCES = sentences(60)
OTHERS = [" ".join(reversed(text.split())) for text in REFERENCES]


@pytest.mark.parametrize("references", [[REFERENCES], [OTHERS, REFERENCES]])
@pytest.mark.parametrize("rows", [slice(None), slice(11, 12)])
def test_scores_of_counts_are_those_of_sacrebleu_for_any_part_of_the_corpus(references, rows):
    texts = translations(REFERENCES, 0.3, 0)
    texts[11] = ""
    parts = [own[rows] for own in references]
    first, *further = references
    counts = corpus_scores(texts, first, further=further, final=True)["counts"]
    for name, metric, of_sums in (
        ("chrf", sacrebleu.CHRF(), chrf_of_sums),
        ("bleu", sacrebleu.BLEU(), bleu_of_sums),
    ):
        expected = metric.corpus_score(texts[rows], parts).score
        sums = counts[name][rows].sum(0, keepdims=True)
        np.testing.assert_allclose(of_sums(sums), [expected], rtol=1e-12)


def test_a_sweep_and_a_comparison_of_the_same_runs_have_the_same_numbers(tmp_path):
    # Settings of two and of three seeds.
    made = [translator(tmp_path, n, 0.3 - 0.02 * n) for n in range(5)]
    trials = [
        SweepTrial(n, {"a.b": n > 1, "seed": n}, folder, "complete")
        for n, folder in enumerate(made)
    ]
    found = read_sweep("translation", trials, baseline=0).main_differences[1]
    sides = "+".join(map(str, made[:2])), "+".join(map(str, made[2:]))
    comparison = read_systems(",".join(sides), None)
    assert comparison.main_differences[1] == found
    assert found.has_interval
    assert found.seeds == (3, 2)
