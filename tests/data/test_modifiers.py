"""Modified pairs are what a translator should read, too, and their batches are reproducible."""

import collections
import random
import unicodedata

import numpy as np
import pytest

from configs import base
from pair_corpus import prepare_corpus
from transformer.checks import check
from transformer.data.batches import BatchPlan
from transformer.data.pairs import Pair
from transformer.data.parallel.modifiers import (
    AUGMENTED,
    MODIFIERS,
    modify,
    typos,
)
from transformer.data.tokenizer import UNK_ID
from transformer.data.words import Words, set_case
from transformer.errors import UserError

pytestmark = pytest.mark.full

HOUSES = Pair("Where are the 17 houses of Vera, in Łódź?", "¿Dónde están las 17 casas de Vera?")
RAIN = Pair("It is raining.", "Está lloviendo.")
CHINESE = Pair("他在看书。", "彼は本を読む。")
NOUNS = ["dog", "cat", "house", "street", "river", "window", "garden", "teacher", "friend", "hall"]
PAIRS = [
    Pair(f"The {a} sees {number} {b}s near Vera.", f"Der {a} sieht {number} {b}s bei Vera.")
    for number, (a, b) in enumerate(((a, b) for a in NOUNS for b in NOUNS), 20)
]
ALL = dict.fromkeys(AUGMENTED, 0.15)


def draws(name, pairs, count=300, symbols=()):
    rng, words = random.Random(7), Words(symbols=tuple(symbols))
    return [modify(MODIFIERS[name], pairs, rng, words) for _ in range(count)]


# -- each modifier


@pytest.mark.parametrize(
    ("name", "pair", "source", "target"),
    [
        ("capitals", Pair("die Straße", "улица"), "DIE STRASSE", "УЛИЦА"),
        ("title", RAIN, "It Is Raining.", "Está Lloviendo."),
        (
            "punctuation",
            HOUSES,
            "Where are the 17 houses of Vera, in Łódź",
            "Dónde están las 17 casas de Vera",
        ),
        ("punctuation", Pair("It rains", "Llueve."), "It rains", "Llueve."),
        ("punctuation", Pair("यह पानी है।", "It is 5 $."), "यह पानी है", "It is 5 $"),
        ("capitals", CHINESE, *CHINESE[:2]),
        ("joined", RAIN, *RAIN[:2]),
    ],
)
def test_a_modifier_changes_both_sides_or_none(name, pair, source, target):
    assert draws(name, [pair], 3) == [Pair(source, target)] * 3


@pytest.mark.parametrize("name", ["capitals", "title"])
def test_a_target_gets_no_capitals_that_its_source_does_not_show(name):
    pair = Pair("他在看书。", "He is reading.")
    assert draws(name, [pair], 3) == [pair] * 3


def test_two_or_three_neighbours_are_joined_with_a_blank_if_their_script_has_one():
    two, three = sorted(set(draws("joined", [RAIN, HOUSES, RAIN])), key=lambda p: len(p.source))
    assert two == Pair(f"{RAIN.source} {HOUSES.source}", f"{RAIN.target} {HOUSES.target}")
    assert three == Pair(f"{two.source} {RAIN.source}", f"{two.target} {RAIN.target}")
    assert draws("joined", [CHINESE, CHINESE], 1)[0] == Pair(*(side * 2 for side in CHINESE[:2]))


def test_typing_errors_are_in_the_source_alone_and_in_as_many_words_as_asked():
    source = " ".join(NOUNS * 20)
    pair, rng = Pair(source, "target"), random.Random(1)
    for rate in (0.05, 0.5):
        fractions = []
        for _ in range(30):
            changed = typos([pair], rng, Words(), rate, 0.0)
            words = list(zip(source.split(), changed.source.split(), strict=True))
            fractions.append(np.mean([a != b for a, b in words]))
            assert changed.target == "target"
            assert all(b[0] in a and abs(len(a) - len(b)) <= 1 for a, b in words)
        long = np.mean([len(word) > 3 for word in NOUNS])  # short words have no errors
        assert 0.9 * rate * long < np.mean(fractions) < 1.1 * rate * long


def test_capitals_are_dropped_as_in_a_line_in_capitals_or_typed_carelessly():
    sources = {pair.source for pair in draws("typos", [HOUSES])}
    assert {HOUSES.source.lower(), set_case(HOUSES.source, "sentence", Words())} < sources


def test_accents_are_dropped_but_no_vowel_signs():
    accents = [pair.source for pair in draws("typos", [Pair("Él está así, mañana", "x")])]
    assert "El esta asi, manana" in accents
    hindi = "वह है घर की ओर"
    assert {pair.source for pair in draws("typos", [Pair(hindi, "x")])} == {hindi}
    assert len({pair.source for pair in draws("typos", [Pair("हिन्दी", "x")])}) > 3
    assert all(unicodedata.is_normalized("NFC", text) for text in accents)


