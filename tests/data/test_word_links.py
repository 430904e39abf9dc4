"""Links of words become links of tokens, and follow what a batch draws of a pair."""

import itertools
import random

import numpy as np
import pytest

from configs import base
from transformer.data.batches import Batch, BatchPlan
from transformer.data.buckets import Part
from transformer.data.pairs import Pair, move_links
from transformer.data.parallel.corpus import WordLinks, encode_corpora
from transformer.data.parallel.modifiers import MODIFIERS, modify
from transformer.data.parallel.sources import open_source
from transformer.data.parallel.training_pairs import read_training_pairs
from transformer.data.placeholders import NAMES, read_pair
from transformer.data.token_store import TokenStore
from transformer.data.words import Words
from transformer.errors import UserError

RNG = random.Random(5)
NOUNS = ["".join(RNG.choices("abcdefg", k=RNG.randrange(2, 9))) for _ in range(60)]


def make_pair(number):
    words = RNG.sample(NOUNS, RNG.randrange(2, 7))
    links = tuple(sorted((i, len(words) - 1 - i) for i in range(len(words))))
    return Pair(" ".join(words), " ".join(word.upper() for word in words[::-1]), links)


PAIRS = [make_pair(number) for number in range(150)]


def prepare(folder, pairs=PAIRS, with_links=True, **changes):
    config = base.get_config()
    config.data.cache_dir, config.tokenizer.vocab_size = str(folder), 120
    config.data.max_length_ratio = 100.0
    config.update_from_flattened_dict(changes)
    text = read_training_pairs(pairs, config.data, {})
    return encode_corpora([text], config.data, config.tokenizer, with_links=with_links)


def make_plan(corpus, seed=3):
    plan = BatchPlan(corpus.source, corpus.target, seed, 512, 3, 2, sampler=corpus.sampler)
    plan.links = corpus.links
    return plan


def words_linked(corpus, batch, row):
    """The linked words of a row as texts, and whether each first piece alone is linked."""
    tokenizers = corpus.source_tokenizer, corpus.target_tokenizer
    sides, numbers = [], []
    for tokenizer, ids in zip(tokenizers, (batch.source[row], batch.labels[row]), strict=True):
        pieces = tokenizer.pieces(ids)
        starts = [piece.startswith("▁") for piece in pieces]
        numbers.append(np.cumsum(starts) - 1)
        sides.append(tokenizer.decode(ids).split())
        if tokenizer is tokenizers[0]:
            assert not batch.links[row][:, ~np.array(starts)].any()
    labels_of = {}
    for label, token in np.argwhere(batch.links[row]).tolist():
        source, target = (int(n[t]) for n, t in zip(numbers, (token, label), strict=True))
        labels_of.setdefault((source, target), set()).add(label)
    for (_, target), labels in labels_of.items():  # all pieces of the target word
        special = {*np.flatnonzero(batch.labels[row] <= 3)}
        assert labels == {*np.flatnonzero(numbers[1] == target)} - special
    return sorted((sides[0][i], sides[1][j]) for i, j in labels_of)


def test_every_piece_of_a_word_is_linked_to_the_first_piece_of_its_words():
    # Source: a1 a2 b1 </s>; target: x1 x2 y1 z1 </s>. Links: a-x, b-x, a-z.
    starts = np.isin(np.arange(20), [5, 7, 11, 13, 14]), np.isin(np.arange(20), [11, 13, 14])
    source, labels = np.array([[5, 6, 7, 3, 0]]), np.array([[11, 12, 13, 14, 3, 0, 0]])
    batch = Batch(source, np.roll(labels, 1, axis=1), labels)
    links = WordLinks(TokenStore.of([[0, 0, 1, 0, 0, 2]]), starts).link(batch, [0]).links
    expected = np.zeros((1, 7, 5), bool)
    expected[0, [0, 1, 3], 0] = expected[0, [0, 1], 2] = True
    assert np.array_equal(links, expected)


@pytest.mark.parametrize("strength", [0.0, 0.6])
def test_links_of_a_batch_are_those_of_its_pairs_whatever_is_drawn(tmp_path, strength):
    corpus = prepare(tmp_path, **{"tokenizer.bpe_dropout": strength})
    plan, lengths = make_plan(corpus), set()
    for i in range(plan.epoch_length):
        batch = plan[i]
        for row, number in enumerate(plan.indices(i)[1]):
            source, target = (text.split() for text in PAIRS[number][:2])
            gold = sorted((source[a], target[b]) for a, b in PAIRS[number].alignment)
            assert words_linked(corpus, batch, row) == gold
            lengths.add(((batch.source[row] > 3).sum(), len(source)))
        stacked = plan.stack([plan, make_plan(corpus, 4)], i)
        assert np.array_equal(stacked.links[0], batch.links)
        halves = [plan.part(i, Part(first, first + 1, 2)).links for first in (0, 1)]
        assert np.array_equal(np.concatenate(halves), batch.links)
    assert any(tokens > words for tokens, words in lengths)


