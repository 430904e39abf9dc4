"""Cleaning keeps what is a sentence pair and counts the rest by its reason."""

import math
import random
import weakref

import pytest

from transformer.data.cleaning import survey
from transformer.data.cleaning.rules import CleaningReport, CleaningRules, check_kept
from transformer.data.pairs import Pair, canonical
from transformer.data.parallel.training import clean
from transformer.errors import UserError

RULES = CleaningRules(max_characters=50, max_length_ratio=3.0, remove_duplicates=True)


def cleaned(pairs, rules=RULES):
    found = clean(pairs, rules, {})
    return list(found.cleaned), found.report


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
    assert report == CleaningReport(
        total=8, kept=2, empty=2, too_long=2, length_ratio=1, duplicate=1
    )


@pytest.mark.parametrize("blank", ["\u200b", "\ufeff", "\u00ad", "\u200b \u2060", "\x00"])
def test_a_side_without_a_character_that_is_seen_is_empty(blank):
    pairs = [Pair("Guten Tag", blank), Pair(blank, "Good day"), Pair("Guten Tag", f"Good{blank}!")]
    kept, report = cleaned(pairs)
    assert kept == [Pair("Guten Tag", "Good !" if " " in blank else "Good!")]
    assert report == CleaningReport(total=3, kept=1, empty=2)


def test_white_space_around_sentences_and_more_than_one_blank_goes_and_alignment_stays():
    [pair], _ = cleaned([Pair("  ein  Haus\r", "\u00a0a  house \t", ((0, 0), (1, 1)))])
    assert pair == Pair("ein Haus", "a house", ((0, 0), (1, 1)))


def test_a_side_may_have_exactly_the_largest_number_of_characters():
    pairs = [Pair("ä" * 50, "b" * 50), Pair("ä" * 51, "b" * 50), Pair("ä" * 50, "b" * 51)]
    assert cleaned(pairs)[0] == pairs[:1]


@pytest.mark.parametrize("swap", [False, True])
def test_the_length_ratio_is_taken_over_lengths_plus_ten(swap):
    # (50 + 10) / (10 + 10) is 3, (50 + 10) / (9 + 10) is more.
    pairs = [Pair("a" * 10, "b" * 50), Pair("a" * 9, "b" * 50)]
    pairs = [Pair(p.target, p.source) for p in pairs] if swap else pairs
    assert cleaned(pairs)[0] == pairs[:1]


def test_short_sentences_may_differ_by_more_than_the_ratio():
    pair = Pair("Ja.", "Yes, of course I do.")
    assert len(pair.target) > 3 * len(pair.source)
    assert cleaned([pair])[0] == [pair]


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


def test_an_infinite_ratio_keeps_any_lengths():
    pair = Pair("a", "b" * 50)
    assert cleaned([pair])[0] == []
    assert cleaned([pair], CleaningRules(50, math.inf, True))[0] == [pair]


def test_only_pairs_equal_on_both_sides_are_duplicates():
    pairs = [Pair("a", "b"), Pair("a", "c"), Pair("d", "b"), Pair(" a", "b "), Pair("ab", "")]
    kept, report = cleaned(pairs)
    assert kept == pairs[:3]
    assert (report.duplicate, report.empty) == (1, 1)


@pytest.mark.parametrize("glue", ["", " ", "\t", "\0", "1 "])
def test_text_that_moves_from_one_side_to_the_other_is_no_duplicate(glue):
    pairs = [
        Pair(f"x{glue}y", "z"),
        Pair("x", f"y{glue}z"),
        Pair("x", f"{glue}yz"),
        Pair("xy", "z"),
    ]
    pairs = list(dict.fromkeys(map(canonical, pairs)))
    assert cleaned(pairs)[0] == pairs


def test_duplicates_stay_if_they_are_wanted():
    pairs = [Pair("a", "b")] * 3
    assert cleaned(pairs, CleaningRules(50, 3.0, False))[0] == pairs


def test_a_survey_holds_three_chunks_of_text_and_a_few_bytes_for_each_pair(monkeypatch):
    class Text(str):
        """A string that can be watched."""

    alive, most = weakref.WeakSet(), 0

    class Pairs:
        def __iter__(self):
            nonlocal most
            for i in range(1000):
                sides = Text(f"{i} a"), Text(f"{i} b")
                alive.update(sides)
                most = max(most, len(alive))
                yield Pair(*sides)

    monkeypatch.setattr(survey, "AT_ONCE", 10)
    found, _ = survey.survey(Pairs(), RULES, processes=1)
    assert 20 <= most <= 62
    assert sum(array.nbytes for array in found) <= 30 * 1000


def test_kept_and_dropped_add_up_to_the_total():
    rng = random.Random(7)
    pairs = [Pair("a" * rng.randrange(60), "b" * rng.randrange(60)) for _ in range(997)]
    kept, report = cleaned(pairs)
    dropped = report.empty + report.too_long + report.length_ratio + report.duplicate
    assert report.total == 997 == len(kept) + dropped
    assert min(report.empty, report.too_long, report.length_ratio, report.duplicate) > 0


def test_the_report_is_one_line_that_names_only_what_was_dropped():
    report = CleaningReport(total=12345, kept=12000, duplicate=340, too_many_tokens=5)
    assert str(report) == (
        "kept 12,000 of 12,345 sentence pairs; dropped 340 repeated, 5 over config.data.max_tokens"
    )
    assert str(CleaningReport(total=3, kept=3)) == "kept 3 of 3 sentence pairs"


def test_a_fault_of_more_than_half_of_the_pairs_asks_what_is_wrong():
    assert str(CleaningReport(total=9, kept=4, language=5)).endswith(
        "in another language: do config.data.languages name the source first, then the target?"
    )
    assert str(CleaningReport(total=10, kept=5, language=5)).endswith("in another language")


def test_a_corpus_of_which_nothing_is_left_is_refused_with_the_counts():
    _, report = cleaned([Pair("", "a"), Pair("b" * 60, "c" * 60)])
    with pytest.raises(UserError) as error:
        check_kept(report)
    message = str(error.value)
    assert "kept 0 of 2" in message
    assert "1 with an empty side" in message
    assert "1 over config.data.max_characters" in message
    assert "raise" in message
    assert "\n" not in message
    check_kept(CleaningReport(total=1, kept=1))
