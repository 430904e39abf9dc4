"""Terms: training pairs show them, lines that have them get them, and no other line changes."""

import re
from random import Random

import pytest

from configs import base
from transformer.data.batches import BatchPlan
from transformer.data.pairs import Pair
from transformer.data.parallel.corpus import encode_corpora
from transformer.data.parallel.modifiers import glossary, learn_lexicon, modify
from transformer.data.parallel.training_pairs import read_training_pairs
from transformer.data.placeholders import NAMES, Glossary, TextWithTerms, has_term, read_line
from transformer.data.words import TERM, Words, shares_stem
from transformer.errors import UserError
from transformer.inference.prefixes import force_term

DOGS = Pair(
    "The big dogs are barking.",
    "Die großen Hunde bellen.",
    ((0, 0), (1, 1), (2, 2), (3, 3), (4, 3)),
)
DOG = Pair("My dog, alone", "Allein mein Hund", ((0, 1), (1, 2), (2, 0)))
LEXICON = {"dogs": ["Hund", "Hunde", "Hundes", "Katze"], "big": ["großen"], "are": ["Bellen"]}
WORDS = Words(symbols=TERM)


def draws(pair, lexicon, count=400):
    rng = Random(3)
    return [
        modify(lambda *x: glossary(*x, lexicon=lexicon), [pair], rng, WORDS) for _ in range(count)
    ]


def terms_of(source):
    return re.findall(rf"(\w+){TERM[0]}(.*?){TERM[1]}", source)


def test_a_term_stands_after_its_words_and_is_in_the_target_or_a_form_of_what_is():
    exact = forms = others = spans = 0
    for pair in draws(DOGS, LEXICON):
        terms = terms_of(pair.source)
        assert all(pair.source.split()[i] in DOGS.source for i, _ in pair.alignment)
        assert 1 <= len(terms) <= 3
        assert all(term.startswith(" ") for _, term in terms)
        for word, term in terms:
            if word == "dogs" and has_term(pair.target, term[1:], inflected=False):
                exact += pair.target.count("Hunde") == 1
                others += "Hunde" not in pair.target
            elif word == "dogs":
                assert term in (" Hund", " Hundes")  # a control: no other word than forms
                forms += 1
            spans += " " in term[1:]
    assert min(exact, forms, others, spans) > 20
    assert draws(DOG._replace(alignment=None), LEXICON, 20) == [DOG._replace(alignment=None)] * 20


def test_the_lexicon_has_the_words_without_punctuation():
    assert learn_lexicon([DOG, DOGS])["dog"] == ["Hund"]
    assert shares_stem("Hundes", "Hund")
    assert not shares_stem("Hundert", "Hund")  # 4 of 7 letters


def test_draws_depend_on_seed_and_text_alone(tmp_path):
    config = base.get_config()
    config.data.cache_dir, config.tokenizer.vocab_size = str(tmp_path), 90
    config.data.augment_glossary = 0.5
    pairs = [
        Pair(f"{DOGS.source[:-1]} {n}.", f"{DOGS.target[:-1]} {n}.", DOGS.alignment)
        for n in range(60)
    ]

    def batch():
        text = read_training_pairs(pairs, config.data, {})
        corpus = encode_corpora([text], config.data, config.tokenizer, with_links=True)
        plan = BatchPlan(corpus.source, corpus.target, 3, 512, 3, 2, sampler=corpus.sampler)
        return corpus.source_tokenizer, [plan[i] for i in range(plan.epoch_length)]

    (tokenizer, first), (_, again) = batch(), batch()
    assert all((a.source == b.source).all() for a, b in zip(first, again, strict=True))
    [ids] = tokenizer.encode([f"dog{TERM[0]} Hund{TERM[1]}."])
    assert all(tokenizer.pieces(ids).count(symbol) == 1 for symbol in TERM)
    marked = sum((b.source == tokenizer.encode([TERM[0]])[0][-1]).any(axis=1).sum() for b in first)
    assert 15 < marked < 45  # of 60 pairs, half


def test_terms_are_whole_words_in_any_case_and_the_longest():
    find = Glossary({"dog": "Hund", "hot dog": "Wurst", "狗": "Hund"}, False).find
    assert find("A Hot dog, a DOG, dogs") == [(2, 9, "Wurst"), (13, 16, "Hund")]
    assert find("小狗在") == [(1, 2, "Hund")]
    assert type(TextWithTerms.of("dogs", Glossary({"dog": "Hund"}, False))) is str
    with pytest.raises(UserError, match="fill both in"):
        Glossary({"dog": " "}, False)


def test_a_term_is_read_in_place_of_a_placeholder_of_its_words():
    copied, symbols = ("title", "first title"), (*NAMES, *TERM)
    words = Words(forms=("sees", "nab", "robot"), copied=copied, symbols=symbols)
    assert read_line("Ann sees Bob", words)[0] == "<copy:0> sees <copy:1>"
    read, strings = read_line("Ann sees Bob", words, [(9, 12, "Robert Roe")])
    assert read == f"<copy:0> sees Bob{TERM[0]} Robert Roe{TERM[1]}"
    assert strings == {"<copy:0>": "Ann"}


def test_a_forced_term_replaces_its_linked_word_after_what_was_forced():
    text = TextWithTerms.of("A dog sees cats.", Glossary({"dog": "Wolf", "cats": "Luchse"}, True))
    links = [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert force_term(text, "Ein Hund sieht Katzen.", links, "").text == "Ein Wolf "
    assert (
        force_term(text, "Ein Wolf sieht Katzen.", links, "Ein Wolf ").text
        == "Ein Wolf sieht Luchse."
    )
    assert force_term(text, "Hund Katzen.", [(1, 0)], "").text == "Wolf "