def test_a_copied_string_is_the_same_on_both_sides_and_new():
    kinds = collections.Counter()
    for pair in draws("copied", [HOUSES], 600):
        if pair.source == pair.target:
            kinds["alone"] += 1
            continue
        source = pair.source.replace("Where are the ", "").split()
        target = pair.target.replace("¿Dónde están las ", "").split()
        fresh = {*source} & {*target} - {"17", "Vera?", "Vera"}
        kinds["other number"] += "17" not in pair.source and "17" not in pair.target
        kinds["other name"] += "Vera" not in pair.source and "Vera" not in pair.target
        kinds["next to the text"] += "17 houses of Vera" in pair.source and bool(fresh or source)
        assert ("17" in pair.source) == ("17" in pair.target)
        assert ("Vera" in pair.source) == ("Vera" in pair.target)
    assert min(kinds.values()) > 50
    assert len(kinds) == 4


@pytest.mark.parametrize("name", sorted({*AUGMENTED} & {*MODIFIERS}))
def test_symbols_stay_as_they_are_and_tags_stay_first(name):
    symbols = ("<2es>", "{name}", "<b>", "</b>")
    pairs = [
        Pair(f"<2es> Does {{name}} read the <b>books</b> {i}?", f"¿Lee {{name}} los <b>l</b> {i}?")
        for i in (11, 12)
    ]
    for pair in draws(name, pairs, symbols=symbols):
        assert pair.source.startswith("<2es> ")
        assert pair.source.count("<2es>") == 1
        alone = name == "copied" and pair.source == f"<2es> {pair.target}"
        assert alone or all(pair.source.count(s) == pair.target.count(s) > 0 for s in symbols[1:])


def test_pairs_with_other_tags_are_not_joined():
    pairs = [Pair("<2es> One.", "Uno."), Pair("<2de> Two.", "Zwei.")]
    assert draws("joined", pairs, 20, ("<2es>", "<2de>")) == [pairs[0]] * 20


# -- batches


def settings(folder, fractions, **changes):
    config = base.get_config()
    config.data.cache_dir = str(folder)
    config.data.max_length_ratio = 100.0
    config.tokenizer.vocab_size, config.tokenizer.byte_fallback = 420, True
    for name, fraction in fractions.items():
        config.data[f"augment_{name}"] = fraction
    config.update_from_flattened_dict(changes)
    return config


def make_plan(folder, fractions=ALL, pairs=PAIRS, seed=5, **changes):
    config = settings(folder, fractions, **changes)
    corpus = prepare_corpus(pairs, config.data, config.tokenizer)
    return corpus, BatchPlan(corpus.source, corpus.target, seed, 1024, 4, 2, sampler=corpus.sampler)


def read(corpus, plan, epoch=0):
    """The texts of each pair in an epoch."""
    texts = {}
    for i in range(epoch * plan.epoch_length, (epoch + 1) * plan.epoch_length):
        batch = plan[i]
        for number, source, labels in zip(plan.indices(i)[1], *batch[::2], strict=False):
            texts[number] = (
                corpus.source_tokenizer.decode(source),
                corpus.target_tokenizer.decode(labels),
            )
    return texts


def test_an_epoch_has_each_pair_once_in_the_form_that_its_modifier_gives(tmp_path):
    corpus, plan = make_plan(tmp_path, **{"tokenizer.bpe_dropout": 0.1})
    epochs = [read(corpus, plan, epoch) for epoch in range(4)]
    for texts in epochs:
        assert sorted(texts) == list(range(len(PAIRS)))
        as_they_are = np.mean([texts[i] == PAIRS[i][:2] for i in texts])
        joined = np.mean([source.count("The ") > 1 for source, _ in texts.values()])
        assert as_they_are == pytest.approx(0.4, abs=0.15)
        assert joined == pytest.approx(0.15, abs=0.12)
    assert np.mean([epochs[0][i] == epochs[1][i] for i in epochs[0]]) < 0.6


def test_no_modifier_adds_unknown_tokens(tmp_path):
    changes = {"tokenizer.kind": "char", "tokenizer.byte_fallback": False}
    pairs = [Pair(*(side.replace("V", "v") for side in pair[:2])) for pair in PAIRS]
    tokenizer = make_plan(tmp_path, {}, pairs, **changes)[0].source_tokenizer
    (model := tmp_path / "kept.model").write_bytes(tokenizer.model)
    changes["tokenizer.model"] = str(model)
    corpus, plan = make_plan(tmp_path, ALL, pairs, **changes)
    assert (corpus.sampler.drawn[0] > 1.8 * corpus.source.lengths).any()  # joined pairs
    assert not any((array == UNK_ID).any() for i in range(plan.epoch_length) for array in plan[i])


def test_fractions_that_add_to_more_than_one_are_refused():
    config = base.get_config()
    config.data.update(augment_typos=0.6, augment_joined=0.5)
    says = r"^data\.augment_typos=0.6 .*augment_joined=0.5 add to 1.1.*at most 1"
    with pytest.raises(UserError, match=says):
        check(config)
