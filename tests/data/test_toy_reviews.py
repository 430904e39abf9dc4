"""The synthetic reviews are balanced, disjoint and right; the order of words decides them."""

import collections
import itertools
import re

import pytest

from transformer.data.labelled import toy_reviews

SIZES = {"train": 2000, "validation": 51, "test": 300}


@pytest.fixture(scope="module")
def corpus():
    return toy_reviews.generate(3, SIZES)


def test_reviews_are_balanced_disjoint_and_never_of_two_labels(corpus):
    assert {split: len(reviews) for split, reviews in corpus.items()} == SIZES
    everything = [review for split in corpus.values() for review in split]
    assert len({review.text for review in everything}) == len(everything)
    for reviews in corpus.values():
        counts = collections.Counter(review.label for review in reviews)
        assert counts["positive"] - counts["negative"] in (0, 1)


def test_twins_have_the_same_words_and_opposite_labels(corpus):
    for one, other in zip(corpus["train"][::2], corpus["train"][1::2], strict=True):
        assert (one.label, other.label) == ("positive", "negative")
        assert one.kind == other.kind
        same = sorted(one.text.split()) == sorted(other.text.split())
        assert same is (one.kind != "plain"), one.text


def test_text_is_lowercase_words_and_marks_with_the_right_article(corpus):
    for review in corpus["train"]:
        words = review.text.split(" ")
        assert all(word in (",", ".") or word.replace("-", "").isalpha() for word in words)
        assert review.text == review.text.lower()
        assert words[-1] == "."
        for article, word in itertools.pairwise(words):
            assert (article == "an") == (word[0] in "aeiou") or article not in ("a", "an")


FILMS = {*toy_reviews.FILLERS["film"], "portrait"}
SIGNS = {
    word: sign
    for lists in toy_reviews.WORDS.values()
    for sign, words in zip((1, -1), lists, strict=True)
    for word in words
}
NEGATIONS = ("not", "never", "hardly", "scarcely", "deny", "wrong")


def clauses(text):
    return [clause.split() for clause in text.strip(" .").split(" , ")]


def signs(words):
    return [SIGNS[word] for word in words if word in SIGNS]


def asserted(words, outer=0):
    """The signs of the words in a clause, turned by each negation before them."""
    found, turned = [], outer
    for word in words:
        turned = outer if word in ("but", "and") else turned + (word in NEGATIONS)
        if word in SIGNS:
            found.append(SIGNS[word] * (-1) ** turned)
    return found


def negation(review):
    return [sign for clause in clauses(review.text) for sign in asserted(clause)]


def double_negation(review):
    text = re.sub("|".join(toy_reviews.FILLERS["nobody"]), "not", review.text)
    first, second = clauses(text)[-2:]
    # "nobody can say" holds for both clauses; "it is wrong" is said again.
    return asserted(first) + asserted(second, outer="wrong" not in first)


def intensifier(review):
    words = review.text.split()
    return [SIGNS[b] for a, b in itertools.pairwise(words) if a in toy_reviews.FILLERS["utterly"]]


def concession(review):
    return signs(re.sub("(although|even though|despite) [^,.]*", "", review.text).split())


def mockery(review):
    parts, words = clauses(review.text), review.text.split()
    for clause in parts:
        if "right" in clause:
            return signs(clause)
    nouns = {*itertools.chain(*toy_reviews.WORDS["nouns"])}
    for before, word, after in zip(words, words[1:], words[2:], strict=False):
        of_film = after in FILMS or before == "as" or (before == "this" and word in nouns)
        if word in SIGNS and of_film:
            return [SIGNS[word]]
    return next(signs(clause) for clause in parts if clause[0] == "the" and clause[1] in FILMS)


READERS = {
    "plain": lambda review: signs(review.text.split()),
    "negation": negation,
    "double negation": double_negation,
    "intensifier": intensifier,
    "contrast": lambda review: signs(review.text.split())[-1:],
    "concession": concession,
    "mockery": mockery,
}


@pytest.mark.parametrize("kind", toy_reviews.PATTERNS)
def test_labels_are_what_a_reader_of_this_kind_would_say(corpus, kind):
    naive = set()
    for review in corpus["train"]:
        if review.kind == kind:
            said, sign = READERS[kind](review), {"positive": 1, "negative": -1}[review.label]
            assert set(said) == {sign}, review.text
            naive.add(signs(review.text.split())[-1] == sign)
    # The control: the last such word does not tell, but where it should.
    assert naive == ({True} if kind in ("plain", "contrast") else {True, False})
