"""Batches draw their segmentations by (seed, i) alone, within their buckets, and lose no text."""

import collections
import functools
import hashlib
import itertools
import math
import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from configs import base
from pair_corpus import prepare_corpus
from transformer.checks import check
from transformer.data.batches import Batch, BatchPlan
from transformer.data.pairs import Pair
from transformer.data.parallel.corpus import Corpus
from transformer.data.tokenizer import PAD_ID, Tokenizer, draws
from transformer.errors import UserError
from transformer.training.placement import prefetch

pytestmark = pytest.mark.full

RNG = random.Random(3)
WORDS = ["".join(RNG.choices("abcdefghij", k=RNG.randrange(2, 9))) for _ in range(120)]
LINES = [" ".join(RNG.choices(WORDS, k=RNG.randrange(2, 14))) for _ in range(240)]
PAIRS = [Pair(f"Ä {line}", f"{line[::-1]} ½ 🚀.") for line in LINES]
SAMPLED = [("bpe", 0.4), ("unigram", 0.2)]


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
    for ahead in (0, 7):
        stream = other.start_at(11, partial(prefetch, ahead))
        for i in range(11, 16):
            assert same(next(stream), plan[i])
    assert digest(plan, [3]) != digest(plan, [3 + plan.epoch_length])
    assert digest(plan, [3]) != digest(make_plan(corpus_of(kind, strength), seed=6), [3])


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


def test_dropout_draws_have_the_probabilities_of_the_algorithm(corpus_of):
    dropout = 0.3
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


def test_one_side_can_be_sampled_alone(corpus_of):
    corpus = corpus_of("bpe", 0.1, "target")
    found = rows(make_plan(corpus))
    best = {j: (corpus.source[j].tolist(), corpus.target[j].tolist()) for j in found}
    assert differing(found, best, 0) == 0 < 0.5 < differing(found, best, 1)


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


# -- refusals


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("sampling_alpha", 0.1, r"sampling_alpha=0\.1.*kind bpe.*sampling_alpha=0"),
        ("target_model", "x.model", r"target_model='x\.model'.*joint=False"),
    ],
)
def test_a_setting_of_another_kind_or_of_two_vocabularies_is_refused(tmp_path, key, value, says):
    with pytest.raises(UserError, match=says):
        check(settings(tmp_path, **{f"tokenizer.{key}": value}))
