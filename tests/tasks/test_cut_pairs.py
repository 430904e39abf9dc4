"""Held-out pairs of which a translator's loss counts only the beginning are reported."""

import math

import jax.numpy as jnp
import pytest

from runs import toy_config
from transformer.model.losses import TokenSums
from transformer.tasks.pair_scores import loss_scores
from transformer.tasks.translation import TranslationTask

SIZE = 4  # pairs of each split


def cut_lines(folder, max_length):
    task = TranslationTask(toy_config(folder, **{"model.max_length": max_length}))
    return task, [line for line in task.notes() if "of which the loss counts the first" in line]


def test_cut_pairs_are_counted_for_each_split_before_the_training(tmp_path):
    task, lines = cut_lines(tmp_path, max_length=5)
    expected = {}
    for split in ("validation", "test"):
        targets = [pair.target for pair in task.text.pairs[split]]
        lengths = [len(ids) for ids in task.predictor.target_tokenizer.encode(targets)]
        # With its end, a target of five tokens is too long.
        expected[split] = sum(length > 4 for length in lengths)
        assert (len(lengths), expected[split] > 0) == (SIZE, True)
    assert lines == [
        f"warning: {count} of {SIZE} pairs of {split} have a side of more than 4 tokens, of which "
        "the loss counts the first (model.max_length=5)"
        for split, count in expected.items()
    ]
    assert cut_lines(tmp_path, max_length=64)[1] == []  # the control


def test_bits_are_divided_by_bytes_and_an_end_for_each_target(tmp_path):
    translator = TranslationTask(toy_config(tmp_path)).predictor
    sums = [TokenSums(*map(jnp.float32, (0, nll, 0, 0))) for nll in (8, 3)]
    scores = loss_scores(sums, ["äé", "日本語です"], "first", translator)
    assert scores["bits_per_byte"] == pytest.approx(11 / math.log(2) / (4 + 1 + 15 + 1))
