"""Rows hold every token of a text, each read after what stands before it in its own document."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny_models import tiny_model
from transformer.data.documents import (
    Documents,
    TextPlan,
    encode_text,
    pack_rows,
    spread_positions,
)
from transformer.data.tokenizer import BOS_ID, EOS_ID, Tokenizer
from transformer.model.losses import cross_entropy

LENGTHS = [3, 7, 2, 13, 1, 5, 11, 4, 2, 6, 19]
ROWS, CONTEXT = 3, 7


def documents(lengths=LENGTHS, whole=False):
    """Documents in which no token comes twice; the last of each is an end."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.arange(offsets[-1], dtype=np.int32) + 4
    if not whole:
        tokens[offsets[1:] - 1] = EOS_ID
    return Documents({"tokens": tokens, "tokens_offsets": offsets}, {}, whole=whole)


def places(batch, text):
    """Where in the stream each label stands; ends are found by the token that is read."""
    where = {
        token: place for place, token in enumerate(text.store.tokens.tolist()) if token > EOS_ID
    }
    found = []
    for token, label, segment in zip(*(x.ravel().tolist() for x in batch), strict=True):
        if segment:
            found.append(where[label] if label != EOS_ID else where[token] + 1)
    return found


def rows_of(batch):
    return zip(*batch, strict=True)


def check_row(tokens, labels, segments):
    """What is read is what was predicted before it, or a document's begin."""
    for place in range(1, (segments > 0).sum()):
        if segments[place] == segments[place - 1]:
            assert tokens[place] == labels[place - 1]
        else:
            assert tokens[place] == BOS_ID
            assert labels[place - 1] == EOS_ID


def test_an_epoch_predicts_each_token_of_its_windows_once_in_different_order():
    text = documents([n + 1 for n in LENGTHS])
    plan = TextPlan(text, 5, ROWS, CONTEXT)
    epochs = []
    for epoch in range(2):
        first = epoch * plan.epoch_length
        batches = [plan[first + i] for i in range(plan.epoch_length)]
        for batch in batches:
            assert batch.tokens.shape == (plan.rows, CONTEXT)
            for row in rows_of(batch):
                check_row(*row)
        found = [place for batch in batches for place in places(batch, text)]
        assert len(found) == plan.windows * CONTEXT
        assert sorted(found) == list(range(min(found), min(found) + len(found)))
        epochs.append(found)
    assert epochs[0] != epochs[1]
    assert min(epochs[0]) != min(epochs[1])  # other places are cut


@pytest.mark.parametrize("whole", [False, True])
def test_evaluation_reads_all_tokens_in_order_documents_from_their_start(whole):
    text = documents([sum(LENGTHS)] if whole else [n + 1 for n in LENGTHS], whole)
    batches = list(pack_rows(text, ROWS, CONTEXT))
    found = [place for batch in batches for place in places(batch, text)]
    assert found == list(range(len(text.store.tokens)))
    for batch in batches:
        assert batch.tokens.shape == (ROWS, CONTEXT)
        for row in rows_of(batch):
            check_row(*row)
    starts = set(text.store.offsets[:-1].tolist())
    begins = {
        place
        for batch in batches
        for place, token in zip(
            places(batch, text), batch.tokens[batch.segments > 0].tolist(), strict=True
        )
        if token == BOS_ID
    }
    assert begins == starts


class Words(Tokenizer):
    """A tokenizer of words, each the number of its letters."""

    def __init__(self):
        pass

    def encode(self, texts):
        return [[4 + len(word) for word in text.split()] for text in texts]


def test_words_bytes_and_ends_are_counted_as_the_text_has_them():
    texts = ["ab c", "dé\nf", "g"]
    text = encode_text(texts, Words(), whole=False)
    assert text.store.tokens.tolist() == [6, 5, EOS_ID, 6, 5, EOS_ID, 5, EOS_ID]
    assert (text.notes["words"], text.notes["bytes"]) == (5, 4 + 5 + 1)
    assert len(text.store) == text.ends == 3
    assert text.digest != encode_text(["ab", "c dé\nf", "g"], Words(), whole=False).digest
    running = encode_text(["".join(texts)], Words(), whole=True)
    assert running.ends == 0
    assert EOS_ID not in running.store.tokens


def losses(model, variables, batch):
    tokens, labels, segments = map(jnp.asarray, batch)

    def run(module):
        features = module.decode(tokens, None, None, segments > 0, segments=segments)
        return module.output_factors(features)

    features, table = model.apply(variables, method=run)
    return cross_entropy(features, table, labels, (labels != 0).astype(jnp.float32), 0.1)


@pytest.mark.full
def test_all_positions_at_once_have_the_loss_and_gradient_of_one_at_a_time():
    vocabulary = sum(LENGTHS) + 4 + len(LENGTHS)
    model, variables = tiny_model(
        num_encoder_layers=0, positions="rotary", target_vocab_size=vocabulary
    )
    batch = next(pack_rows(documents([2, 4, 3, 1, 6]), ROWS, CONTEXT))
    assert batch.segments.max() == 2
    spread = spread_positions(batch)
    assert spread.tokens.shape == (ROWS * CONTEXT, CONTEXT)

    @jax.jit
    @jax.value_and_grad
    def loss(variables, batch):
        sums = losses(model, variables, batch)
        return sums.loss / sums.weight

    ours, gradient = loss(variables, batch)
    theirs, their_gradient = loss(variables, spread)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6),
        gradient,
        their_gradient,
    )
    # The control: where documents read each other, the loss is another.
    longer = batch._replace(segments=np.where(batch.segments > 0, 1, 0))
    assert abs(float(loss(variables, longer)[0] / ours) - 1) > 1e-3
