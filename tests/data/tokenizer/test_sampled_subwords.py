"""Batches draw their segmentations by (seed, i) alone, within their buckets, and lose no text."""

import collections
import concurrent.futures
import functools
import hashlib
import itertools
import math
import random
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax
import numpy as np
import pytest

from configs import base
from transformer.config import check
from transformer.data.buckets import mix
from transformer.data.pairs import Pair
from transformer.data.parallel.batches import Batch, BatchPlan
from transformer.data.parallel.encode import Corpus, prepare_corpus
from transformer.data.token_store import StoreWriter, TextStore
from transformer.data.tokenizer import PAD_ID, Tokenizer, draws
from transformer.devices.placement import VmappedRuns
from transformer.errors import UserError

pytestmark = pytest.mark.full

RNG = random.Random(3)
WORDS = ["".join(RNG.choices("abcdefghij", k=RNG.randrange(2, 9))) for _ in range(120)]
LINES = [" ".join(RNG.choices(WORDS, k=RNG.randrange(2, 14))) for _ in range(240)]
PAIRS = [Pair(f"Ä {line}", f"{line[::-1]} ½ 🚀.") for line in LINES]
SAMPLED = [("bpe", 0.1), ("bpe", 0.4), ("unigram", 0.2)]


def settings(folder, kind="bpe", strength=0.0, **changes):
    config = base.get_config()
    config.data.cache_dir = str(folder)
    config.data.max_length_ratio = 100.0
    tokenizer = config.tokenizer
    tokenizer.kind, tokenizer.vocab_size, tokenizer.byte_fallback = kind, 420, True
    tokenizer[draws.KEYS.get(kind, "bpe_dropout")] = strength
    config.update_from_flattened_dict(changes)
    return config


def prepare(folder, kind="bpe", strength=0.0, pairs=PAIRS, **changes) -> Corpus:
    config = settings(folder, kind, strength, **changes)
    return prepare_corpus(pairs, config.data, config.tokenizer)


@functools.cache
def cached_corpus(folder: Path, kind: str, strength: float, sides: str = "both") -> Corpus:
    return prepare(folder, kind, strength, **{"tokenizer.sampling_sides": sides})


@pytest.fixture(scope="module")
def corpus_of(tmp_path_factory):
    return functools.partial(cached_corpus, tmp_path_factory.mktemp("cache"))


def make_plan(corpus: Corpus, seed=5, buckets=3, **changes) -> BatchPlan:
    rest = {"tokens": 1024, "num_buckets": buckets, "multiple": 2, **changes}
    return BatchPlan(corpus.source, corpus.target, seed, **rest, sampler=corpus.sampler)


def same(a: Batch, b: Batch) -> bool:
    return all(map(np.array_equal, a, b))


def digest(plan: BatchPlan, numbers: Iterable[int]) -> str:
    return hashlib.sha256(
        b"".join(array.tobytes() for i in numbers for array in plan[i])
    ).hexdigest()


def rows(plan: BatchPlan, epoch=0) -> dict[int, tuple[list[int], list[int]]]:
    """The source and the target of each sentence in an epoch, without their ends."""
    found = {}
    for i in range(epoch * plan.epoch_length, (epoch + 1) * plan.epoch_length):
        batch = plan[i]
        for j, source, labels in zip(plan.indices(i)[1], batch.source, batch.labels, strict=False):
            found[j] = tuple(ids[ids > PAD_ID].tolist()[:-1] for ids in (source, labels))
    return found


def differing(a: dict, b: dict, side: int) -> float:
    return float(np.mean([a[j][side] != b[j][side] for j in a]))


# -- a function of (seed, i)


@pytest.mark.parametrize(("kind", "strength"), SAMPLED)
def test_a_resumed_run_draws_the_same_whatever_it_read_before(kind, strength, corpus_of):
    plan, other = (make_plan(corpus_of(kind, strength)) for _ in range(2))
    for prefetch in (0, 7):
        stream = other.start_at(11, prefetch)
        for i in range(11, 16):
            assert same(next(stream), plan[i])
    assert digest(plan, [29, 3]) == digest(other, [29, 3])
    assert digest(plan, [3]) != digest(plan, [3 + plan.epoch_length])
    assert digest(plan, [3]) != digest(make_plan(corpus_of(kind, strength), seed=6), [3])


def test_threads_that_draw_at_once_do_not_disturb_each_other(corpus_of):
    plan = make_plan(corpus_of("bpe", 0.4))
    numbers = list(range(12)) * 2
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: digest(plan, [i]), numbers))
    assert found == [digest(plan, [i]) for i in numbers]


def test_a_text_of_a_small_corpus_that_an_epoch_repeats_has_a_new_draw_each_time(corpus_of):
    sampled = corpus_of("bpe", 0.4)
    sizes = (20, len(sampled.source) - 20)
    plan = make_plan(sampled, mixture=mix(sizes, (20.0, 1.0), 1.0))
    drawn = collections.defaultdict(set)
    times = collections.Counter()
    for i in range(plan.epoch_length):
        for j, source in zip(plan.indices(i)[1], plan[i].source, strict=False):
            if j < sizes[0]:
                drawn[j].add(source[source > PAD_ID].tobytes())
                times[j] += 1
    assert min(times.values()) >= 4
    assert np.mean([len(drawn[j]) / times[j] for j in times]) > 0.8


