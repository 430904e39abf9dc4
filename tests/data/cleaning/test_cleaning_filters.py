"""Each filter of cleaning finds its kind of noise, and next to nothing else."""

import builtins
import dataclasses
import gzip

import pytest

from experiments.studies.cleaning import FILTERS, generated_pairs, noisy_corpus, run, scores
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
from transformer.data.cleaning.survey import survey
from transformer.data.pairs import Pair
from transformer.errors import UserError

RULES = CleaningRules(2000, 9.0, remove_duplicates=False)


@pytest.fixture(scope="module")
def corpus():
    return noisy_corpus(generated_pairs(1000, seed=3), 500, seed=3)


@pytest.fixture(scope="module")
def found(corpus):
    """Precision and recall of each filter."""
    return scores(corpus)


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_finds_nearly_all_of_its_noise_and_drops_no_clean_pair(found, name):
    assert found[name]["recall"] >= 0.95
    assert found[name]["precision"] >= 0.99
    assert found[name]["pairs"] >= 2


def test_without_their_noise_the_scores_would_fall(corpus):
    # The control: what is called clean here are copies.
    kinds = ["" if kind == "copied" else kind for kind in corpus.kinds]
    kinds[0] = "copied"
    assert scores(corpus._replace(kinds=kinds), ["copied"])["copied"]["precision"] < 0.1


def test_noisy_text_is_written_with_its_clean_part_and_the_kinds_of_noise(tmp_path):
    lines = [(f"{pair.source}\n", f"{pair.target}\n") for pair in generated_pairs(2000)]
    for side, texts in zip(("en", "de"), zip(*lines, strict=True), strict=True):
        (tmp_path / f"train.{side}.gz").write_bytes(gzip.compress("".join(texts).encode()))
    arguments = [f"--clean={tmp_path}", f"--noisy={tmp_path / 'out'}"]
    with pytest.raises(UserError, match="set --pairs=1000 or less"):
        run([*arguments, "--pairs=1001"])
    run([*arguments, "--pairs=1000"])
    read = {path.name: path.read_text().splitlines() for path in (tmp_path / "out").iterdir()}
    noisy = [*zip(read["noisy.en"], read["noisy.de"], read["noisy.kinds"], strict=True)]
    assert len(noisy) == 1000
    clean = [pair[:2] for pair in noisy if not pair[2]]
    assert clean == [*zip(read["clean.en"], read["clean.de"], strict=True)]
    assert {*clean} <= {tuple(text.strip() for text in pair) for pair in lines}


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
