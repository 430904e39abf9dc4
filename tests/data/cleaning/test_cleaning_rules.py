"""Cleaning keeps what is a sentence pair, finds each kind of noise, and counts it by its reason."""

import dataclasses
import math

import pytest

from transformer.data.cleaning import (
    FAULTS,
    CleaningReport,
    CleaningRules,
    check_kept,
    is_copied,
    is_mojibake,
    numbers_differ,
    scripts_of,
)
from transformer.data.pairs import Pair
from transformer.data.parallel.training_pairs import clean, duplicates, survey
from transformer.data.synthetic import grammar
from transformer.errors import UserError

RULES = CleaningRules(max_characters=50, max_length_ratio=3.0, remove_duplicates=True)
OFF = CleaningRules(2000, math.inf, remove_duplicates=False)


def cleaned(pairs, rules=RULES):
    result = clean(pairs, rules, {})
    return list(result.cleaned), result.report


def test_every_dropped_pair_is_counted_under_its_first_reason():
    pairs = [
        Pair("Guten Tag", "Good day"),
        Pair("", "Good day"),
        Pair("Guten Tag", " \t\u3000"),
        Pair("a" * 51, "b" * 51),
        Pair("a" * 51, "b"),  # also of different lengths, but too long first
        Pair("Ein kurzer Satz.", "This one goes on and on, longer than it need be."),
        Pair("ja", "b" * 40),
        Pair("Guten Tag", "Good day"),
    ]
    kept, report = cleaned(pairs)
    assert kept == [pairs[0], pairs[5]]
    counts = {fault: count for fault, count in report.counts.items() if count}
    assert counts == {"": 2, "empty": 2, "too_long": 2, "length_ratio": 1, "duplicate": 1}
    assert report.total == 8


@pytest.mark.parametrize(
    ("pair", "fault"),
    [
        (("ä" * 50, "b" * 50), ""),
        (("ä" * 51, "b" * 50), "too_long"),
        # (50 + 10) / (10 + 10) is 3, (50 + 10) / (9 + 10) is more.
        (("a" * 10, "b" * 50), ""),
        (("a" * 9, "b" * 50), "length_ratio"),
        (("Ja.", "Yes, of course I do."), ""),
    ],
)
def test_the_limits_are_of_characters_and_of_lengths_plus_ten(pair, fault):
    assert RULES.fault(*pair) == RULES.fault(*pair[::-1]) == fault
    longer = dataclasses.replace(RULES, max_characters=51, max_length_ratio=math.inf)
    assert longer.fault(*pair) == ""  # a control


def test_chinese_passes_by_its_bytes_and_russian_by_its_characters():
    chinese = Pair(
        "The Transformer relies entirely on attention, dispensing with recurrence and convolution.",
        "该模型完全依靠注意力,不用循环和卷积。",
    )
    russian = Pair("Ы" * 40, "y" * 40)
    characters, bytes_ = [len(side) for side in chinese[:2]], [len(s.encode()) for s in russian[:2]]
    tight = CleaningRules(1000, 1.75, True)
    # Each would fall by the other's measure.
    assert (characters[0] + 10) / (characters[1] + 10) > 1.75
    assert (bytes_[0] + 10) / (bytes_[1] + 10) > 1.75
    assert cleaned([chinese, russian], tight)[0] == [chinese, russian]


def test_only_pairs_equal_on_both_sides_are_duplicates():
    pairs = [Pair("a", "b"), Pair("a", "c"), Pair("d", "b"), Pair(" a", "b "), Pair("ab", "")]
    kept, report = cleaned(pairs)
    assert kept == pairs[:3]
    assert report.dropped == {"repeated": 1, "with an empty side": 1}
    assert cleaned(pairs[:1] * 3, CleaningRules(50, 3.0, False))[0] == pairs[:1] * 3


def test_text_that_moves_from_one_side_to_the_other_is_no_duplicate():
    pairs = [Pair("x y", "z"), Pair("x", "y z"), Pair("xy", "z"), Pair("x", "yz")]
    assert cleaned(pairs)[0] == pairs


def test_a_corpus_of_which_nothing_is_left_is_refused_with_the_counts():
    _, report = cleaned([Pair("", "a"), Pair("b" * 60, "c" * 60)])
    message = "kept 0 of 2 .* 1 with an empty side, 1 over config.data.max_characters; raise the"
    with pytest.raises(UserError, match=message):
        check_kept(report)
    check_kept(CleaningReport({"": 1}))


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
    rules = dataclasses.replace(OFF, **changes)
    faults = [FAULTS[i] for i in duplicates(survey([*clean, *noisy], rules), rules)]
    assert faults[:400] == [""] * 400
    assert faults[400:].count(name) >= 19


@pytest.mark.parametrize(
    ("source", "target", "copied"),
    [
        ("The old man bought a house.", "The old man bought a house.", True),
        ("The old man bought a house.", "THE OLD MAN BOUGHT A HOUSE", True),
        ("The old man bought a new house.", "The old man bought a house.", True),
        ("The old man bought a house.", "Der alte Mann kaufte ein Haus.", False),
        ("New York City", "New York City", False),  # a name is its own translation
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
        ("f\ufffdr immer", True),
        ("über den Fluß – „Öl“ für 5 €", False),
        ("该模型完全依靠注意力", False),
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
    rules = dataclasses.replace(OFF, min_script_fraction=0.02)
    names = [FAULTS[number] for number in survey(pairs, rules).faults]
    assert names == [""] * 97 + ["script", "script", ""]
    assert set(survey(pairs, OFF).faults) == {0}


def test_a_short_sentence_is_not_lost_for_its_language_and_a_long_one_in_another_is():
    rules = dataclasses.replace(OFF, languages=("en", "de"))
    assert rules.fault("OK.", "OK.") == rules.fault("Tom!", "Tom!") == ""
    assert rules.fault("Where is my dog today?", "Wo ist mein Hund heute?") == ""
    french = "Où est mon chien aujourd'hui, ma chère voisine ?"
    assert rules.fault("Where is my dog today?", french) == "language"
    assert rules.fault("Wo ist mein Hund heute?", "Where is my dog today?") == "language"
    assert dataclasses.replace(rules, languages=("en", "")).fault("Where is it?", french) == ""
