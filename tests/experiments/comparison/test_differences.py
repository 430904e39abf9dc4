"""Scores of counts are those of sacreBLEU, and a comparison tests as a sweep does."""

import numpy as np
import pytest
import sacrebleu

from experiments.comparison.differences import comparable, compare
from experiments.comparison.outputs import TASKS, Outputs
from experiments.comparison.systems import Run, System, read_systems
from experiments.measures.translations import (
    bleu_of_sums,
    chrf_of_sums,
    count_characters,
    count_ngrams,
)
from experiments.sweeps.results.outcomes import Trial
from experiments.sweeps.results.reading import read_sweep
from sweeps import classifier, sentences, translations, translator

REFERENCES = sentences(60)
OTHERS = [" ".join(reversed(text.split())) for text in REFERENCES]


def means(values):
    """Counts of texts whose mean is compared."""
    values = np.asarray(values, np.float64)
    return np.stack([values, np.ones_like(values)], 1)


@pytest.mark.parametrize("references", [[REFERENCES], [OTHERS, REFERENCES]])
@pytest.mark.parametrize("rows", [slice(None), slice(10, 17), slice(3, 4)])
def test_scores_of_counts_are_those_of_sacrebleu_for_any_part_of_the_corpus(references, rows):
    texts = translations(REFERENCES, 0.3, 0)
    texts[11] = ""
    parts = [own[rows] for own in references]
    for metric, count, of_sums in (
        (sacrebleu.CHRF(), count_characters, chrf_of_sums),
        (sacrebleu.BLEU(), count_ngrams, bleu_of_sums),
    ):
        expected = metric.corpus_score(texts[rows], parts).score
        sums = count(texts, references)[rows].sum(0, keepdims=True)
        np.testing.assert_allclose(of_sums(sums), [expected], rtol=1e-12)


def test_chrf_of_no_text_or_no_match_is_that_of_sacrebleu():
    for text, reference in (("", "a b"), ("a b", "x y"), ("", "")):
        expected = sacrebleu.sentence_chrf(text, [reference]).score
        assert chrf_of_sums(count_characters([text], [[reference]]))[0] == expected


def test_losses_of_a_token_need_the_same_tokens_and_bits_of_a_byte_do_not():
    measures = TASKS["language_model"].measures
    first = {"bits_per_byte": means([1.0, 2]), "nll": np.array([[3.0, 2], [4, 5]])}
    other = {**first, "nll": np.array([[3.0, 2], [4, 4]])}

    def models(*counts):
        lengths = np.ones(2, np.int64)
        return [
            System("x", [Run(None, {}, Outputs({}, {}, [], lengths, own), {})]) for own in counts
        ]

    assert comparable(measures, models(first, first)) == list(measures)
    assert comparable(measures, models(first, other)) == [measures[0]]


@pytest.mark.parametrize("task", ["translation", "classification"])
def test_a_sweep_and_a_comparison_of_the_same_runs_have_the_same_numbers(tmp_path, task):
    made = [
        classifier(tmp_path, n, range(n, 12 - n))
        if task == "classification"
        # Settings of two and of three seeds.
        else translator(tmp_path, n, 0.3 - 0.02 * n)
        for n in range(5)
    ]
    trials = [
        Trial(n, {"a.b": n > 1, "seed": n}, folder, "complete") for n, folder in enumerate(made)
    ]
    found = read_sweep(task, trials, baseline=0).comparisons[1]
    sides = "+".join(map(str, made[:2])), "+".join(map(str, made[2:]))
    _, systems = read_systems(",".join(sides), None)
    assert compare(TASKS[task].measures[0], systems).differences[1] == found
    assert found.has_interval
    assert found.seeds == (3, 2)
