"""Texts of subtitles, catalogues and columns can be replaced; nothing else changes."""

import functools

import pytest

from transformer.data.formats.catalogues import read_json, read_po, read_properties
from transformer.data.formats.columns import read_csv
from transformer.data.formats.document import TextDocument, by_key
from transformer.data.formats.subtitles import aligned, read_srt, read_vtt
from transformer.errors import UserError

SRT = """1
00:00:01,000 --> 00:01:02,500 X1:40
{\\an8}<i>So,</i>
a < b & 42

2
0:03 --> 00:04.25

3
1:00:00,5 --> 1:00:02
10

20"""
VTT = """WEBVTT - title

NOTE not 1:00

name
00:01.000 --> 00:02.000 align:start
<v Bob>Q &amp; A,&nbsp;<00:01.500>you
&lt;b>

00:03.000-->01:00:04.000
"""
PO = r"""msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#, fuzzy, c-format
#| msgid "Old"
msgctxt "menu"
msgid "Say \"%s\""
msgstr "Sage "
  "\"%s\"\n"

#, fuzzy
#~ msgid "former"
#~ msgstr "früher"
#: a.c:3
msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] "%d Dateien"

# fuzzy
msgid ""
"two\n"
"lines"
msgstr ""
# the end"""
JSON = r"""{ "a.b" : {"one": "\u00fc \ud83d\ude00", "n": 1.50e3, "empty": ""},
  "list": ["x \"y\"", true, [null, "z\/"]] }"""
PROPERTIES = r"""# a = b
! c
key = value \
      continued
  a\ b\=c:\u00fc \uD83D\uDE00 {0}
no

last	it''s \\n = x"""
CSV = """id;english;note
1;"a ""b""; c";x
2;plain "q";
3;;x
4;"two
lines";x
5"""
TEXTS = {
    "srt": ["So,", "\na < b & 42", "10\n\n20"],
    "vtt": ["Q & A,\xa0", "you\n<b>"],
    "po": ['Say "%s"', "%d file", "%d files", "two\nlines"],
    "json": ["ü 😀", 'x "y"', "z/"],
    "properties": ["value continued", "ü 😀 {0}", "it''s \\n = x"],
    "csv": ['a "b"; c', 'plain "q"', "two\nlines"],
    "tsv": ['say "a"', 'b, "c'],
}
NEW = ' = {} "q" ü 😀\nline\\n \\ & <b>x</b> a;b,c: {{0}}'
READERS = {"srt": read_srt, "vtt": read_vtt, "po": read_po, "json": read_json}
READERS |= {"properties": read_properties, "csv": functools.partial(read_csv, column="english")}
READERS |= {"tsv": functools.partial(read_csv, column="1")}
SOURCES = {"srt": SRT, "vtt": VTT, "po": PO, "json": JSON, "properties": PROPERTIES, "csv": CSV}
ENCODINGS = {"f": "utf-8", "bom": "utf-8-sig", "wide": "utf-16"}
FILES = {
    **{f"{n}.{kind}": t.encode(e) for kind, t in SOURCES.items() for n, e in ENCODINGS.items()},
    **{f"crlf.{kind}": text.replace("\n", "\r\n").encode() for kind, text in SOURCES.items()},
    "cp1251.po": PO.replace("UTF-8", "CP1251").replace("früher", "файл").encode("cp1251"),
    "latin.properties": ("#\xe9\n" + PROPERTIES).encode("latin-1"),
    "plain.tsv": b'1\tsay "a"\n2\tb, "c\n',
    "quoted.tsv": b'1\t"say ""a"""\n2\t"b, ""c"',
}


def texts(document: TextDocument) -> list[str]:
    pieces = (piece for unit in document.units for piece in unit.pieces if isinstance(piece, str))
    return [text.replace("\r\n", "\n") for text in pieces]


def rewrite(document: TextDocument, texts) -> bytes:
    new = iter(texts)
    return document.write(
        [[next(new) if isinstance(x, str) else x for x in unit.pieces] for unit in document.units]
    )


@pytest.mark.parametrize("name", FILES)
def test_a_document_has_its_texts_and_keeps_its_bytes(name):
    document = READERS[name.partition(".")[2]](FILES[name], name)
    assert texts(document) == TEXTS[name.partition(".")[2]]
    assert document.write([unit.current for unit in document.units]) == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_other_texts_are_read_again_and_all_else_stays(name):
    document = READERS[name.partition(".")[2]](FILES[name], name)
    new = NEW.replace("<b", "< b").replace("</", "/").strip() if name.endswith("srt") else NEW
    new = new.replace("ü 😀", "ф") if name == "cp1251.po" else new
    new = new.replace("\n", " ") if name == "plain.tsv" else new
    new_texts = [new.format(n) for n in range(len(texts(document)))]
    again = READERS[name.partition(".")[2]](rewrite(document, new_texts), name)
    current = [x for unit in again.units for x in unit.current if isinstance(x, str)]
    assert current == new_texts
    bare, blank = rewrite(document, [""] * 9), rewrite(again, [""] * 9)
    assert blank == bare != rewrite(document, new_texts)


