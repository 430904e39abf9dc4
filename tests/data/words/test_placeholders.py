"""Strings that need no translation are numbered tokens for the model, and come back once each."""

import dataclasses
import random

import numpy as np
import pytest

from configs import base
from pair_corpus import prepare_corpus
from transformer.data.pairs import Pair
from transformer.data.placeholders import NAMES, read_line, read_pair, write_text
from transformer.data.words import Words
from transformer.tasks.translation import load_tokenizers, save_tokenizers

FIRST, SECOND, THIRD = NAMES[:3]
NOUNS = ["dog", "cat", "house", "street", "river", "window", "garden", "teacher", "friend", "hall"]
TOWNS = [f"{a}{b}{c}ton" for a in ("Bar", "Lar", "Mor") for b in "aeiou" for c in "lnrst"]
PAIRS = [
    Pair(f"In {name} the {a} sees a {b}.", f"In {name} sieht der {a} den {b}.")
    for name, (a, b) in zip(TOWNS, ((a, b) for a in NOUNS for b in NOUNS), strict=False)
]
FORMS = "the dog sees quick brown foxes jumping over a lazy vat"
WORDS = Words(tuple(FORMS.split()), ("title", "foreign", "line"), symbols=NAMES)
EMPTY = Words(languages=("en", "de"))


def swapping(words):
    return dataclasses.replace(words, copied=(*{*words.copied} - {"number"},))


@pytest.mark.parametrize(
    ("line", "read", "strings"),
    [
        ("the dog sees Okonkwo", f"the dog sees {FIRST}", ["Okonkwo"]),
        ("the dog sees Ife Okonkwo", f"the dog sees {FIRST}", ["Ife Okonkwo"]),
        ("Ife Okonkwo sees Bo, Cy", f"{FIRST} sees {SECOND}, {THIRD}", ["Ife Okonkwo", "Bo", "Cy"]),
        ("Okonkwo sees Łukasz", f"Okonkwo sees {FIRST}", ["Łukasz"]),  # a first word may be any
        ("the dog from 東京 sees", f"the dog from {FIRST} sees", ["東京"]),
        ("Łukasz sees the dog", f"{FIRST} sees the dog", ["Łukasz"]),  # but not with such a letter
        ("see https://a.org/b?c=1, x@y.de", f"see {FIRST}, {SECOND}", "https://a.org/b?c=1 x@y.de"),
        ("{name} has %s &amp;", f"{FIRST} has {SECOND} {THIRD}", "{name} %s &amp;"),
        ("1,250 at 17:45 on 23/11", f"{FIRST} at {SECOND} on {THIRD}", "1,250 17:45 23/11"),
        ("in 1999 the 12 dogs", f"in {FIRST} the 12 dogs", "1999"),
        ("order A-4821 👩🏽‍🚀 🇩🇪", f"order {FIRST} {SECOND} {THIRD}", "A-4821 👩🏽‍🚀 🇩🇪"),
        ("the 21st, 1990s, 3 km", "the 21st, 1990s, 3 km", ""),
    ],
)
def test_strings_of_a_line_have_names_in_the_order_of_the_line(line, read, strings):
    strings = strings.split() if isinstance(strings, str) else strings
    words = dataclasses.replace(WORDS, copied=(*WORDS.copied, "number"))
    assert read_line(line, words) == (read, dict(zip(NAMES, strings, strict=False)))
    without = dataclasses.replace(words, symbols=("<b>",))
    assert read_line(line, without) == (line, {})


def test_a_pair_has_the_same_names_on_both_sides_in_any_order():
    pair = Pair("the Bo sees 1,250 of Li and Xu", "1.250 von Li sieht Bo")
    read = read_pair(pair, swapping(WORDS))
    assert read.source == f"the {FIRST} sees {SECOND} of {THIRD} and Xu"
    assert read.target == f"{SECOND} von {THIRD} sieht {FIRST}"
    assert read_pair(read, swapping(WORDS)) == read
    apart = Pair("the Bo Cy sees 12,500 of Xu", "2,500 von Xu Li sieht Bo Cy")
    assert read_pair(apart, WORDS).target == f"2,500 von {SECOND} Li sieht {FIRST}"
    firsts = {read_pair(Pair(f"{i} sees Bo", "Bo"), WORDS, True).target for i in range(200)}
    assert firsts == {*NAMES}  # so that all are learnt


