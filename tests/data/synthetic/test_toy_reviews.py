"""The synthetic reviews are balanced and disjoint; the order of words decides their labels."""

import collections

from transformer.data.synthetic import toy_reviews

SIZES = {"train": 2000, "validation": 51, "test": 300}
SIGNS = {
    word: sign
    for lists in toy_reviews.WORDS.values()
    for sign, words in zip((1, -1), lists, strict=True)
    for word in words
}


def test_twins_have_the_same_words_and_opposite_labels_and_splits_share_none():
    corpus = toy_reviews.generate(3, SIZES)
    assert {split: len(reviews) for split, reviews in corpus.items()} == SIZES
    texts = [review.text for reviews in corpus.values() for review in reviews]
    assert len({*texts}) == len(texts)
    endings = collections.defaultdict(set)
    for one, other in zip(corpus["train"][::2], corpus["train"][1::2], strict=True):
        assert (one.label, other.label) == ("positive", "negative")
        assert one.kind == other.kind
        same = sorted(one.text.split()) == sorted(other.text.split())
        assert same is (one.kind != "plain"), one.text
        last = [SIGNS[word] for word in one.text.split() if word in SIGNS][-1]
        endings[one.kind].add(last)
    # The last word with a sign decides only these kinds.
    assert {kind for kind, signs in endings.items() if signs == {1}} == {"plain", "contrast"}
