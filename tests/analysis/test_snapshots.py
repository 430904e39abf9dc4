"""What is tracked of a model is what it attends to, in every task, by one program of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from runs import toy_config
from task_runs import text_config
from transformer import tasks
from transformer.analysis.alignment import (
    GoldLinks,
    Words,
    alignment_scores,
    most_attended,
    word_weights,
)
from transformer.analysis.attention import BatchAttention
from transformer.analysis.snapshots import (
    HeadSnapshots,
    LinkedPair,
    Snapshot,
    divide,
)
from transformer.tasks.translation import TranslationTask

NOTHING = Snapshot({}, {})
VALIDATION, TRACKED = 11, 7
TRANSLATOR = {"evaluate.snapshot_statistics": TRACKED, "data.validation_size": VALIDATION}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def translator(cache, **changes) -> TranslationTask:
    return TranslationTask(toy_config(cache, **{**TRANSLATOR, **changes}))


def task_of_texts(name):
    def make(cache, **changes):
        changes = {"evaluate.snapshot_statistics": 5, **changes}
        return tasks.REGISTRY[name](text_config(name, cache / name, **changes))

    return make


MAKE = {
    "translation": translator,
    **{name: task_of_texts(name) for name in ("language_model", "classification")},
}
KINDS = {
    "translation": {"encoder_self", "decoder_self", "cross"},
    "language_model": {"decoder_self"},
    "classification": {"encoder_self"},
}


def fresh(task):
    """Random parameters, without a program to draw them."""
    rng = np.random.default_rng(3)
    shapes = task.predictor.param_shapes()
    return jax.tree.map(lambda x: rng.normal(0.0, 0.3, x.shape).astype(np.float32), shapes)


def statistics(snapshot: Snapshot) -> dict[str, np.ndarray]:
    start = "statistics/"
    return {k.removeprefix(start): v for k, v in snapshot.arrays.items() if k.startswith(start)}


# -- of each task


@pytest.fixture(scope="module", params=MAKE)
def tracked(request, cache):
    """The name of a task, the task, its parameters, and the snapshot of them."""
    task = MAKE[request.param](cache, **{"evaluate.snapshot_sentences": TRACKED})
    params = fresh(task)
    return request.param, task, params, task.snapshot(params)


def test_the_kinds_of_a_task_are_tracked_and_numbers_are_means_over_heads(tracked):
    name, _, _, snapshot = tracked
    of_heads = statistics(snapshot)
    named = {key: tuple(key.split("/")) for key in of_heads}
    assert {kind for kind, _ in named.values()} == KINDS[name]
    for kind in KINDS[name]:
        own = {statistic for other, statistic in named.values() if other == kind}
        assert own >= {"relative_entropy", "diagonality"}
    logged = {pair for pair in named.values() if pair[1] not in ("precision", "recall")}
    assert snapshot.numbers.keys() == {f"{statistic}_{kind}" for kind, statistic in logged}
    for key, values in of_heads.items():
        assert values.shape == (1, 2), key
        kind, statistic = named[key]
        if statistic not in ("aer", "precision", "recall"):
            assert snapshot.numbers[f"{statistic}_{kind}"] == pytest.approx(values.mean())


def test_what_is_kept_is_what_the_model_attends_to_where_it_may(tracked):
    _, task, params, snapshot = tracked
    [batch, *_] = task.head_snapshot._batches
    source, target = (jax.tree.leaves(batch) * 2)[:2]
    found = jax.jit(task.predictor.batch_attention)({"params": params}, batch)
    for kind, own in found.items():
        queries = (source if kind == "encoder_self" else target) != 0
        seen = np.asarray(own.weights > 0).all(axis=(0, 2)) & queries[..., None]
        np.testing.assert_array_equal(seen, own.mask)
        for n in range(min(5, len(source))):
            kept = snapshot.arrays[f"sentences/{n}/weights/{kind}"]
            length, width = kept.shape[2:]
            np.testing.assert_allclose(kept, own.weights[:, n, :, :length, :width], atol=1e-6)
            np.testing.assert_allclose(kept.sum(axis=-1), 1.0, atol=1e-5)
            norms = snapshot.arrays[f"sentences/{n}/value_norms/{kind}"]
            np.testing.assert_allclose(norms, own.value_norms[:, n, :, :width], rtol=1e-5)


def test_tokens_are_those_that_the_model_reads(tracked):
    name, _, _, snapshot = tracked
    source, target = (
        snapshot.arrays[f"sentences/1/{side}_tokens"] for side in ("source", "target")
    )
    if name == "translation":
        assert source[-1] == "</s>"
        assert target[0] == "<s>"
        assert source[:-1].tolist() == target[1:].tolist()  # it copies
    else:
        tokens, empty = (target, source) if name == "language_model" else (source, target)
        assert tokens[0] == "<s>"
        assert len(tokens) > 1
        assert all(token.startswith("▁") for token in tokens[1:])
        assert len(empty) == 0


@pytest.mark.parametrize("name", ["translation", "language_model"])
def test_the_lens_of_the_last_layer_has_the_loss_of_the_tracked_texts(name, cache):
    task = MAKE[name](cache, **{"evaluate.snapshot_lens": True, "model.num_decoder_layers": 2})
    params = fresh(task)
    losses = statistics(task.snapshot(params))["decoder_self/lens"]
    assert losses.shape == (2, 1)
    run = jax.jit(task.held_out_sums)
    sums = [run({"params": params}, batch) for batch in task.head_snapshot._batches]
    loss = float(sum(x.nll for x in sums) / sum(x.weight for x in sums))
    assert losses[1, 0] == pytest.approx(loss, rel=1e-5)
    assert losses[0, 0] != pytest.approx(loss, rel=1e-3)  # control


# -- of translators


def test_nothing_is_tracked_where_none_is_asked_for_or_there_is_no_attention(cache):
    for make in MAKE.values():
        task = make(cache, **{"evaluate.snapshot_statistics": 0})
        assert task.snapshot({}) == NOTHING
    task = MAKE["classification"](cache, **{"model.architecture": "bag_of_embeddings"})
    assert task.snapshot(fresh(task)) == NOTHING


# -- by one program


class Fixed:
    """Stands for a model whose heads look as its variables say; counts how often it is traced."""

    traced = 0

    def __call__(self, variables, batch):
        self.traced += 1
        layers, heads, rows = 2, 3, len(batch)
        weights = jnp.broadcast_to(variables, (layers, rows, heads, *variables.shape))
        mask = jnp.broadcast_to(batch[:, None, None], (rows, *variables.shape))
        ends = jnp.arange(rows)[:, None] == jnp.arange(variables.shape[1])
        return {"cross": BatchAttention(weights, None, mask, ends)}


def test_all_batches_of_all_evaluations_are_one_program():
    model = Fixed()
    snapshot = HeadSnapshots(model, [np.ones(2, bool), np.array([True, False])], [])
    for share in (0.5, 0.25):
        found = snapshot(jnp.array([[share, 1 - share]] * 3))
        # The first text of each batch ends at the first key, the second one's at the second.
        ends = (share + (1 - share) + share) / 3
        np.testing.assert_allclose(found.arrays["statistics/cross/end_fraction"], ends, rtol=1e-6)
    assert model.traced == 1


def test_heads_are_scored_against_the_links_of_their_own_sentence():
    # Rows <s>, x, y; columns a, b, </s>: x is linked to b and y to a.
    crossed = np.array([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.3, 0.3, 0.4]], np.float32)
    words = Words(np.arange(2), 2)
    pairs = [LinkedPair(words, words, GoldLinks(gold)) for gold in ([(1, 0), (0, 1)], [(0, 0)])]
    found = HeadSnapshots(Fixed(), [np.array([True]), np.array([True])], [], pairs)(crossed)
    links = [most_attended(word_weights(crossed, words, words))] * 2
    scores = alignment_scores(links, [pair.gold for pair in pairs])
    # Of four links two are right, of three true ones two are found.
    assert scores.error_rate == pytest.approx(1 - (2 + 2) / (4 + 3))
    np.testing.assert_allclose(
        found.arrays["statistics/cross/aer"], np.full((2, 3), 3 / 7), rtol=1e-6
    )
    np.testing.assert_allclose(found.arrays["statistics/cross/precision"], 1 / 2)
    np.testing.assert_allclose(found.arrays["statistics/cross/recall"], 2 / 3)
    assert found.numbers["aer_cross"] == pytest.approx(3 / 7)


def test_kept_texts_are_readable_and_spread_and_none_is_too_long():
    lengths = [90, 5, 33, 8, 200, 9, 7, 32, 6]
    parts = divide(lengths, longest=100, kept=3, maps=1, tokens=400)
    order = [i for batch in parts.texts for i in batch]
    assert order[:3] == [1, 5, 7]  # of 1, 3, 5, 6, 7 and 8
    assert sorted(order) == [0, 1, 2, 3, 5, 6, 7, 8]  # not the one of 200
    assert parts[1:] == (4, 90)
    assert [len(batch) for batch in parts.texts] == [4, 4]
    assert divide([50, 40, 60, 45], 100, 2, 1, 1000).texts == [[1, 3, 0, 2]]  # none readable
    assert divide([50, 40], 100, 5, 1, 50).texts == [[0], [1]]  # fewer than are to be kept
    assert divide([50, 40], 30, 2, 1, 50).texts == []
    assert divide([5, 4], 30, 0, 1, 5).texts == [[0], [1]]
