"""Each filter of cleaning finds its kind of noise, and next to nothing else."""

import builtins
import dataclasses

import pytest

from source_settings import settings
from transformer.data.cleaning import filters
from transformer.data.cleaning.filters import (
    folded,
    is_copied,
    is_mojibake,
    numbers_differ,
    scripts_of,
)
from transformer.data.cleaning.rules import FAULTS, REASONS, CleaningReport, CleaningRules, rules_of
from transformer.data.cleaning.survey import duplicates, survey
from transformer.data.pairs import Pair
from transformer.data.synthetic import grammar
from transformer.errors import UserError

RULES = CleaningRules(2000, 9.0, remove_duplicates=False)
OFF = CleaningRules(2000, float("inf"), remove_duplicates=False)


# Of each filter: the keys that switch it on, and the target of its noise given the source, the
# target and a number.
FILTERS = {
    "length_ratio": ({"max_length_ratio": 3.0}, lambda s, t, i: " ".join([t] * 5)),
    "mojibake": ({"remove_mojibake": True}, lambda s, t, i: f"ä{t}".encode().decode("latin-1")),
    "copied": ({"remove_copies": True}, lambda s, t, i: s.upper() if i % 2 else s),
    "numbers": ({"match_numbers": True}, lambda s, t, i: f"{t.partition('(')[0]}({5000 + i})"),
    "language": (
        {"languages": ("en", "de")},
        lambda s, t, i: f"Mon voisin cherche {i} fleurs pour sa mère.",
    ),
    "script": (
        {"min_script_fraction": 0.05},
        lambda s, t, i: f"Мой сосед ищет {i} книг своей сестры.",
    ),
    "duplicate": ({"remove_duplicates": True}, lambda s, t, i: t),
    "near_duplicate": ({"remove_near_duplicates": True}, lambda s, t, i: f"{t.upper()}!!"),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_finds_nearly_all_of_its_noise_and_drops_no_clean_pair(name):
    changes, noise = FILTERS[name]
    pairs = grammar.generate(3, {"train": 440})["train"]
    if name == "numbers":  # of each pair, as each language writes it
        numbers = [(f"{1000 + i:,}", f"{1000 + i:,}".replace(",", ".")) for i in range(440)]
        pairs = [
            Pair(f"{pair.source} ({own})", f"{pair.target} ({other})")
            for pair, (own, other) in zip(pairs, numbers, strict=True)
        ]
    clean = list({(pair.source, pair.target): pair for pair in pairs}.values())[:400]
    noisy = [Pair(s, noise(s, t, i)) for i, (s, t, *_) in enumerate(clean[:20])]
    found, rules = survey([*clean, *noisy], dataclasses.replace(OFF, **changes))
    faults = [FAULTS[number] for number in duplicates(found, rules)]
    assert faults[:400] == [""] * 400
    assert faults[400:].count(name) >= 19


@pytest.mark.parametrize(
    ("source", "target", "copied"),
    [
        ("The old man bought a house.", "The old man bought a house.", True),
        ("The old man bought a house.", "THE OLD MAN BOUGHT A HOUSE", True),
        ("The old man bought a new house.", "The old man bought a house.", True),
        ("Привет, это мой старый дом.", "Привет, это мой старый дом.", True),
        ("The old man bought a house.", "Der alte Mann kaufte ein Haus.", False),
        ("New York City", "New York City", False),  # a name is its own translation
        ("12345 67890 12345 67890", "12345 67890 12345 67890", False),
        ("Tom and Mary saw Bob in Rome.", "Tom und Mary sahen Bob in Rom.", False),
        # Names of options are no words.
        (
            "Use --no-install-recommends or --fix-broken",
            "Nimm --no-install-recommends oder --fix-broken",
            False,
        ),
        ("You may read the whole file.txt here", "You may read the whole file.txt", True),
    ],
)
def test_a_copy_is_most_of_the_source_and_more_than_a_name(source, target, copied):
    assert is_copied(source, target) == is_copied(target, source) == copied


@pytest.mark.parametrize(
    ("source", "target", "differ"),
    [
        ("It costs 1,000 euros.", "Es kostet 1.000 Euro.", False),
        ("It costs 1 000.50 euros.", "Es kostet 1'000,50 Euro.", False),
        ("Page ٣٤٥٦", "Seite 3456", False),
        ("in 12 years", "in zwölf Jahren", False),
        ("2 of 5 dogs", "zwei von 5 Hunden", False),
        ("in 1999", "im Jahr 1998", True),
        ("in 1999", "damals", False),  # "neunzehnhundertneunundneunzig"
    ],
)
def test_numbers_are_compared_by_digits_however_they_are_written(source, target, differ):
    assert numbers_differ(source, target) == numbers_differ(target, source) == differ


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Ã¼ber den Fluss", True),
        ("donâ€™t", True),
        ("ÐŸÑ€Ð¸Ð²ÐµÑ‚", True),
        ("f\ufffdr immer", True),
        ("über den Fluß – „Öl“ für 5 €", False),
        ("Привет, это мой дом.", False),
        ("该模型完全依靠注意力", False),
        ("plain", False),
    ],
)
def test_text_in_a_wrong_encoding_is_told_from_foreign_letters(text, wrong):
    assert is_mojibake(text) == wrong


