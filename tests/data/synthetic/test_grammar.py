"""The generated corpora are right: what is in them, in which shares, and in which split."""

import re
import zlib

import pytest

from meanings import ADVERBIALS
from source_settings import refused
from transformer.data.synthetic import grammar, lexicon
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
    for source, target, _ in pairs:
        for sentence in (source, target):
            assert sentence[0].isupper(), sentence
            assert sentence[-1] in ".?", sentence
            assert sentence == " ".join(sentence.split()), sentence
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", source), source
        assert not re.search(r"\b(in dem|in das|zu dem|zu der|von dem)\b", target), target
        assert not re.search(r"[^,] (weil|dass)\b", target), target


def separable(target):
    """Whether some form of a separable verb is in the sentence."""
    return not SEPARABLE.isdisjoint(re.findall(r"\w+", target)) or bool(
        re.search(rf" ({'|'.join(PREFIXES)})\b[.?,]", target)
    )


WITH_PREFIX = [verb for verb in lexicon.VERBS if verb.prefix]
PREFIXES = {verb.prefix for verb in WITH_PREFIX}
SEPARABLE = {form for verb in WITH_PREFIX for form in (verb.infinitive, verb.participle)} | {
    verb.prefix + form for verb in WITH_PREFIX for form in verb.present.values()
}
PARTICIPLES = "|".join(verb.participle for verb in lexicon.VERBS)
MODALS = "|".join(form for m in lexicon.MODALS for form in m.present.values())
POSSESSIVES = "my|your|his|her|our|their"
PHENOMENA = {
    "adjective ending": lambda s, t: re.search(
        rf"\b({'|'.join(a.stem for a in lexicon.ADJECTIVES)})(e|en|er|es|em)\b", t
    ),
    "possessive": lambda s, t: re.search(rf"\b({POSSESSIVES}) ", s, re.IGNORECASE),
    "genitive": lambda s, t: re.search(r"'s\b", s) or " of the " in s,
    "fronted adverbial": lambda s, t: re.match(rf"({'|'.join(ADVERBIALS)})\b", s, re.IGNORECASE),
    "weil": lambda s, t: "weil" in t.lower(),
    "dass": lambda s, t: " dass " in t,
    "separable verb": lambda s, t: separable(t),
    "perfect with haben": lambda s, t: (
        re.search(r"\b(hat|habe|haben|hast)\b", t, re.IGNORECASE)
        and re.search(rf"\b({PARTICIPLES})\b", t)
    ),
    "perfect with sein": lambda s, t: (
        re.search(r"\b(ist|bin|sind|bist)\b", t, re.IGNORECASE)
        and re.search(rf"\b({PARTICIPLES})\b", t)
    ),
    "nicht": lambda s, t: "nicht" in t,
    "kein": lambda s, t: " kein" in t,
    "modal": lambda s, t: re.search(rf"\b({MODALS})\b", t, re.IGNORECASE),
    "future": lambda s, t: " will " in s or s.startswith("Will "),
    "contraction": lambda s, t: re.search(
        rf"\b({'|'.join(lexicon.CONTRACTIONS.values())})\b", t, re.IGNORECASE
    ),
    "name": lambda s, t: any(name in s for name in lexicon.NAMES),
    "pronoun": lambda s, t: re.search(r"\b(ich|mich|mir|du|dich|dir|ihn|ihm|wir|uns|ihnen)\b", t),
    "question": lambda s, t: s.endswith("?"),
    "compound": lambda s, t: re.search(
        r"train station|swimming pool|washing machine|police officer", s
    ),
}


def test_every_phenomenon_is_in_a_twentieth_of_the_sentences(pairs):
    for name, is_in in PHENOMENA.items():
        assert sum(bool(is_in(s, t)) for s, t, _ in pairs) > 0.05 * len(pairs), name


GENERATORS = [grammar.generate, grammar.copy_sequences, grammar.reverse_sequences]
SIZES = {"train": 150, "validation": 11, "test": 7}


@pytest.fixture(scope="module")
def corpora():
    """A small corpus of each generator, all from one seed."""
    return {generator: generator(5, SIZES) for generator in GENERATORS}


def test_the_corpora_behind_published_numbers_are_what_they_were(corpora):
    # Changes only with the lexicon or the probabilities, and then every result must be run again.
    digests = [zlib.crc32(repr(splits).encode()) for splits in corpora.values()]
    assert digests == [2430023773, 2090377339, 53614442]


@pytest.mark.parametrize(("split", "size"), [("train", 10**9), ("test", -1)])
def test_impossible_sizes_are_refused_by_the_names_of_their_keys(split, size):
    with refused(f"data.{split}_size={size}", "set it", "between 0 and 1000000"):
        grammar.generate(5, {split: size})


def test_drawing_ends_with_the_number_there_is_when_nothing_new_comes(monkeypatch):
    monkeypatch.setattr(grammar, "LETTERS", "a")
    # One sequence for each length from 4 to 12, of which some fall into other splits.
    with pytest.raises(
        UserError, match=r"config\.data\.train_size=30 .* set it to \d or less"
    ) as error:
        grammar.copy_sequences(5, {"train": 30})
    most = int(re.search(r"set it to (\d)", str(error.value))[1])
    assert len(grammar.copy_sequences(5, {"train": most})["train"]) == most
