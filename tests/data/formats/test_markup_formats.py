"""Web pages, XLIFF, TMX, Markdown and office documents: texts change, and all other bytes stay."""

import functools
import io
import re
import zipfile

import pytest

from transformer.data.formats.bilingual import read_tmx, read_xliff
from transformer.data.formats.lines import DocumentLines
from transformer.data.formats.markdown import read_md
from transformer.data.formats.markup import read_html
from transformer.data.formats.office import read_docx, read_odt, read_xlsx
from transformer.data.formats.tags import Aligned
from transformer.errors import UserError

PAGE = """<!DOCTYPE html><html><head><title>A &amp; B</title>
<meta name="description" content="It's here"><script>if (a<b && "<p>x") {}</script></head>
<body class=x><p>Hello <b>big  <i>bad</i></b> world,<br>use <code>x y</code> now<!-- c --> ok.
<P title=Tip>un<b>believ</b>able <img alt='a "q"' src=b.png>
<ul><li>one &nbsp;<li>two <ul><li>three</ul> four</ul><pre>stays</pre>
<div translate="no">stays <p>too</p></div><p>5 < 6 &copy; <a class="notranslate">Name</a> 7</p>
<textarea placeholder="type &lt;here&gt;">stays</textarea><td>&nbsp;</td><svg><g/></svg></body>"""
NOTES = """---
title: stays
---
# A *big* title #

See `code` and [a *link*](http://x "title"), two * 3
\\* 4 &amp; 5.  
Then ![an image](a.png), [ref] and [Col][]; x[^1] <http://a.b>

> quoted
> **words**
- [ ] snake_case

| a | b\\|c |
|---|------|
| `x` | 1 |

<div><p>Hi <b>you</b></p></div>

    stays

[ref]: http://r
[col]: http://c
"""
XLIFF = """<?xml version="1.0"?><xliff version="1.2"><file original="f" source-language="en"><body>
  <trans-unit id="1"><source>Click <g id="1">here</g><x id="2"/> now </source></trans-unit>
  <trans-unit id="2" approved="yes"><source>One</source><target state="new">Eins</target>
  </trans-unit>
  <trans-unit id="3"><source>A <ph id="1">%s</ph> b</source><target state="needs-l10n">A</target>
    <alt-trans><source>Old</source><target>Alt</target></alt-trans></trans-unit>
  <trans-unit id="4" translate="no"><source>stays</source></trans-unit>
  <trans-unit id="5"><source><![CDATA[<b>x & y</b>]]></source><target/></trans-unit>
  <trans-unit id="6"><source>New</source><target state="new">New</target></trans-unit>
</body></file></xliff>"""
TMX = """<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.4"><body><tu tuid="a">
  <tuv xml:lang="en-US"><seg>Hi <bpt i="1">&lt;b></bpt>you<ept i="1">x</ept></seg></tuv></tu>
<tu><tuv xml:lang="EN"><seg>Bye</seg></tuv><tuv xml:lang="de_AT"><seg>Tsch\u00fcss</seg></tuv></tu>
</body></tmx>"""
WORD = (
    '<w:document xmlns:w="w" xmlns:v="v"><w:body><w:p><w:pPr><w:rPr><w:b/></w:rPr></w:pPr>'
    '<w:r w:rsidR="1"><w:t xml:space="preserve"> Hel</w:t></w:r><w:proofErr w:type="x"/>'
    '<w:r><w:rPr><w:lang w:val="de"/></w:rPr><w:t>lo wo</w:t></w:r><w:r><w:t>rld </w:t></w:r>'
    "<w:r><w:rPr><w:b/></w:rPr><w:t>bold</w:t><w:tab/><w:t>after</w:t></w:r>"
    "<w:del><w:r><w:delText>stays</w:delText></w:r></w:del>"
    '<w:r><w:fldChar w:fldCharType="begin"/><w:instrText> PAGE </w:instrText>'
    '<w:fldChar w:fldCharType="separate"/><w:t>7</w:t><w:fldChar w:fldCharType="end"/></w:r>'
    "<w:r><w:pict><v:textbox><w:p><w:r><w:t>box</w:t></w:r></w:p></v:textbox></w:pict></w:r>"
    "</w:p></w:body></w:document>"
)
WRITER = (
    '<o:d xmlns:o="o" xmlns:text="t"><text:tracked-changes><text:p>stays</text:p>'
    "</text:tracked-changes><text:h>Head</text:h><text:p>Two <text:span>big</text:span>"
    "<text:s/>words<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>"
    "Note</text:p></text:note-body></text:note> here</text:p></o:d>"
)
STRINGS = (
    "<sst><si><t>Plain</t></si><si><r><t>un</t></r><r><rPr><b/></rPr><t>bold</t></r>"
    "<rPh sb='0' eb='1'><t>stays</t></rPh></si><si><t/></si></sst>"
)
SHEET = '<s><c t="inlineStr"><is><t>Cell</t></is></c><c><f>A1&amp;"x"</f><v>5</v></c></s>'


