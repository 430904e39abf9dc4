"""The loss of a classifier, its rates, and the batches of labelled texts."""

import jax
import numpy as np
import pytest

from task_runs import text_config
from tiny_classifier import ITEMS
from transformer.config import complete
from transformer.data.labelled import encode_labelled, read_texts
from transformer.data.tokenizer import BOS_ID
from transformer.tasks.classification import ClassificationTask


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return complete(text_config("classification", tmp_path_factory.mktemp("texts")))


@pytest.fixture(scope="module")
def tokenizer(config):
    return ClassificationTask(config).text.tokenizer


def make_task(config, *changes) -> ClassificationTask:
    config = config.copy_and_resolve_references()
    config.update_from_flattened_dict(dict(changes))
    return ClassificationTask(config)


# -- scores and losses


def test_several_runs_are_scored_as_each_alone(config):
    task = make_task(config)
    params = [task.draw_params(jax.random.key(seed)) for seed in range(3)]
    stacked = jax.tree.map(lambda *each: np.stack(each), *params)
    together = task.evaluate_runs(stacked, "validation")
    alone = [task.evaluate(own, "validation", final=False) for own in params]
    for a, b in zip(together, alone, strict=True):
        assert a["nll"] == pytest.approx(b["nll"], abs=1e-5)
        assert a["confusion"] == b["confusion"]
    assert len({scores["nll"] for scores in alone}) == 3


@pytest.mark.full
def test_balanced_classes_weigh_the_same_in_the_loss(config):
    changes = [("train.label_smoothing", 0.0), ("model.architecture", "bag_of_embeddings")]
    changes += [("model.dropout_embedding", 0.0), ("model.dropout_residual", 0.0)]
    plain = make_task(config, *changes)
    balanced = make_task(config, *changes, ("train.class_weights", "balanced"))
    params = plain.draw_params(jax.random.key(0))
    batch, key = plain.plan[0], jax.random.key(1)
    losses = [t.loss(params, batch, t.hparams(), key) for t in (plain, balanced)]
    logits = np.asarray(plain.predictor.classify({"params": params}, batch.source).logits)
    there = batch.labels > 0
    logits, labels = logits[there].astype(np.float64), batch.labels[there] - 1
    nll = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]
    counts = np.bincount(plain.text.train.labels)
    assert counts[0] != counts[1]
    weights = sum(counts) / (2 * counts)
    assert float(losses[0].loss) == pytest.approx(nll.sum(), rel=1e-5)
    assert float(losses[1].loss) == pytest.approx((weights[labels] * nll).sum(), rel=1e-5)
    assert float(losses[1].nll) == pytest.approx(nll.sum(), rel=1e-5)
    assert float(losses[1].weight) == len(labels)
    # Over the whole of the training text both classes have half of the weight.
    np.testing.assert_allclose(weights * counts, sum(counts) / 2)


@pytest.mark.full
def test_rows_that_fill_up_the_devices_have_no_loss(config):
    task = make_task(config, ("model.dropout_residual", 0.0))
    params, batch, key = task.draw_params(jax.random.key(0)), task.plan[0], jax.random.key(1)
    filled = jax.tree.map(lambda x: np.pad(x, [(0, 3)] + [(0, 0)] * (x.ndim - 1)), batch)
    hparams = dict.fromkeys(task.hparams(), 0.0)
    sums, others = (task.loss(params, each, hparams, key) for each in (batch, filled))
    np.testing.assert_allclose(others, sums, rtol=1e-5)
    # The control: such a row with a class counts.
    filled.labels[-1] = 1
    assert task.loss(params, filled, hparams, key).weight == sums.weight + 1


# -- texts and batches


def test_a_text_is_its_first_tokens_and_line_breaks_are_blanks(tokenizer):
    broken, blank = read_texts(["the plot<br /><BR>is dull", "the plot is dull"], tokenizer)
    assert broken == blank
    assert broken[0] == BOS_ID
    texts = encode_labelled(ITEMS[:3], ("bad", "good"), tokenizer, 5)
    assert texts.notes["cut"] == 3
    assert [texts.store[i].tolist() for i in range(3)] == [
        ids[:5] for ids in read_texts([item.text for item in ITEMS[:3]], tokenizer)
    ]
    assert texts.labels.tolist() == [1, 1, 1]
    assert encode_labelled(ITEMS[:3], ("bad", "good"), tokenizer, 6).notes["cut"] == 1
