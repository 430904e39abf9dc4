"""Rows hold every token of a text, each read after what stands before it in its own document."""

import numpy as np
import pytest

from transformer.data.documents import Documents, TextPlan, encode_text, pack_rows
from transformer.data.tokenizer import BOS_ID, EOS_ID, Tokenizer

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