PICTURE = b"".join(b"%d " % (number * number % 997) for number in range(999))


def archive(**files: str | bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as output:
        for name, content in {"a.png": PICTURE, **files, "z.bin": PICTURE}.items():
            info = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6))
            output.writestr(info, content, zipfile.ZIP_DEFLATED, compresslevel=1)  # not the default
    return stream.getvalue()


tmx = functools.partial(read_tmx, source_language="en", target_language="de")
DOCX = archive(**{"word/document.xml": WORD, "word/header1.xml": "<h><p><t>Top</t></p></h>"})
ODT = archive(**{"content.xml": WRITER})
XLSX = archive(**{"xl/sharedStrings.xml": STRINGS, "xl/worksheets/sheet1.xml": SHEET})
FILES = {
    "page": (read_html, PAGE.encode()),
    "page with CRLF": (read_html, PAGE.replace("\n", "\r\n").encode()),
    "page in UTF-16": (read_html, PAGE.encode("utf-16")),
    "page in XML": (read_html, b'<?xml version="1.0"?><html><script src="x"/><p>A</p></html>'),
    "broken page": (read_html, b'a<b></i><div>c</b>d</p>e</div>f<3 &g <!--h--> <p i="j>k</p>l'),
    "empty page": (read_html, b""),
    "notes": (read_md, NOTES.encode()),
    "notes with a mark and CRLF": (read_md, b"\xef\xbb\xbf" + NOTES.replace("\n", "\r\n").encode()),
    "word": (read_docx, DOCX),
    "writer": (read_odt, ODT),
    "excel": (read_xlsx, XLSX),
}


def texts(document) -> list[str]:
    pieces = (piece for unit in document.units for piece in unit.pieces)
    return [text.strip() for text in pieces if isinstance(text, str) and text.strip()]


def sources(read, data: bytes) -> list[str]:
    return [
        "".join(piece if isinstance(piece, str) else "|" for piece in unit.pieces)
        for unit in read(data, "x").units
    ]


def rewrite(read, data: bytes, change) -> bytes:
    document = read(data, "x")
    return document.write([changed(unit, change) for unit in document.units])


def changed(unit, change) -> list:
    """Returns the pieces with other texts in the same white space."""
    text = re.compile(r"(?s)\S(.*\S)?")
    return [
        text.sub(lambda match: change(match[0]), each) if isinstance(each, str) else each
        for each in unit.pieces
    ]


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as files:
        assert files.testzip() is None
        return {name: files.read(name) for name in files.namelist()}


def frame(read, data: bytes) -> bytes | dict[str, bytes]:
    """Returns the document without the words of its texts."""
    bare = rewrite(read, data, lambda text: "")
    return members(bare) if bare[:2] == b"PK" else bare


@pytest.mark.parametrize("name", FILES)
def test_the_same_texts_give_the_same_bytes(name):
    read, data = FILES[name]
    assert rewrite(read, data, str) == data
    assert (rewrite(read, data, "{}!".format) == data) == (name == "empty page")


@pytest.mark.parametrize("name", FILES)
def test_other_texts_are_read_again_and_the_rest_stays(name):
    read, data = FILES[name]
    new = '"{}" \u00fc<b> &amp; *a* _b_ [c](d) `e` | \\ \u20ac ]]> \U0001f600 1. x'
    changed = rewrite(read, data, new.format)
    assert texts(read(changed, "x")) == [*map(new.format, texts(read(data, "x")))]
    if read not in (read_md, read_docx):  # `[ref]` becomes `[new][ref]`; runs are new
        assert frame(read, changed) == frame(read, data)


def test_blocks_and_attributes_of_a_page_are_units_and_inline_tags_are_pieces():
    assert sources(read_html, PAGE.encode()) == [
        "A & B", "It's here", "Hello |big  |bad|| world,|use | now| ok.", "Tip", "un|believ|able",
        'a "q"', "one", "two", "three", "four", "5 < 6 \u00a9 | 7", "type <here>",
    ]  # fmt: skip