def test_shapes_agree_across_seeds_so_that_several_runs_are_one_program(corpus_of):
    plans = [make_plan(corpus_of("unigram", 0.2), seed=seed) for seed in (1, 2, 3)]
    stacked = VmappedRuns(jax.devices(), len(plans)).batches(plans, 4, 0)
    for i in range(4, 9):
        batch = next(stacked)
        assert [same(Batch(*(x[n] for x in batch)), p[i]) for n, p in enumerate(plans)] == [
            True
        ] * 3


# -- what is drawn


@pytest.mark.parametrize(("kind", "strength"), SAMPLED)
def test_every_draw_is_another_spelling_of_the_same_text(kind, strength, corpus_of):
    sampled, plain = corpus_of(kind, strength), corpus_of(kind, 0.0)
    first, second = (rows(make_plan(sampled), epoch) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(len(PAIRS)))
    for j, sides in first.items():
        for side, ids in enumerate(sides):
            best = (plain.source, plain.target)[side][j]
            assert sampled.source_tokenizer.decode(ids) == plain.source_tokenizer.decode(best)
    for side, store in enumerate((plain.source, plain.target)):
        best = {j: {side: store[j].tolist()} for j in first}
        for a, b in ((first, best), (first, second)):
            assert differing(a, b, side) > 0.5
    # The text as the model reads it, and of what is held out, stays as it is.
    for side in ("source", "target"):
        assert np.array_equal(getattr(sampled, side).tokens, getattr(plain, side).tokens)


def test_without_sampling_nothing_is_kept_or_drawn_and_batches_are_as_ever(tmp_path):
    zero = prepare(tmp_path, "bpe", 0.0)
    before = sorted(tmp_path.rglob("*"))
    assert zero.sampler is None
    plain = BatchPlan(zero.source, zero.target, 5, 1024, 3, 2)
    assert digest(make_plan(zero), range(20)) == digest(plain, range(20))
    assert not [path for path in before if "text" in path.name or "drawn" in path.name]
    # The same tokenizer and the same best segmentation are those of a sampled run.
    sampled = prepare(tmp_path, "bpe", 0.1)
    assert sampled.source_tokenizer.model == zero.source_tokenizer.model
    assert len([*tmp_path.glob("*.model")]) == 1
    tokenizer = sampled.source_tokenizer
    text = tokenizer.normalize(PAIRS[3].source)
    assert tokenizer.sample(text, 0.0, RNG.random) == zero.source[3].tolist()


def test_a_dropout_of_one_leaves_characters(corpus_of):
    plan, tokenizer = make_plan(corpus_of("bpe", 1.0)), corpus_of("bpe", 1.0).source_tokenizer
    for j, (source, _) in rows(plan).items():
        assert tokenizer.pieces(source) == [*("▁" + PAIRS[j].source.replace(" ", "▁"))]


def dropped(scores: dict[str, int], word: str, dropout: float) -> tuple[str, ...]:
    """Algorithm 1 of Provilkov et al. 2020, step by step."""
    pieces = list(word)
    while True:
        merges = [(scores[a + b], -i) for i, (a, b) in enumerate(itertools.pairwise(pieces))
                  if a + b in scores and RNG.random() >= dropout]  # fmt: skip
        if not merges:
            return tuple(pieces)
        i = -max(merges)[1]
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_draws_have_the_probabilities_of_the_algorithm(dropout, corpus_of):
    tokenizer = corpus_of("bpe", 0.4).source_tokenizer
    word = max(" ".join(LINES).split(), key=lambda word: len(tokenizer.encode([word])[0]) == 1)
    text, count = tokenizer.normalize(word), 4000
    scores = {tokenizer.pieces([i])[0]: -i for i in range(4 + 256, tokenizer.vocab_size)}
    drawn = collections.Counter(
        tuple(tokenizer.pieces(tokenizer.sample(text, dropout, RNG.random))) for _ in range(count)
    )
    wanted = collections.Counter(dropped(scores, text, dropout) for _ in range(count))
    assert len(wanted) > 3
    differences = [abs(drawn[key] - wanted[key]) for key in {*drawn, *wanted}]
    assert sum(differences) / (2 * count) < 0.04 * math.sqrt(len(wanted))


def test_unigram_draws_follow_the_probabilities_of_the_segmentations(corpus_of):
    tokenizer = corpus_of("unigram", 0.2).source_tokenizer
    text = tokenizer.normalize(LINES[0])
    counts = [
        len({tuple(tokenizer.sample(text, alpha, RNG.random)) for _ in range(200)})
        for alpha in (0.01, 0.5, 100.0)
    ]
    assert counts[0] > counts[1] > counts[2] == 1
    assert tokenizer.sample(text, 100.0, RNG.random) == tokenizer.encode([LINES[0]])[0]


