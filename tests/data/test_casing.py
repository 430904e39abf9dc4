"""A line in capitals or title case is read in sentence case, any other as it is."""

import pytest

from transformer.data.characters import read_case, write_case

SYMBOLS = ("<2de>", "{NAME}", "<URL>")


@pytest.mark.parametrize(
    ("line", "read", "text", "written"),
    [
        ("DO NOT TOUCH IT!", "Do not touch it!", "Fass es nicht an!", "FASS ES NICHT AN!"),
        ("The Dogs Are In Rome", "The dogs are in rome", "l'ami y va", "L'ami Y Va"),
        ("I WENT. THEY CAME.", "I went. They came.", "große Straße", "GROSSE STRASSE"),
        ("<2de> WHERE IS {NAME}?", "<2de> Where is {NAME}?", "wo ist {NAME}", "WO IST {NAME}"),
        (
            "<2de> Where Is My {NAME}, Tom?",
            "<2de> Where is my {NAME}, tom?",
            "a {NAME}",
            "A {NAME}",
        ),
        ("¿DÓNDE ESTÁS?", "¿Dónde estás?", "where?", "WHERE?"),
    ],
)
def test_the_case_of_a_line_is_that_of_its_translation(line, read, text, written):
    assert read_case(line, SYMBOLS) == read
    assert write_case(text, line, SYMBOLS) == written


@pytest.mark.parametrize(
    "line",
    [
        "USA",  # an acronym
        "The NATO met in Rome.",
        "Is Tom German?",  # three words are no title
        "Anna and Tom Like Rome",
        "他在看书。",
        "{NAME} <URL>",
        "",
    ],
)
def test_other_lines_and_their_translations_stay(line):
    assert read_case(line, SYMBOLS) == line
    assert write_case("Wie es ist", line, SYMBOLS) == "Wie es ist"