def test_without_a_need_for_links_batches_and_the_cache_have_none(tmp_path):
    plain = prepare(tmp_path, with_links=False)
    assert (plain.links, "links" in plain.arrays) == (None, False)
    assert type(make_plan(plain)[0]) is Batch
    assert not [*tmp_path.rglob("links*")]
    linked = prepare(tmp_path)
    assert plain.arrays_digest != linked.arrays_digest
    turned = [pair._replace(alignment=pair.alignment[:1]) for pair in PAIRS]
    assert prepare(tmp_path, turned).arrays_digest != linked.arrays_digest


def test_a_pair_whose_tokens_are_not_its_words_has_no_links_and_is_counted(tmp_path):
    odd = Pair(f"{NOUNS[0]}\N{NO-BREAK SPACE}{NOUNS[1]}", NOUNS[2], ((0, 0),))  # read as a blank
    corpus = prepare(tmp_path, [*PAIRS, odd])
    assert corpus.notes["linked"] == len(PAIRS)
    assert len(corpus.links.pairs[len(PAIRS)]) == 0
    with pytest.raises(UserError, match=r"no training pair has word links.*data\.train_links"):
        prepare(tmp_path, [Pair(*pair[:2]) for pair in PAIRS])


# -- modified pairs

LINKED = Pair("<de> Where is Vera ?", "¿ Wo ist Vera ?", ((1, 1), (2, 2), (3, 3), (4, 4)))
NEXT = Pair("<de> It rains .", "Es regnet .", ((1, 0), (2, 1), (3, 2)))


def linked_words(pair):
    source, target = pair.source.split(), pair.target.split()
    return [(source[i], target[j]) for i, j in pair.alignment or ()]


def test_each_modifier_keeps_the_links_between_the_words_that_are_still_there():
    words = Words(symbols=("<de>",))
    for name, modifier in MODIFIERS.items():
        rng = random.Random(7)
        draws = [modify(modifier, [LINKED, NEXT], rng, words) for _ in range(80)]
        for pair in draws:
            links = linked_words(pair)
            if name == "joined":
                assert links == linked_words(LINKED) + linked_words(NEXT)
            elif name == "punctuation":
                assert links == [("Where", "Wo"), ("is", "ist"), ("Vera", "Vera")]
            elif name == "typos":
                assert [b for _, b in links] == [b for _, b in linked_words(LINKED)]
            elif name == "copied":
                german = {"Where": "Wo", "is": "ist", "?": "?"}
                assert all(german.get(a, a) == b for a, b in links)
                assert bool(links) == (pair.source != f"<de> {pair.target}")  # it stands alone
        assert modify(modifier, [Pair(*LINKED[:2]), Pair(*NEXT[:2])], rng, words).alignment is None


def test_a_word_that_ends_and_begins_pairs_without_blanks_has_the_links_of_both():
    pairs = [Pair("他在 看书。", "a b", ((0, 0), (1, 1))), Pair("他在 看", "c d", ((0, 0), (1, 1)))]
    joined = modify(MODIFIERS["joined"], pairs, random.Random(0), Words())
    assert joined == Pair("他在 看书。他在 看", "a b c d", ((0, 0), (1, 1), (1, 2), (2, 3)))


def test_links_of_words_that_a_placeholder_joins_are_dropped_and_others_move():
    words = Words(
        forms=("meets", "today", "he", "bluntly"), copied=("title", "first title"), symbols=NAMES
    )
    pair = Pair("He meets Ann Bell today", "Er trifft Ann Bell heute", ((1, 1), (2, 2), (4, 4)))
    read = read_pair(pair, words)
    assert len(read.source.split()) == 4
    assert read.alignment == ((1, 1), (3, 3))
    assert move_links(pair, "a b c d e", pair.target).alignment == pair.alignment  # control


# -- files


def test_links_of_a_file_follow_their_lines_through_cleaning_and_holding_out(tmp_path):
    pairs = [*PAIRS, PAIRS[0], Pair("", "x", ())]
    for name, lines in {
        "a.en": [pair.source for pair in pairs],
        "a.de": [pair.target for pair in pairs],
        "a.links": [" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs],
    }.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    data = base.get_config().data
    data.update(source="files", path=str(tmp_path), train_source="a.en", train_target="a.de")
    data.update(train_links="a.links", validation_size=5, test_size=7)
    gold = {pair[:2]: pair.alignment for pair in PAIRS}
    train = [*open_source(data)["train"].cleaned]
    assert len(train) == len({*gold}) - 12
    assert all(pair.alignment == gold[pair[:2]] for pair in train)
    for text, says in (("0-0\n", r"a\.links has fewer lines.* 1 of"), ("\n" * 153, "more lines")):
        (tmp_path / "a.links").write_text(text)
        with pytest.raises(UserError, match=says):
            list(itertools.islice(open_source(data)["train"].cleaned, None))