@pytest.mark.parametrize("sides", ["source", "target"])
def test_one_side_can_be_sampled_alone(sides, corpus_of):
    corpus = corpus_of("bpe", 0.1, sides)
    found = rows(make_plan(corpus))
    best = {j: (corpus.source[j].tolist(), corpus.target[j].tolist()) for j in found}
    shares = [differing(found, best, side) for side in (0, 1)]
    assert shares[sides == "source"] == 0 < 0.5 < shares[sides == "target"]


# -- lengths


def test_draws_of_each_length_are_as_frequent_in_batches_as_free_draws(tmp_path, monkeypatch):
    def sample(tokenizer, text, strength, uniform):
        return [5] * (len(text) + int(8 * uniform()))

    monkeypatch.setattr(Tokenizer, "sample", sample)
    pairs = [Pair(f"{i % 7 * 'a'} {i}", f"{i % 5 * 'b'} {i}") for i in range(1000, 1900)]
    plan = make_plan(prepare(tmp_path, strength=0.1, pairs=pairs), buckets=8)
    added = [[], []]
    for epoch in range(2):
        for j, sides in rows(plan, epoch).items():
            for side, ids in enumerate(sides):
                added[side].append(len(ids) - len(plan.sampler.texts[side][j]) - 1)
    for own in added:
        counts = np.array([own.count(length) for length in range(8)])
        assert counts / len(own) == pytest.approx(np.full(8, 1 / 8), abs=0.03)


@pytest.mark.parametrize(("kind", "strength"), SAMPLED)
def test_padding_stays_low_and_is_what_the_batches_hold(kind, strength, corpus_of):
    plan, plain = make_plan(corpus_of(kind, strength)), make_plan(corpus_of(kind, 0.0))
    assert plan.padding_fraction < plain.padding_fraction + 0.15
    batches = [plan[i] for i in range(plan.epoch_length)]
    real = [array for batch in batches for array in (batch.source, batch.labels)]
    empty = sum((a == PAD_ID).sum() for a in real) / sum(a.size for a in real)
    assert plan.padding_fraction == pytest.approx(empty, abs=0.04)


def test_a_pair_with_a_draw_of_more_than_max_tokens_is_read_as_it_is(tmp_path):
    corpus = prepare(tmp_path, "bpe", 0.4, **{"data.max_tokens": 50})
    free = prepare(tmp_path, "bpe", 0.4, pairs=PAIRS).sampler
    plan, best = make_plan(corpus), [*zip(corpus.source, corpus.target, strict=True)]
    for epoch in range(2):
        found = rows(plan, epoch)
        too_long = np.flatnonzero(free.drawn[:, epoch].max(axis=0) + 1 > 50)
        assert 0 < len(too_long) < len(found) / 2
        unchanged = [all(map(np.array_equal, found[j], best[j])) for j in too_long]
        assert np.mean(unchanged) > 0.3
        assert max(len(ids) for sides in found.values() for ids in sides) + 1 <= 50


def test_max_tokens_is_of_the_best_segmentation(tmp_path):
    limit = {"data.max_tokens": 30}
    kept = [prepare(tmp_path, "bpe", strength, **limit).report for strength in (0.0, 0.4)]
    assert kept[0] == kept[1]
    assert kept[0].too_many_tokens > 0


def test_texts_to_draw_of_are_not_held_in_memory(tmp_path):
    texts = [f"{i} " * 250 for i in range(1000, 1100)]
    writer = StoreWriter(tmp_path, np.uint8)
    tracemalloc.start()
    for _ in range(20):
        writer.add([text.encode() for text in texts])
    store = TextStore(*writer.arrays("text").values())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [store[i] for i in range(2000)] == texts * 20
    assert peak < 0.4 * len(store.bytes)  # a part, and eight bytes of each text


# -- refusals


def refusal(config) -> str:
    with pytest.raises(UserError) as error:
        check(config)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bpe_dropout": 0.1, "kind": "unigram"}, ["bpe_dropout=0.1", "kind unigram", "alpha"]),
        ({"sampling_alpha": 0.1}, ["sampling_alpha=0.1", "kind bpe", "tokenizer.bpe_dropout"]),
        ({"bpe_dropout": 0.1, "kind": "word"}, ["bpe_dropout=0.1", "kind word", "=0"]),
        ({"bpe_dropout": 1.1}, ["tokenizer.bpe_dropout=1.1", "from 0 to 1"]),
        ({"sampling_sides": "left"}, ["sampling_sides='left'", "both, source, target"]),
        ({"target_model": "x.model"}, ["target_model='x.model'", "joint=False"]),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(changes: dict, says: Sequence[str], tmp_path):
    config = settings(tmp_path)
    config.tokenizer.update(changes)
    message = refusal(config)
    assert all(part in message for part in says), message


@pytest.mark.parametrize("task", ["language_model", "classification"])
def test_tasks_that_sample_nothing_say_so(task, tmp_path):
    config = settings(tmp_path, "bpe", 0.1)
    check(config)
    config.task, config.train.best_metric = task, "loss"
    assert "tokenizer.bpe_dropout=0.1 is for config.task=translation" in refusal(config)
