"""Batch i is a function of (seed, i); an epoch is the corpus; little of it is padding."""

import itertools
from functools import partial

import numpy as np
import pytest

from transformer.data.batches import Batch, BatchPlan, make_batch, stack_rows
from transformer.data.buckets import Part, bucket_lengths, mix
from transformer.data.documents import Documents, TextPlan
from transformer.data.labelled import NO_LABEL, EncodedTexts, LabelledPlan, stack_labels
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID
from transformer.training.placement import prefetch


def make_store(lengths, rng) -> TokenStore:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return TokenStore(rng.integers(4, 97, offsets[-1]).astype(np.int32), offsets)


def make_plan(count=97, seed=5, longest=23, **changes) -> BatchPlan:
    """A plan over random sentences, which depend on their number alone."""
    rng = np.random.default_rng(11)
    source, target = (make_store(rng.integers(1, longest, count), rng) for _ in range(2))
    settings = {"tokens": 131, "num_buckets": 3, "multiple": 2, **changes}
    return BatchPlan(source, target, seed, **settings)


def make_texts(store: TokenStore, labels) -> EncodedTexts:
    arrays = {"tokens": store.tokens, "tokens_offsets": store.offsets, "labels": labels}
    return EncodedTexts(arrays, {})


def same(a: Batch, b: Batch) -> bool:
    return all(map(np.array_equal, a, b))


def epoch_indices(plan: BatchPlan, epoch: int) -> list[int]:
    first = epoch * plan.epoch_length
    return [j for i in range(first, first + plan.epoch_length) for j in plan.indices(i)[1]]


# -- batch i is a function of (seed, i)


@pytest.mark.parametrize(("ahead", "start"), [(0, 13), (1, 0), (7, 10**6)])
def test_batches_are_the_same_from_any_start_with_or_without_prefetch(start, ahead):
    plan = make_plan()
    stream = make_plan().start_at(start, partial(prefetch, ahead))
    for i in range(start, start + 11):
        assert same(next(stream), plan[i])
    assert not same(next(stream), plan[start])


@pytest.mark.parametrize("sentences", [1, 3, 8, 97])
@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_an_epoch_holds_each_sentence_exactly_once(sentences, epoch):
    plan = make_plan(sentences)
    assert sorted(epoch_indices(plan, epoch)) == list(range(sentences))


# -- one gather for each array


@pytest.mark.parametrize("changes", [{}, {"mixture": mix((20, 77), (3.0, 1.0), 1.0)}])
def test_a_batch_of_pairs_is_made_of_its_sentences_one_by_one(changes):
    plan = make_plan(**changes)
    for i in (*range(plan.epoch_length), 10**6):
        bucket, numbers = plan.indices(i)
        sides = [[side[j].tolist() for j in numbers] for side in (plan.source, plan.target)]
        expected = make_batch(*sides, bucket.rows, bucket.length)
        assert same(plan[i], expected)
        assert {array.dtype for array in plan[i]} == {np.dtype(np.int32)}
        assert not same(plan[i], make_batch(*sides[::-1], bucket.rows, bucket.length))  # control


def test_a_labelled_batch_is_made_of_its_texts_one_by_one():
    store = make_store(np.arange(97) % 13 + 1, np.random.default_rng(7))
    plan = LabelledPlan(make_texts(store, np.arange(97) % 5), 5, 64, 3, 2)
    for i in range(plan.epoch_length):
        bucket, numbers = plan.indices(i)
        texts = [store[j].tolist() for j in numbers]
        tokens = stack_rows(texts, bucket.rows, bucket.length)
        own = tokens, stack_labels([j % 5 for j in numbers], bucket.rows)
        for ours, theirs in zip(plan[i], own, strict=True):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype == np.int32
        assert len(numbers) == len(plan[i].labels) or plan[i].labels[-1] == NO_LABEL


def test_stacked_batches_are_the_batches_of_each_plan():
    kinds = zip(*(kinds_of_plans(97, seed, 32, 8) for seed in (1, 2, 3)), strict=True)
    plans = [[plan for _, plan, *_ in each] for each in kinds]
    plans.append([make_plan(seed=seed) for seed in (1, 2, 3)])
    plans.append([make_plan(seed=s, mixture=mix((20, 77), (3.0, 1.0), 1.0)) for s in (1, 2, 3)])
    for each in plans:
        for i in (0, 1, 10**6):
            stacked = each[0].stack(each, i)
            parts = [type(stacked)(*(array[n] for array in stacked)) for n in range(3)]
            assert all(same(part, plan[i]) for part, plan in zip(parts, each, strict=True))
            assert {array.dtype for array in stacked} == {np.dtype(np.int32)}
            assert not same(parts[0], parts[1])  # control: the seeds differ