def test_the_first_script_is_that_of_most_letters():
    texts = ("Haus №5", "Привет, Tom!", "彼はトムです。", "ჰ", "12 - 5", "𐌰𐌱")
    expected = ["LATIN", "CYRILLIC", "CJK", "GEORGIAN", "", "OTHER"]
    assert [scripts_of(9 * text)[0] for text in texts] == expected
    assert scripts_of(9 * texts[1])[1] == "LATIN"
    assert scripts_of("a name or two") == ("", "")


def test_a_script_that_few_sentences_of_a_side_have_is_dropped_there_alone():
    russian, english = "Привет, мой старый друг", "hello, my old friend of all"
    pairs = [Pair(f"{russian} {i}", f"{english} {i}") for i in range(97)]
    pairs += [Pair(english, english), Pair(russian, russian), Pair("5", "5")]
    rules = dataclasses.replace(RULES, min_script_fraction=0.02)
    found, known = survey(pairs, rules)
    names = [FAULTS[number] for number in found.faults]
    assert names == [""] * 97 + ["script", "script", ""]
    # Held-out pairs are judged by the same.
    assert [known.fault(*pair[:2]) for pair in pairs] == names
    assert set(survey(pairs, RULES)[0].faults) == {0}


def test_near_duplicates_differ_in_no_letter():
    assert folded("Wait, 12 dogs!") == folded("wait... 7 DOGS") != folded("Wait, cats!")


def test_a_short_sentence_is_not_lost_for_its_language_and_a_long_one_in_another_is():
    rules = dataclasses.replace(RULES, languages=("en", "de"))
    assert rules.fault("OK.", "OK.") == rules.fault("Tom!", "Tom!") == ""
    assert rules.fault("Where is my dog today?", "Wo ist mein Hund heute?") == ""
    french = "Où est mon chien aujourd'hui, ma chère voisine ?"
    assert rules.fault("Where is my dog today?", french) == "language"
    assert rules.fault("Wo ist mein Hund heute?", "Where is my dog today?") == "language"
    assert dataclasses.replace(rules, languages=("en", "")).fault("Where is it?", french) == ""


def test_an_unknown_language_is_refused_with_those_that_are_known():
    with pytest.raises(UserError, match=r"languages: 'xx' is unknown: .*such as en,de.* de,"):
        dataclasses.replace(RULES, languages=("en", "xx"))
    for wrong, meant in (("ua", "uk"), ("pt_BR", "pt"), ("EN", "en")):
        with pytest.raises(UserError, match=f"'{wrong}' is unknown: .* did you mean '{meant}'"):
            dataclasses.replace(RULES, languages=(wrong, "de"))
    with pytest.raises(UserError, match=r"languages=\('en',\): give the codes of two"):
        rules_of(settings(languages=("en",)))


def test_without_its_library_the_filter_says_how_to_install_it(monkeypatch):
    load = builtins.__import__

    def missing(name, *args, **keywords):
        if name.startswith("py3langid"):
            raise ModuleNotFoundError(name)
        return load(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", missing)
    filters._identifier.cache_clear()
    with pytest.raises(UserError, match="`pip install py3langid`, or leave"):
        dataclasses.replace(RULES, languages=("en", "de"))
    monkeypatch.undo()
    assert dataclasses.replace(RULES, languages=("en", "de"))  # a control


def test_every_reason_has_its_count_in_the_report():
    report = CleaningReport()
    for number, fault in enumerate(FAULTS, 1):
        report.count(fault, number)
    assert sum(report.dropped.values()) == report.total - report.kept
    assert list(report.dropped) == list(REASONS.values())
