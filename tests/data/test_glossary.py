"""Terms: training pairs show them, lines that have them get them, and no other line changes."""

import functools
import re
from random import Random

import pytest

import transformer
from configs import base
from tiny_run import command, refused, shared_run
from transformer.data.batches import BatchPlan
from transformer.data.pairs import Pair
from transformer.data.parallel.corpus import encode_corpora
from transformer.data.parallel.modifiers import glossary, learn_lexicon, modify
from transformer.data.parallel.training_pairs import read_training_pairs
from transformer.data.placeholders import NAMES, read_line
from transformer.data.words import TERM, Words, shares_stem
from transformer.errors import UserError
from transformer.inference.hypotheses import Translation
from transformer.inference.prefixes import Prefix, force_terms, has_term, prescribe
from transformer.operations import Request

LINKS = (0, 0), (1, 1), (2, 2), (3, 3), (4, 3)
DOGS = Pair("The big dogs are barking.", "Die großen Hunde bellen.", LINKS)
DOG = Pair("My dog, alone", "Allein mein Hund", ((0, 1), (1, 2), (2, 0)))
LEXICON = {"dogs": ["Hund", "Hunde", "Hundes", "Katze"], "big": ["großen"], "are": ["Bellen"]}
WORDS = Words(symbols=TERM)


def draws(pair, lexicon, count=400):
    rng, modifier = Random(3), functools.partial(glossary, lexicon=lexicon)
    return [modify(modifier, [pair], rng, WORDS) for _ in range(count)]


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


@pytest.mark.full
def test_draws_depend_on_seed_and_text_alone(tmp_path):
    config = base.get_config()
    config.data.cache_dir, config.tokenizer.vocab_size = str(tmp_path), 90
    config.data.augment_glossary = 0.5
    texts = ((f"{text[:-1]} {n}." for text in DOGS[:2]) for n in range(60))
    pairs = [Pair(*both, LINKS) for both in texts]

    def batch():
        text = read_training_pairs(pairs, config.data, {})
        corpus = encode_corpora([text], config.data, config.tokenizer, with_links=True)
        plan = BatchPlan(corpus.source, corpus.target, 3, 512, 3, 2, sampler=corpus.sampler)
        return corpus.source_tokenizer, [plan[i] for i in range(plan.epoch_length)]

    (tokenizer, first), (_, again) = batch(), batch()
    assert all((a.source == b.source).all() for a, b in zip(first, again, strict=True))
    [ids] = tokenizer.encode([f"dog{TERM[0]} Hund{TERM[1]}."])
    assert all(tokenizer.pieces(ids).count(symbol) == 1 for symbol in TERM)
    [(marked, _)] = prescribe([("dog.", Prefix())], {"dog": "Hund"}, reads_terms=True)
    assert tokenizer.encode([marked]) == [ids]  # translations read what the training showed
    count = sum((b.source == tokenizer.encode([TERM[0]])[0][-1]).any(axis=1).sum() for b in first)
    assert 15 < count < 45  # of 60 pairs, half


def test_terms_are_whole_words_in_any_case_and_the_longest():
    terms = {"dog": "Hund", "HOT dog": "Wurst", "狗": "Hund"}
    texts = "A Hot dog, a DOG, dogs", "小狗在"
    items = prescribe([(text, Prefix("A")) for text in texts], terms, False)
    assert [x.terms for _, x in items] == [[(2, 3, "Wurst"), (5, 5, "Hund")], [(1, 1, "Hund")]]
    [(text, _), _] = prescribe([(text, Prefix()) for text in texts], terms, True)
    assert text == "A Hot dog<term:>▁Wurst</term:>, a DOG<term:>▁Hund</term:>, dogs"
    assert len(text.split()) == len(texts[0].split())
    with pytest.raises(UserError, match="blank term"):
        prescribe([], {"dog": " "}, False)


def test_has_term_counts_whole_words_and_forms():
    assert has_term("Der HUND bellt.", "Hund", inflected=False)
    assert has_term("Die Hunde.", "Hund")
    assert not has_term("Die Hunde.", "Hund", inflected=False)
    assert not has_term("Der Hahn.", "Hund")


