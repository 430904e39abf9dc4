"""The lines of a document are its texts without codes, and come back to their places."""

import pytest

from transformer.data.formats.document import Segment, TextDocument, Unit
from transformer.data.formats.lines import DocumentLines, divide

TIMES = [(0, 1), (1.2, 2), (2, 3), (8, 9), (9, 10)]  # seconds


def document(*texts, has_rows=False, times=(), target=""):
    """A document whose units are these texts, which `|` divides into segments."""
    whole, units = "", []
    for number, text in enumerate(texts):
        segments = []
        for part in text.split("|"):
            gap = " " * (part.startswith(" ") and bool(segments))
            part = part.removeprefix(gap)
            place = len(whole), len(whole) + len(part)
            segments.append(Segment(part, (place,), part, gap=gap))
            whole += part + "|"
        units.append(Unit(segments, target, times=times[number] if times else None))
    result = TextDocument(whole, units, str)
    result.has_rows = has_rows
    return result


def translated(lines, translate=str.upper):
    return lines.write([translate(line) for line in lines.lines]).decode().split("|")[:-1]


def test_each_text_is_a_line_and_outer_white_space_stays():
    lines = DocumentLines(document(" one \n two", "3 – 4", "a"))
    assert lines.lines == ["one two", "a"]
    assert translated(lines) == [" ONE TWO", "3 – 4", "A"]


def test_a_text_with_tags_is_one_line_and_divided_at_words_and_punctuation():
    lines = DocumentLines(document("The old teacher sees| two birds|.", "a| b"))
    assert (lines.lines, lines.divided) == (["The old teacher sees two birds.", "a b"], 2)
    german = {lines.lines[0]: "Der alte Lehrer sieht zwei Vögel.", "a b": "c"}
    parts = ["Der alte Lehrer sieht", "zwei Vögel", ".", "c", ""]
    assert translated(lines, german.get) == parts


def test_rows_of_a_message_are_lines_of_their_own():
    lines = DocumentLines(document("one\n\n two\n", has_rows=True))
    assert lines.lines == ["one", "two"]
    assert translated(lines) == ["ONE\n\n TWO\n"]


@pytest.mark.parametrize(
    ("text", "translation", "result"),
    [
        ("%s files in {name}", "in {name} %s Dateien", "in {name} %s Dateien"),  # all codes came
        ("%s files in {name}", "Dateien in {name}", "%s FILES IN {name}"),
        ("%(n)d%% of <b>it</b>", "%(n)d %% von <b>ihm", "%(n)d%% OF <b>IT</b>"),
        ("{} and {}", "{} und", "{} AND {}"),
    ],
)
def test_a_code_that_a_translation_lacks_stays_where_it_was(text, translation, result):
    lines = DocumentLines(document(text))
    assert lines.lines[0] == text
    assert translated(lines, lambda x: translation if x == text else x.upper()) == [result]


def test_entries_with_a_translation_stay_unless_asked():
    texts = document("one", "two", target="zwei")
    lines = DocumentLines(texts)
    assert (lines.lines, lines.left_out) == ([], 2)
    assert translated(lines) == ["one", "two"]
    assert DocumentLines(texts, retranslates=True).lines == ["one", "two"]


def test_a_sentence_over_subtitles_is_one_line_and_divided_by_length():
    texts = "I have never\nseen", "such a thing.", "Good bye", "my friend", "- A?\n- B!"
    lines = DocumentLines(document(*texts, times=TIMES))
    whole = "I have never seen such a thing."
    # A pause ends a sentence, and so does a speaker.
    assert lines.lines == [whole, "Good bye", "my friend", "- A?", "- B!"]
    german = {whole: "So etwas habe ich noch niemals gesehen."}
    first = ["So etwas\nhabe ich noch", "niemals gesehen."]
    assert translated(lines, lambda line: german.get(line, line)) == [*first, *texts[2:]]


def test_a_text_is_divided_at_spaces_or_between_chinese_characters():
    assert divide("aa bb cc dd", [1, 1]) == ["aa bb", "cc dd"]
    assert divide("aa bb cc dd", [1, 3]) == ["aa", "bb cc dd"]
    assert divide("我没有见过", [1, 1]) == ["我没", "有见过"]
    assert divide("one", [1, 1, 1]) == ["one", "", ""]