def test_a_changed_page_is_escaped():
    page = b"<p title=a\talt=' b'> x&#32;<i>y<!-- c --> z</i>\r\n</p>"
    changed = rewrite(read_html, page, lambda text: f'{text}<"&')
    assert changed == (
        b'<p title="a&lt;&quot;&amp;"\talt=" b&lt;&quot;&amp;">'
        b' x&lt;"&amp; <i>y&lt;"&amp;<!-- c --> z&lt;"&amp;</i>\r\n</p>'
    )


def test_a_page_keeps_its_encoding_and_writes_other_characters_as_references():
    page = '<meta http-equiv=a content="text/html; charset=windows-1251"><p>\u043c\u0438\u0440</p>'
    changed = rewrite(read_html, page.encode("cp1251"), lambda text: text + "\u00df")
    assert changed == page.replace("</p>", "&#223;</p>").encode("cp1251")


def test_xliff_writes_targets_with_the_inline_tags_of_the_source():
    document = read_xliff(XLIFF.encode(), "x")
    facts = [(unit.key, unit.source, unit.target, unit.is_fuzzy) for unit in document.units]
    assert facts == [
        ("1", "Click here now", "", False), ("2", "One", "Eins", False), ("3", "A  b", "A", True),
        ("5", "<b>x & y</b>", "", False), ("6", "New", "", False),
    ]  # fmt: skip
    assert document.write([None] * 5) == XLIFF.encode()
    lines = rewrite(read_xliff, XLIFF.encode(), lambda text: text.upper() + "&")
    lines = lines.decode().splitlines()
    source = '<source>Click <g id="1">here</g><x id="2"/> now </source>'
    target = '<target>CLICK&amp; <g id="1">HERE&amp;</g><x id="2"/> NOW&amp; </target>'
    assert lines[1:5] == [f'  <trans-unit id="1">{source}{target}</trans-unit>',
        '  <trans-unit id="2" approved="yes"><source>One</source>'
        '<target state="new">ONE&amp;</target>', '  </trans-unit>',
        '  <trans-unit id="3"><source>A <ph id="1">%s</ph> b</source>'
        '<target state="needs-l10n">A&amp; <ph id="1">%s</ph> B&amp;</target>']  # fmt: skip
    assert lines[5:7] == XLIFF.splitlines()[5:7]
    assert "<target><![CDATA[<B>X & Y</B>&]]></target>" in lines[7]
    changed = document.write([None, None, None, ["]]>"], None])
    assert [unit.target for unit in read_xliff(changed, "x").units] == ["", "Eins", "A", "]]>", ""]


def test_a_new_target_stands_behind_the_segmented_source():
    sides = "<source>a</source><seg-source><mrk>a</mrk></seg-source>"
    text = f'<xliff version="1.2"><trans-unit id="1">{sides}</trans-unit></xliff>'
    changed = rewrite(read_xliff, text.encode(), str.upper).decode()
    assert changed == text.replace("</seg-source>", "</seg-source><target>A</target>")


def test_xliff_2_has_segments_and_its_prefix_stays():
    text = (
        '<x:xliff version="2.0"><x:file translate="no"><x:unit id="u" translate="yes">\n'
        '<x:segment id="s" state="initial"><x:source>a <x:mrk translate="no">b</x:mrk></x:source>'
        "</x:segment></x:unit><x:unit id='v'><x:segment><x:source>c</x:source></x:segment></x:unit>"
        "</x:file></x:xliff>"
    )
    assert [unit.key for unit in read_xliff(text.encode(), "x").units] == ["u/s"]
    target = '<x:target>A <x:mrk translate="no">b</x:mrk></x:target>'
    expected = text.replace("b</x:mrk></x:source>", f"b</x:mrk></x:source>{target}")
    assert rewrite(read_xliff, text.encode(), str.upper) == expected.encode()


def test_tmx_writes_the_variant_of_the_language_or_inserts_it():
    assert [(unit.key, unit.source, unit.target) for unit in tmx(TMX.encode(), "x").units] == [
        ("a", "Hi you", ""), ("", "Bye", "Tsch\u00fcss"),
    ]  # fmt: skip
    segment = '<seg>HI <bpt i="1">&lt;b></bpt>YOU<ept i="1">x</ept></seg>'
    expected = TMX.replace("</tuv></tu>", f'</tuv>\n  <tuv xml:lang="de">{segment}</tuv></tu>', 1)
    assert rewrite(tmx, TMX.encode(), str.upper) == expected.replace("Tsch\u00fcss", "BYE").encode()
    with pytest.raises(UserError, match=r"no text in 'fr'; its languages are de-at, en, en-us"):
        read_tmx(TMX.encode(), "x", "fr", "de")


