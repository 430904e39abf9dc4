"""Held-out pairs of which a translator's loss counts only the beginning are reported."""

from runs import toy_config
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