def test_the_parts_of_processes_are_the_batch_with_padding_at_its_end(monkeypatch):
    plans = [plan for _, plan, *_ in kinds_of_plans(97, 1, 32, 8)]
    plans.append(make_plan(mixture=mix((20, 77), (3.0, 1.0), 1.0)))
    plans += [plan for _, plan, *_ in kinds_of_plans(5, 1, 3, 1)]  # some processes have no rows
    gathered = []
    gather = BatchPlan.gather
    monkeypatch.setattr(
        BatchPlan, "gather", lambda plan, n, *a: gathered.append(len(n)) or gather(plan, n, *a)
    )
    for plan in plans:
        for i in (0, 1, 10**6):
            whole = plan[i]
            rows = len(whole[0])
            for parts in ([Part(0, 3, 7), Part(3, 7, 7)], [Part(k, k + 1, 5) for k in range(5)]):
                gathered.clear()
                made = [plan.part(i, part) for part in parts]
                each = -(-rows // parts[-1].groups)
                assert [len(own[0]) for own in made] == [each * (p.end - p.first) for p in parts]
                assert sum(gathered) in (0, each * parts[-1].groups)  # each makes its rows alone
                joined = type(whole)(*map(np.concatenate, zip(*made, strict=True)))
                assert same(type(whole)(*(array[:rows] for array in joined)), whole)
                assert not any(array[rows:].any() for array in joined)
                assert same(
                    joined,
                    type(whole)(*map(Part(0, parts[-1].groups, parts[-1].groups).cut, whole)),
                )


# -- buckets


def positions(lengths, bounds) -> int:
    return sum(min(bound for bound in bounds if bound >= length) for length in lengths)


NO_LEAST = np.zeros(12, int)


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_bucket_lengths_need_as_few_positions_as_the_best_of_all_choices(seed, least):
    rng = np.random.default_rng(seed)
    longest, count = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    lengths = rng.integers(1, longest + 1, int(rng.integers(1, 30)))
    longest = lengths.max()
    fewest = -(-rng.integers(4, 20) // np.arange(1, longest + 1)) if least else NO_LEAST[:longest]
    bounds = bucket_lengths(lengths, count, fewest)
    choices = [
        (*inner, longest)
        for k in range(min(count, longest))
        for inner in itertools.combinations(range(1, longest), k)
    ]

    def has_enough(choice):
        held = np.bincount(np.searchsorted(choice, lengths), minlength=len(choice))
        return all(held >= fewest[np.array(choice) - 1])

    allowed = [choice for choice in choices if has_enough(choice)] or [(longest,)]
    assert tuple(bounds) in allowed or not least
    assert positions(lengths, bounds) == min(positions(lengths, choice) for choice in allowed)
    assert bounds == sorted(set(bounds))
    assert len(bounds) <= count
    assert bounds[-1] == longest


@pytest.mark.parametrize("sentences", [3, 500])
def test_padding_fraction_is_what_a_whole_epoch_holds(sentences):
    plan = make_plan(sentences)
    batches = [plan[i] for i in range(plan.epoch_length)]
    read = [array for batch in batches for array in (batch.source, batch.target)]
    share = sum((array == PAD_ID).sum() for array in read) / sum(array.size for array in read)
    assert plan.padding_fraction == pytest.approx(share, abs=1e-12)
    assert 0 < share < 1


@pytest.mark.parametrize(("multiple", "cap"), [(1, 0), (2, 5), (8, 5), (8, 20)])
def test_batches_have_few_shapes_within_the_budget(multiple, cap):
    tokens = 251
    plan = make_plan(500, tokens=tokens, multiple=multiple, sentences=cap)
    shapes = {tuple(a.shape for a in plan[i]) for i in range(2 * plan.epoch_length)}
    assert shapes == {((b.rows, b.length),) * 3 for b in plan.buckets}
    assert len(shapes) <= 3
    for bucket in plan.buckets:
        least = min(multiple, cap or multiple)
        assert bucket.rows % least == 0
        assert bucket.rows == least or bucket.rows * bucket.length <= tokens
        assert not cap or bucket.rows <= cap
    if not cap:  # and the budget is used
        assert max(b.rows * b.length for b in plan.buckets) > 0.7 * tokens


def kinds_of_plans(count, seed, rows, multiple):
    """Plans over `count` things of one length, of which `rows` fit into a batch, by kind.

    With each a function from a batch's number to what it holds.
    """
    store = make_store([6] * count, np.random.default_rng(11))
    settings = {"tokens": rows * 7, "num_buckets": 1, "multiple": multiple}
    pairs = BatchPlan(store, store, seed, **settings)
    texts = make_texts(store, np.arange(count) % 2)
    labelled = LabelledPlan(texts, seed, **{**settings, "tokens": rows * 6})
    one = make_store([6 * (count + 1)], np.random.default_rng(11))
    running = Documents({"tokens": one.tokens, "tokens_offsets": one.offsets}, {}, whole=True)
    packed = TextPlan(running, seed, rows, 6)
    yield "pairs", pairs, lambda i: len(pairs.indices(i)[1])
    yield "labelled", labelled, lambda i: int((labelled[i].labels > 0).sum())
    yield "packed", packed, lambda i: int((packed[i].segments[:, 0] > 0).sum())


@pytest.mark.parametrize(("rows", "multiple"), [(8, 1), (32, 8)])
def test_batches_of_any_plan_hold_as_many_sentences_as_one_another(rows, multiple):
    for count in (1, 2, 7, 8, 9, 32, 33, 65, 97, 257):
        for kind, plan, held in kinds_of_plans(count, 5, rows, multiple):
            for epoch in (0, 3):
                first = epoch * plan.epoch_length
                sizes = [held(first + i) for i in range(plan.epoch_length)]
                assert sum(sizes) == count, kind
                assert max(sizes) - min(sizes) <= 1, (kind, count, sizes)
                assert max(sizes) <= rows
                assert len(sizes) == -(-count // rows)  # and there are no more of them


# -- arrays


def test_make_batch_shifts_the_target_by_one():
    batch = make_batch([[7, 8], [9]], [[5], [6, 7, 8]], rows=3, length=4)
    assert batch.source.tolist() == [[7, 8, EOS_ID, 0], [9, EOS_ID, 0, 0], [0, 0, 0, 0]]
    assert batch.target.tolist() == [[BOS_ID, 5, 0, 0], [BOS_ID, 6, 7, 8], [0, 0, 0, 0]]
    assert batch.labels.tolist() == [[5, EOS_ID, 0, 0], [6, 7, 8, EOS_ID], [0, 0, 0, 0]]
    assert {array.dtype for array in batch} == {np.dtype(np.int32)}