def test_markdown_keeps_its_codes_and_the_labels_of_references():
    assert sources(read_md, NOTES.encode())[1:3] == [
        "See | and |a |link||, two * 3\n* 4 & 5.|Then |, |ref| and |Col|; x", "an image"
    ]  # fmt: skip
    changed = rewrite(read_md, NOTES.encode(), str.upper).decode().splitlines()
    pairs = [(old, new) for old, new in zip(NOTES.splitlines(), changed, strict=True) if old != new]
    assert [new for _, new in pairs] == [
        "# A *BIG* TITLE #",
        'SEE `code` AND [A *LINK*](http://x "title"), TWO \\* 3',
        "\\* 4 & 5.  ",
        "THEN ![AN IMAGE](a.png), [REF][ref] AND [COL][Col]; X[^1] <http://a.b>",
        "> QUOTED",
        "> **WORDS**",
        "- [ ] SNAKE_CASE",
        "| A | B\\|C |",
        "<div><p>HI <b>YOU</b></p></div>",
    ]


def test_a_text_of_markdown_cannot_begin_a_list_or_leave_its_quotation():
    assert rewrite(read_md, b"> a\n> b", lambda _: "1. c\n- d") == b"> 1\\. c\n> \\- d"
    assert rewrite(read_md, b"# a", lambda _: "b\nc") == b"# b c"


def test_a_letter_for_a_punctuation_mark_does_not_break_emphasis():
    changed = rewrite(read_md, b"a (**`x`**, _b_, c", lambda _: "d e")
    assert changed == b"d &#101;**`x`**&#100; e _d e_&#100; e"
    assert texts(read_md(changed, "x")) == ["d e"] * 4


def test_emphasis_that_has_lost_its_words_is_left_out_and_marks_are_not_read():
    lines = DocumentLines(read_md(b"a *b **c*** [d](e) `f`.", "x"))
    data = lines.write([Aligned("A D.", [(0, 0), (3, 1)])])
    assert data == b"A [D](e) `f`."
    page = b"<p>a<sup><a href=x>[1]</a></sup> b<sup>st</sup> <code>c</code>.</p>"
    assert sources(read_html, page) == ["a| b|st| |."]


def test_runs_of_a_word_document_with_one_format_are_one_text():
    assert sources(read_docx, DOCX) == ["Hello world |bold|after|", "box", "Top"]
    changed = members(rewrite(read_docx, DOCX, str.upper))["word/document.xml"].decode()
    run, bold = '<w:r><w:t xml:space="preserve">', "<w:r><w:rPr><w:b/></w:rPr>"
    text, end = '<w:t xml:space="preserve">', "</w:t></w:r>"
    first, rest = WORD.split("Hel")[0] + end, WORD.split("</w:r><w:del>")[1]
    runs = f"{run}HELLO WORLD {end}{bold}{text}BOLD{end}{bold}<w:tab/></w:r>{bold}{text}AFTER{end}"
    assert changed == f"{first}{runs}<w:del>{rest.replace('box<', 'BOX<')}"


def test_runs_and_links_of_a_paragraph_change_their_order_with_the_words():
    run = "<w:r>{}<w:t xml:space='preserve'>{}</w:t></w:r>".format
    field = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'.format
    bold, note = "<w:rPr><w:b/></w:rPr>", "<w:r><w:footnoteReference w:id='1'/></w:r>"
    link = f'<w:hyperlink r:id="1">{run("", "red house")}</w:hyperlink>'
    page = f"{field('begin')}<w:r><w:instrText>PAGE</w:instrText></w:r>{field('end')}"
    parts = run("", "We see "), run(bold, "now"), note, run("", " a "), link, run("", " on "), page
    head, tail = '<w:document xmlns:w="w" xmlns:r="r"><w:p>', "</w:p></w:document>"
    text = "".join((head, *parts, run("", " it."), tail))
    lines = DocumentLines(read_docx(archive(**{"word/document.xml": text}), "x.docx"))
    assert lines.lines == ["We see now a red house on it."]
    links = [(0, 3), (1, 2), (2, 4), (4, 0), (5, 1), (6, 5), (7, 6)]
    data = lines.write([Aligned("Rotes Haus sehen wir jetzt auf ihm.", links)])
    changed = members(data)["word/document.xml"].decode().replace('"preserve"', "'preserve'")
    link = link.replace("red house", "Rotes Haus")
    runs = link, run("", " sehen wir "), run(bold, "jetzt"), note, run("", " auf ")
    page = page.replace("<w:r>", "", 1)
    assert changed.partition("<w:p>")[2] == "".join(
        (*runs, "<w:r>", page, run("", " ihm."), "</w:p></w:document>")
    )


