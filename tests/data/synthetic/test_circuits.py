"""The toy sources have the structure that their circuits compute."""

import itertools

from transformer.data.synthetic import circuits

SIZES = {"train": 101, "validation": 11, "test": 7}


def test_the_second_half_of_a_sequence_repeats_the_first_after_offsets_that_vary():
    splits = circuits.repeat_sequences(5, SIZES)
    assert {split: len(texts) for split, texts in splits.items()} == SIZES
    sequences = [text.split() for text in itertools.chain(*splits.values())]
    halves = [(letters[: len(letters) // 2], letters[len(letters) // 2 :]) for letters in sequences]
    assert all(first == second and len({*first}) == len(first) for first, second in halves)
    assert {len(first) for first, _ in halves} == {*range(8, 25)}
    # Without induction, no position or letter says what follows.
    assert len({first[0] for first, _ in halves}) > 40
    followers = {after for first, _ in halves for a, after in itertools.pairwise(first) if a == "q"}
    assert len(followers) > 20


def test_sums_are_right_and_no_order_of_a_held_out_sum_is_trained(monkeypatch):
    monkeypatch.setattr(circuits, "MODULUS", 13)
    splits = circuits.add_numbers(5, {"train": 101, "validation": 2, "test": 3})
    items = list(itertools.chain(*splits.values()))
    pairs = [tuple(map(int, item.text.split(" + "))) for item in items]
    assert [(a + b) % 13 for a, b in pairs] == [int(item.label) for item in items]
    assert {number for pair in pairs for number in pair} == {*range(13)}
    assert len({*pairs}) == len(pairs) == 106
    held_out = {frozenset(pair) for pair in pairs[101:]}
    assert held_out.isdisjoint(map(frozenset, pairs[:101]))
    assert sum((b, a) in pairs[:101] for a, b in pairs[:101] if a != b) > 80  # both orders occur
