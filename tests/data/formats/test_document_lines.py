"""The lines of a document are its texts without codes, and come back to their places."""

import pytest
from test_tags import pieces_of

from transformer.data.formats.document import TextDocument, Unit
from transformer.data.formats.lines import DocumentLines, divide
from transformer.data.formats.tags import Aligned

TIMES = [(0, 1), (1.2, 2), (2, 3), (8, 9), (9, 10)]  # seconds


def document(*texts, has_rows=False, times=(), target="", has_tags=True):
    """A document whose units are these texts, with a bar after each."""
    whole, units = "", []
    for number, text in enumerate(texts):
        pieces = pieces_of(text, len(whole)) if has_tags else [text]
        place = len(whole), len(whole) + len(text)
        time = times[number] if times else None
        units.append(Unit(pieces, (place,), pieces, target=target, times=time))
        whole += text + "|"
    result = TextDocument(whole, units, str)
    result.has_rows = has_rows
    return result


def translated(lines, translate=str.upper, links=()):
    outputs = [Aligned(translate(line), links) for line in lines.lines]
    return lines.write(outputs).decode().split("|")[:-1]


def test_each_text_is_a_line_and_outer_white_space_stays():
    lines = DocumentLines(document(" one \n two", "3 – 4", "a"))
    assert lines.lines == ["one two", "a"]
    assert translated(lines) == [" ONE TWO", "3 – 4", "A"]


def test_a_text_with_tags_is_one_line_and_its_tags_follow_the_links():
    lines = DocumentLines(document("The old teacher sees <b>two <i/>birds</b>.", "a"))
    assert (lines.lines, lines.tagged) == (["The old teacher sees two birds.", "a"], 1)
    german = {lines.lines[0]: "Zwei Vögel sieht der alte Lehrer.", "a": "b"}
    links = [(0, 3), (1, 4), (2, 5), (3, 2), (4, 0), (5, 1)]
    right = ["<b>Zwei <i/>Vögel</b> sieht der alte Lehrer.", "b"]
    assert translated(lines, german.get, links) == right


def test_tags_of_a_subtitle_stay_in_it_though_its_sentence_goes_on():
    lines = DocumentLines(document("I <i>have\nseen", "such</i> a thing.", times=TIMES))
    assert lines.lines == ["I have seen such a thing."]
    parts = translated(lines, lambda line: "Ich habe so etwas hier gesehen.", [(1, 1), (3, 3)])
    assert parts == ["Ich\n<i>habe so", "etwas</i> hier gesehen."]


def test_rows_of_a_message_are_lines_of_their_own():
    lines = DocumentLines(document("one\n\n two\n", has_rows=True))
    assert lines.lines == ["one", "two"]
    assert translated(lines) == ["ONE\n\n TWO\n"]


def test_tags_may_enclose_words_of_several_rows_and_speakers():
    lines = DocumentLines(document("a <b>b\n\nc</b> d", has_rows=True))
    assert lines.lines == ["a b", "c d"]
    assert translated(lines, links=[(0, 1), (1, 0)]) == ["<b>A B\n\nC D</b>"]
    assert translated(lines, links=[(0, 0), (1, 1)]) == ["A <b>B\n\nC</b> D"]
    lines = DocumentLines(document("- a\n- <b>c</b> d", times=TIMES))
    assert lines.lines == ["- a", "- c d"]
    assert translated(lines, links=[(1, 1), (2, 2)]) == ["- A\n- <b>C</b> D"]


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
    lines = DocumentLines(document(text, has_tags=False))
    assert lines.lines[0] == text
    assert translated(lines, lambda x: translation if x == text else x.upper()) == [result]


def test_links_go_on_around_a_code_that_a_translation_lacks():
    lines = DocumentLines(document("see <b>file</b> %s-x of <i>it</i>"))
    parts = {lines.lines[0]: "lacks", "see file": "die Datei", "-x of it": "-y von ihm"}
    result = translated(lines, parts.get, [(0, 0), (1, 1), (2, 2)])
    assert result == ["die <b>Datei</b> %s-y von <i>ihm</i>"]


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