def test_the_text_of_a_link_field_is_a_text():
    data = archive(**{"word/document.xml": WORD.replace(" PAGE ", " HYPERLINK x ")})
    assert "7" in texts(read_docx(data, "x"))


def test_notes_do_not_divide_paragraphs_and_runs_of_a_cell_are_pieces():
    assert sources(read_odt, ODT) == ["Head", "Two |big||words| here", "Note"]
    assert sources(read_xlsx, XLSX) == ["Plain", "|un|bold", "Cell"]


def test_files_of_an_archive_without_texts_keep_their_compressed_bytes():
    new = rewrite(read_docx, DOCX, str.upper)
    with zipfile.ZipFile(io.BytesIO(DOCX)) as old, zipfile.ZipFile(io.BytesIO(new)) as changed:
        for before, after in zip(old.infolist(), changed.infolist(), strict=True):
            assert (before.filename, before.date_time) == (after.filename, after.date_time)
            assert before.external_attr == after.external_attr
            if "xml" not in before.filename:
                raw, start = before.compress_size + 30 + len(before.filename), after.header_offset
                copy = DOCX[before.header_offset :][:raw]
                assert new[start : start + raw] == copy


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (
            read_xliff,
            XLIFF.replace("<xliff", BOMB + "<xliff").encode(),
            "x declares the entity 'a'",
        ),
        (read_xliff, XLIFF[:-9].encode(), "x is broken XML"),
        (tmx, b"\xff" + TMX.encode(), "x is not UTF-8"),
        (read_docx, archive(**{"word/document.xml": BOMB + WORD}), "x: word/document.xml declares"),
        (read_docx, archive(**{"word/document.xml": WORD[:-3]}), "x: word/document.xml is broken"),
        (read_docx, DOCX[:-30], "x is damaged or encrypted"),
        (read_docx, DOCX.replace(b"PK\3\4", b"PK\3\5"), "x is damaged or encrypted"),
        (read_docx, b"\xd0\xcf\x11\xe0 Word 97", "x is damaged or encrypted"),
        (read_docx, XLSX, "x is an archive of another format"),
        (
            read_odt,
            archive(**{"content.xml": bytes(11_000_000)}),
            "x has 11,000,000 bytes",
        ),
        (
            read_odt,
            archive(**{"META-INF/manifest.xml": "<encryption-data/>", "content.xml": "?"}),
            "x has a password",
        ),
    ],
)
def test_bombs_damaged_and_encrypted_files_are_refused_in_a_line(read, data, message):
    with pytest.raises(UserError, match=r"^[^\n]*$") as error:
        read(data, "x")
    assert message in str(error.value)


def test_documents_of_other_programs_open_there_with_their_new_texts():
    docx, openpyxl = pytest.importorskip("docx"), pytest.importorskip("openpyxl")
    odf = pytest.importorskip("odf.opendocument")
    from odf import teletype, text

    def change(read, document) -> io.BytesIO:
        document.save(stream := io.BytesIO())
        return io.BytesIO(rewrite(read, stream.getvalue(), "{} <&>".format))

    word = docx.Document()
    word.add_paragraph("Hello ").add_run("world").bold = True
    word.add_table(1, 1).cell(0, 0).text = "Cell"
    word.sections[0].header.paragraphs[0].text = "Top"
    new = docx.Document(change(read_docx, word))
    assert [run.text for run in new.paragraphs[0].runs] == ["Hello <&> ", "world <&>"]
    assert [run.bold for run in new.paragraphs[0].runs] == [None, True]
    assert new.tables[0].cell(0, 0).text == "Cell <&>"
    assert new.sections[0].header.paragraphs[0].text == "Top <&>"

    writer, paragraph = odf.OpenDocumentText(), text.P(text="Hello ")
    paragraph.addElement(text.Span(text="world"))
    writer.text.addElement(paragraph)
    new = odf.load(change(read_odt, writer)).getElementsByType(text.P)
    assert teletype.extractText(new[0]) == "Hello <&> world <&>"

    book = openpyxl.Workbook()
    book.active.append(["Hello", 5, "=B1+1"])
    new = openpyxl.load_workbook(change(read_xlsx, book)).active
    assert [cell.value for cell in new[1]] == ["Hello <&>", 5, "=B1+1"]
