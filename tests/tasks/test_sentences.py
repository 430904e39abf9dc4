"""Where sentences end, in many languages."""

import pytest

from places import ROOT
from transformer.inference.segments import learn_words, split_sentences


# The rules were written with `lines`; how they do on other text, `held_back` shows.
@pytest.mark.parametrize(("name", "most"), [("lines", 0), ("held_back", 1)])
def test_sentences_of_53_languages_end_where_they_do(name, most):
    text = (ROOT / f"tests/tasks/sentences/{name}.txt").read_text("utf-8")
    wrong = []
    for line in text.splitlines():
        language, text = line.split(" ", 1)
        parts = split_sentences(text.replace("|", ""), language)
        if [part.strip() for part in parts] != [part.strip() for part in text.split("|")]:
            wrong.append((line, parts))
    assert len(wrong) <= most, wrong


def test_an_unknown_language_has_the_abbreviations_of_all_and_other_marks_than_its_own():
    text = "Jl. Melati No. 5 и ул. Роза бр. 7. Dr. Bo dort. 我来了。১টি है। नहीं"
    sentences = [
        "Jl. Melati No. 5 и ул. Роза бр. 7. ",
        "Dr. Bo dort. ",
        "我来了。",
        "১টি है। ",
        "नहीं",
    ]
    assert split_sentences(text, "") == split_sentences(text, "xyz") == sentences


TEXT = (
    *["They live in Bukitk. Ampang here", "Bukitk. 5 is far", "See Bukitk. and Solo."] * 3,
    *["I saw the trg.", "The trg is big.", "I saw Tom. He saw me and Tom.", "Tom is here."] * 5,
    *["Fr. Bo saw Mt. Ida", "Mt. Ida is high", "Hi. Bo is here. He has Mt. Ida."] * 5,
)


def test_the_training_text_shows_which_words_are_abbreviations():
    words = learn_words(TEXT, "en")
    assert words == {"Bukitk": True, "trg": False}
    for text, ends in (
        ("In Bukitk. Lama.", True),
        ("A trg. It is.", False),
        ("I am Tom. A b", True),
    ):
        assert (len(split_sentences(text, "id")) > 1) == ends
        is_ended = len(split_sentences(text, "id", words)) > 1
        assert is_ended == ("Bukitk" not in text), text


def test_words_of_a_run_are_no_patterns():
    words = {"(a+)+": True, "a|b": True, ".*": True, "Xy": True}
    assert split_sentences("One. Two.", "en", words) == ["One. ", "Two."]


@pytest.mark.parametrize("part", [".!", "a. ", "1. "])
def test_no_text_takes_long(part):
    text = part * (5_000 // len(part))  # a page of a server takes as many characters
    assert "".join(split_sentences(text, "")) == text