def test_cues_have_times_in_seconds():
    times = [unit.times for text in (SRT, VTT) for unit in read_srt(text.encode(), "f").units]
    assert times == [(1, 62.5), (3600.5, 3602), (1, 2)]


def test_a_text_does_not_end_its_cue():
    texts = ["a -->\n \n\nb", "", ""]
    assert "<i>a →\nb</i>" in rewrite(read_srt(SRT.encode(), "f"), texts).decode()
    assert b"<v Bob>a --&gt;\nb<00:01.500>" in rewrite(read_vtt(VTT.encode(), "f"), texts)


def test_entries_of_po_have_context_translation_and_flag():
    first, *_, form, _ = read_po(PO.encode(), "f").units
    assert first[-4:] == ('Sage "%s"\n', 'menu\4Say "%s"', None, True)
    assert form[-4:] == ("%d Dateien", "\4%d file[1]", None, False)


def test_a_new_translation_is_no_longer_fuzzy_and_has_a_string_per_line():
    data = read_po(PO.encode(), "f").write([["Sag"], None, None, ["z\nw\n"]]).decode()
    assert '#, c-format\nmsgctxt "menu"\nmsgid "Say \\"%s\\""\nmsgstr "Sag"\n\n#, fuzzy\n#~' in data
    assert data.endswith('msgstr ""\n"z\\n"\n"w\\n"\n# the end')
    alone = read_po(b'#, fuzzy\n#| msgid "b"\nmsgid "a"\nmsgstr "c"\n', "f")
    assert alone.write([["d"]]) == b'msgid "a"\nmsgstr "d"\n'


def test_characters_that_an_encoding_lacks_are_escaped_or_named():
    assert read_properties(b"a=b", "f").write([["\xfc\U0001f600"]]) == rb"a=\u00fc\ud83d\ude00"
    assert read_properties("a=ä".encode(), "f").write([["ü"]]) == "a=ü".encode()
    assert read_properties(b"a=\xe4", "f").write([["üш"]]) == b"a=\xfc\\u0448"
    assert read_json(rb'["\u00e4"]', "f").write([["ü"]]) == rb'["\u00fc"]'
    assert read_json(b'["a"]', "f").write([["ü"]]) == '["ü"]'.encode()
    with pytest.raises(UserError, match="CP1251 of the document has no 'ü'"):
        read_po(FILES["cp1251.po"], "f.po").write([["ü"], None, None, None])


def test_keys_match_units_of_two_languages():
    first, second = read_json(b'{"a": {"b": [1, "x"]}, "c": "y"}', ""), read_json(b'{"c": "z"}', "")
    assert [unit.key for unit in first.units] == ["a.b.1", "c"]
    assert by_key(first, second) == [(first.units[1], second.units[0])]


def test_cues_are_aligned_by_time():
    first = read_srt(b"0:0-->0:2\nA\n0:2-->0:4\nB\n0:4-->0:6\nC\n0:7-->0:8\n-\n0:9-->0:12\nD", "")
    second = b"0:0-->0:2.1\na\n0:2.2-->0:6.2\nb\n0:9-->0:10\nc\n0:10-->0:12\nd\ne\n0:13-->0:14\nf"
    assert aligned(first, read_srt(second, "")) == ([("A", "a"), ("B C", "b"), ("D", "c d e")], 2)
    assert aligned(first, read_srt(b"", "")) == ([], 5)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("f.srt", b"1\n0:01 -> 0:02\nx", "f.srt has no times such as 00:00:01,000 -->"),
        ("f.srt", SRT.replace("0:03", "0:0x").encode(), "line 7: '0:0x --> 00:04.25' has no times"),
        ("f.vtt", SRT.encode(), "f.vtt has no first line WEBVTT"),
        ("f.po", PO.replace('%d files"', "").encode(), "f.po, line 15: 'msgid \"%d file\"' is not"),
        ("f.json", b'{"a": "b",\n "c": x}', "f.json, line 2: '\"c\": x}' is not JSON"),
        ("f.csv", CSV.encode().replace(b"english", b"x"), "no field 'english'; its fields are"),
        ("f.csv", b'english,b\n"a" b,c\n', "line 2: '\"a\" b,c' has text outside the quotes"),
    ],
)
def test_a_damaged_document_is_named_in_one_line(name, data, message):
    with pytest.raises(UserError) as error:
        READERS[name.partition(".")[2]](data, name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