def test_no_more_strings_than_names_are_read():
    line = " ".join(str(number) for number in range(1000, 1013))
    read, strings = read_line(f"the dog {line}", WORDS)
    assert list(strings) == list(NAMES)
    assert read.endswith(" 1010 1011 1012")
    pair = read_pair(Pair(line, line), WORDS)
    assert pair.source == pair.target
    assert sum(map(pair.source.count, NAMES)) == len(NAMES)


def test_each_string_is_put_back_once_and_what_lacks_is_counted():
    strings = {FIRST: f"a {SECOND}", SECOND: "b"}
    assert write_text(f"x {SECOND}, {FIRST}", {FIRST: "a", SECOND: "b"}) == ("x b, a", 0)
    assert write_text(f"{FIRST} {FIRST} {THIRD}", {FIRST: "a", SECOND: "b"}) == ("a", 1)
    assert write_text(f"{FIRST} {SECOND}", strings) == (f"a {SECOND} b", 0)


@pytest.mark.parametrize("copied", [True, False])
def test_rare_words_show_whether_unknown_ones_are_copied(copied):
    pairs = PAIRS if copied else [pair._replace(target=pair.target.upper()) for pair in PAIRS]
    words = EMPTY.learn(pairs)
    assert ("title" in words.copied) == copied
    assert (words.form("Dog"), words.form("barlton")) == ("dog", None)
    assert Words.from_json(words.to_json()) == words


def test_words_are_written_as_inside_sentences():
    lines = ["I saw Tom. Then I slept.", "TOM LEFT AND I SLEPT", "Then the USA slept."]
    words = EMPTY.learn([Pair(line, line) for line in lines * 2])
    forms = {small: words.form(small) for small in ("i", "tom", "then", "usa", "slept")}
    assert forms == {"i": "I", "tom": "Tom", "then": "then", "usa": None, "slept": "slept"}


def test_numbers_have_the_marks_of_the_targets():
    pairs = [Pair(f"It costs {n},500.25 now.", f"Es kostet {n}.500,25 jetzt.") for n in range(9)]
    assert EMPTY.learn(pairs).written("1,250.5") == "1.250,5"
    assert EMPTY.learn(pairs).written("17:45") == "17:45"
    same = [pair._replace(target=pair.source) for pair in pairs]
    assert EMPTY.learn(same).written("1,250.5") == "1,250.5"


@pytest.mark.full
def test_a_run_reads_its_training_text_and_its_draws_with_placeholders(tmp_path):
    config = base.get_config()
    config.data.cache_dir, config.tokenizer.vocab_size = str(tmp_path), 360
    config.tokenizer.placeholders = config.tokenizer.byte_fallback = True
    config.data.augment_copied = 0.9
    corpus = prepare_corpus(PAIRS, config.data, config.tokenizer)
    ids = [corpus.source_tokenizer.encode([name])[0][-1] for name in NAMES]
    for source, target in zip(corpus.source, corpus.target, strict=True):
        assert np.isin(source, ids).sum() == np.isin(target, ids).sum() == 1
    counts = []
    for number in range(len(PAIRS)):
        source, target, _ = corpus.sampler._draw(number, random.Random(number))
        counts.append(np.isin(source, ids).sum())
        assert sorted(np.array(source)[np.isin(source, ids)]) == sorted(
            np.array(target)[np.isin(target, ids)]
        )
    assert {1, 2} <= {*counts}
    save_tokenizers(tmp_path, corpus.source_tokenizer, corpus.target_tokenizer)
    assert load_tokenizers(tmp_path)[0].words == corpus.source_tokenizer.words
    again = prepare_corpus(PAIRS, config.data, config.tokenizer, tmp_path)
    assert again.source_tokenizer.model == corpus.source_tokenizer.model