def test_words_of_a_term_are_no_placeholder():
    copied, symbols = ("title", "first title"), (*NAMES, *TERM)
    words = Words(forms=("sees", "nab", "robot"), copied=copied, symbols=symbols)
    assert read_line("Ann sees Bob", words)[0] == "<copy:0> sees <copy:1>"
    [(text, _)] = prescribe([("Ann sees Bob", Prefix())], {"Bob": "Robert Roe"}, True)
    assert read_line(text, words) == (text.replace("Ann", "<copy:0>"), {"<copy:0>": "Ann"})


def test_a_forced_term_replaces_the_linked_word_with_the_best_score():
    tries, links = [], [(0, 0), (1, 0), (1, 1), (2, 2), (3, 3)]

    def search(items):
        tries.append([prefix.text for _, prefix in items])
        ends = {"Wolf ": "Wolf da.", "Ein Wolf ": "Ein Wolf sieht Katzen."}  # the longer is better
        return [[Translation(ends.get(x, x), float(len(x)), 4)] for x in tries[-1]]

    items = prescribe([("A dog sees cats.", Prefix())], {"dog": "Wolf", "cats": "Luchse"}, False)
    results = [[Translation("Ein Hund sieht Katzen.", 0.0, 4)]]
    [[best]] = force_terms(items, results, lambda pairs: [links for _ in pairs], search)
    assert tries == [["Wolf ", "Ein Wolf "], ["Ein Wolf sieht Luchse."]]
    assert best.text == "Ein Wolf sieht Luchse."
    assert force_terms(items, [[best]], lambda pairs: [], lambda items: []) == [[best]]


@pytest.mark.full
def test_a_run_without_the_training_writes_the_terms_anyway():
    run, lines = transformer.load("quickstart"), ["The old teacher sees two birds.", "", "Birds."]
    terms, free = {"teacher": "Vogel", "birds": "Hunde"}, run.translate(lines)
    texts = run.translate(lines, glossary=terms)
    assert [has_term(texts[0], term, False) for term in terms.values()] == [True, True]
    assert not has_term(free[0], "Hunde")  # a control
    assert texts[1:] == [free[1], texts[2]]
    assert has_term(texts[2], "Hunde", False)
    best = run.translate(lines[:1], 3, prefix=["Zwei "], glossary=terms)[0]
    assert all(x.text.startswith("Zwei ") and has_term(x.text, "Vogel", False) for x in best)
    with pytest.raises(UserError, match="does not have"):
        run.translate(lines, glossary={"birds": "☃"})


@pytest.mark.full
def test_a_trained_model_reads_terms_in_the_text_and_links_count_words_of_the_text(monkeypatch):
    align = transformer.load("quickstart").operation("align")
    read = functools.partial(prescribe, reads_terms=True)
    monkeypatch.setattr("transformer.operations.prescribe", lambda *x: read(*x[:2]))
    plan = align.plan(Request(["The bird sleeps."], glossary={"bird": "der Hund"}))
    assert plan.items == [("The bird<term:>▁der▁Hund</term:> sleeps.", Prefix())]
    [(best, links)] = plan.join(align.compute(plan.items))
    assert best[0].text
    assert {i for i, _ in links} <= {0, 1, 2}


@pytest.mark.parametrize(
    ("content", "says"),
    [("dog\n", "has 1 column"), ("dog\t \n", "blank term"), (None, "No such file")],
)
def test_a_faulty_glossary_file_ends_in_one_line(tmp_path_factory, tmp_path, content, says):
    path, run = tmp_path / "terms.tsv", shared_run(tmp_path_factory)
    if content:
        path.write_text(content)
    flags = f"--workdir={run.workdir}", "--mode=translate", f"--glossary={path}"
    refused(*flags, stdin=b"a b\n", says=says)
    path.write_text("zz\tb\n")
    assert "data.augment_glossary" in command(*flags, stdin=b"a b\n").err
