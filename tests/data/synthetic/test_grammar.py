"""The generated corpora are right: what is in them, in which shares, and in which split."""

import re
import zlib

import pytest

from transformer.data.synthetic import grammar
from transformer.errors import UserError


@pytest.fixture(scope="module")
def pairs():
    """Sentences as drawn, repetitions included."""
    composer = grammar.Composer(seed=2)
    return [composer.sentence() for _ in range(3_000)]


def test_every_word_is_linked_and_links_are_sorted_and_in_range(pairs):
    for pair in pairs:
        sources, targets = zip(*pair.alignment, strict=True)
        assert set(sources) == set(range(len(pair.source.split()))), pair
        assert set(targets) == set(range(len(pair.target.split()))), pair
        assert list(pair.alignment) == sorted(set(pair.alignment))


def test_german_is_a_function_of_english(pairs):
    german = {}
    for pair in pairs:
        assert german.setdefault(pair.source, pair.target) == pair.target, pair


def test_sentences_are_well_formed(pairs):
    for source, target, *_ in pairs:
        for sentence in (source, target):
            assert sentence[0].isupper(), sentence
            assert sentence[-1] in ".?", sentence
            assert sentence == " ".join(sentence.split()), sentence
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", source), source
        assert not re.search(r"\b(in dem|in das|zu dem|zu der|von dem)\b", target), target
        assert not re.search(r"[^,] (weil|dass)\b", target), target


GENERATORS = [grammar.generate, grammar.copy_sequences, grammar.reverse_sequences]
SIZES = {"train": 150, "validation": 11, "test": 7}


@pytest.fixture(scope="module")
def corpora():
    """A small corpus of each generator, all from one seed."""
    return {generator: generator(5, SIZES) for generator in GENERATORS}


def test_the_corpora_behind_published_numbers_are_what_they_were(corpora):
    # Changes only with the lexicon or the probabilities, and then every result must be run again.
    digests = [
        zlib.crc32(repr(splits).replace(", further=()", "").encode()) for splits in corpora.values()
    ]
    assert digests == [2430023773, 2090377339, 53614442]


def test_drawing_ends_with_the_number_there_is_when_nothing_new_comes(monkeypatch):
    monkeypatch.setattr(grammar, "LETTERS", "a")
    # One sequence for each length from 4 to 12, of which some fall into other splits.
    with pytest.raises(
        UserError, match=r"config\.data\.train_size=30 .* set it to \d or less"
    ) as error:
        grammar.copy_sequences(5, {"train": 30})
    most = int(re.search(r"set it to (\d)", str(error.value))[1])
    assert len(grammar.copy_sequences(5, {"train": most})["train"]) == most
