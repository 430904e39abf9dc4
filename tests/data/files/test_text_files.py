"""Text files give their pairs however they were written, or one line says what is wrong."""

import gzip
import json
import random
import tracemalloc

import pytest

from source_settings import refused, settings
from transformer.data.pairs import Pair
from transformer.data.parallel.sources import open_source

GERMAN = "Guten Tag!\nEin Haus.\nÄpfel und Öl.\n"
ENGLISH = "Good day!\nA house.\nApples and oil.\n"
PAIRS = [
    Pair("Guten Tag!", "Good day!"),
    Pair("Ein Haus.", "A house."),
    Pair("Äpfel und Öl.", "Apples and oil."),
]
TSV = {"train_source": "all.tsv", "train_target": ""}


# Reading text files.


def test_line_n_of_one_file_is_paired_with_line_n_of_the_other_as_often_as_asked(files):
    splits = files({"train.de": GERMAN, "train.en": ENGLISH})
    assert list(splits["train"]) == list(splits["train"]) == PAIRS
    assert list(splits["validation"]) == list(splits["test"]) == []


@pytest.mark.parametrize(
    "encode",
    {
        "no newline at the end": lambda text: text.removesuffix("\n").encode(),
        "Windows line ends": lambda text: text.replace("\n", "\r\n").encode(),
        "byte order mark": lambda text: text.encode("utf-8-sig"),
        "gzip of both": lambda text: gzip.compress(text.replace("\n", "\r\n").encode("utf-8-sig")),
        "gzip of two members": lambda text: (
            gzip.compress(text[:12].encode()) + gzip.compress(text[12:].encode())
        ),
    }.items(),
    ids=lambda item: item[0],
)
def test_files_are_read_the_same_however_they_were_written(files, encode):
    contents = {"train.de": encode[1](GERMAN), "train.en": ENGLISH}
    assert list(files(contents)["train"]) == PAIRS


@pytest.mark.parametrize(
    "character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"]
)
def test_characters_that_splitlines_splits_at_stay_inside_their_line(files, character):
    line = f"Ein{character}Haus."
    assert len(line.splitlines()) == 2
    splits = files({"train.de": f"{line}\nJa.\n", "train.en": "A house.\nYes.\n"})
    assert list(splits["train"]) == [Pair(line, "A house."), Pair("Ja.", "Yes.")]


@pytest.mark.full
@pytest.mark.parametrize("sizes", [(0, 0), (11, 13)])
def test_training_text_is_streamed(files, sizes):
    text = "".join(f"{i}\t{'x' * 1000}\n" for i in range(5000))
    splits = files({"all.tsv": text}, **TSV, validation_size=sizes[0], test_size=sizes[1])
    text_size = len(text)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    assert sum(1 for _ in splits["train"]) == 5000 - sum(sizes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - before < text_size / 20


# What can be wrong with text files.


@pytest.mark.parametrize(
    ("contents", "changes", "says"),
    [
        (
            {"trian.de": GERMAN, "train.en": ENGLISH, "notes.md": ""},
            {},
            ("data.train_source='train.de'", "/train.de is not a file: did you mean 'trian.de'?"),
        ),
        ({}, {"path": "/nowhere/at/all"}, ("/nowhere/at/all is not a folder: check",)),
        ({"train.de/x": ""}, {}, ("/train.de is a folder", "name a text file")),
        ({}, {"train_source": ""}, ("config.data.train_source is empty", "name a text file")),
        (
            {"a.tsv": "a\tb\n"},
            {"train_source": "a.tsv", "train_target": "a.tsv"},
            ("has both sides in its rows", "set config.data.train_target= (empty)"),
        ),
        (
            {"train.de": GERMAN, "train.en": ENGLISH, "dev.en": "a\n"},
            {"validation_target": "dev.en", "test_size": 0},
            ("data.validation_target='dev.en' has no source", "config.data.validation_source"),
        ),
        ({"train.de": "", "train.en": ""}, {}, ("/train.de has no lines", "name a file")),
        (
            {"all.tsv": "a\tb\tc\na\tb\n"},
            {**TSV, "target_field": "2"},
            (
                "/all.tsv, line 2: 2 column",
                "data.target_field='2' is column 2",
                "counted from 0: fix the line, or set config.data.skip_broken=True",
            ),
        ),
        (
            {"all.tsv": "a\tb\tc\n"},
            {**TSV, "source_field": "0", "target_field": "0"},
            ("source_field='0'", "target_field='0'", "different fields"),
        ),
    ],
)
def test_files_that_cannot_be_read_are_named_with_the_fix(files, contents, changes, says):
    with refused(*says):
        files(contents, **changes)


@pytest.mark.parametrize(("source", "target"), [(2, 5), (5, 2), (0, 1), (3, 4)])
def test_files_of_unequal_length_are_refused_on_opening(files, tmp_path, source, target):
    contents = {"train.de": "ja\n" * source, "train.en": "yes\n" * target}
    shorter = tmp_path / ("train.de" if source < target else "train.en")
    with refused(f"{shorter} ends after {min(source, target)} lines, before", "line n"):
        files(contents)


def test_other_encodings_of_one_byte_are_not_guessed(files):
    cyrillic = "\n".join(["Привіт, світе!"] * len(GERMAN.splitlines())) + "\n"
    with refused("train.de, line 1:", "Western European", "WINDOWS-1251"):
        files({"train.de": cyrillic.encode("cp1251"), "train.en": ENGLISH})


XML = '<?xml version="1.0"?>\n'
CUES = "1\n00:00:01,000 --> 00:00:02,000\nGuten Tag!\n"
DOCUMENTS = {  # as other programs write them, and the name of each kind and a part of its fix
    "a.zip": (b"PK\x03\x04" + bytes(30) + b"train.de", "a zip archive", "unpack it"),
    "a.tar": (b"train.de" + bytes(249) + b"ustar", "a tar archive", "unpack it"),
    "a.bz2": (b"BZh91AY&SY" + bytes(99), "a bzip2 archive", "unpack it"),
    "s.srt": (CUES, "subtitles (SRT", "pysubs2"),
    "s.vtt": ("WEBVTT\n\n00:01.000 --> 00:02.000\nHi\n", "subtitles (SRT, VTT", "pysubs2"),
    "s.ass": ("; c\n[Script Info]\nTitle: a\n", "subtitles (SRT, VTT, ASS", "pysubs2"),
    "d.docx": (b"PK\x03\x04" + bytes(30) + b"word/document.xml", "(DOCX)", "pandoc"),
    "d.xlsx": (b"PK\x03\x04" + bytes(30) + b"xl/workbook.xml", "(XLSX)", "CSV in UTF-8"),
    "d.pptx": (b"PK\x03\x04" + bytes(30) + b"ppt/slides", "(PPTX)", "soffice"),
    "d.odt": (b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis.opendocument.text",
              "an OpenDocument text", "pandoc"),
    "d.epub": (b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/epub+zip", "EPUB", "pandoc"),
    "d.doc": (b"\xd0\xcf\x11\xe0" + bytes(999), "an old Office document", "soffice"),
    "d.pdf": (b"%PDF-1.7\n%\xe2\xe3\n", "a PDF document", "pdftotext"),
    "d.rtf": ("{\\rtf1\\ansi Hi}", "an RTF document", "pandoc"),
    "d.html": ("<!-- a -->\n<!DOCTYPE html>\n<html>\n", "an HTML page", "pandoc"),
    "m.po": ('# a\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n', "(PO, POT)", "po2tmx -l de"),
    "m.mo": (b"\xde\x12\x04\x95" + bytes(99), "(MO)", "msgunfmt"),
    "m.xlf": (f'{XML}<xliff version="1.2">\n', "an XLIFF file", "xliff2po"),
    "m.tbx": (f'{XML}<martif type="TBX">\n', "(TBX)", "tbx2tmx"),
    "m.xml": (f'{XML}<resources>\n<string name="a">Hi</string>\n', "Android", "android2po"),
    "m.resx": (f'{XML}<root>\n<data name="a">\n', "RESX", "resx2po"),
    "m.ts": (f'{XML}<!DOCTYPE TS>\n<TS version="2.1">\n', "Qt", "ts2po"),
    "m.sgm": ('<srcset setid="newstest2014">\n', "XML or SGML", "one sentence per line"),
    "m.strings": ('/* a\n b */\n"a" = "Guten Tag!";\n', "Apple texts", "prop2po"),
    "m.properties": ("# a\na.b = Guten Tag!\n\nc.d=Ja\nd.e=Nein\n", "key=text", "prop2po"),
    "m.json": ('{\n  "a": {"b": "Guten Tag!"}\n}\n', "a JSON object", "json2po"),
    "n.json": (json.dumps({f"k{i}": f"Tag {i}" for i in range(40)}), "JSON", "json2po"),
    "m.yml": ("---\nde:\n  a: Guten Tag!\n", "a YAML file", "yaml2po"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_named_with_what_makes_text_of_it(files, pairs, tmp_path, name):
    content, *says = DOCUMENTS[name]
    for other in (name, "a.txt", "a.tsv", "a.csv", "a.txt.gz"):
        data = content if isinstance(content, bytes) else content.encode()
        data = gzip.compress(data) if other.endswith(".gz") else data
        with refused(f"{tmp_path / other} is a", *says):
            pairs({other: data})
    with refused(*says):
        files({"train.de": content, "train.en": content})
    if isinstance(content, str):
        with refused(*says):
            pairs({"a.txt": ("\ufeff" + content.replace("\n", "\r\n")).encode("utf-16-le")})


@pytest.mark.parametrize(
    "first",
    ["1", "00:00:01", "[10:22:33] Hi", "<b>Hi</b>", '"a" is "b".', "a = b", "PK", "Tom: Hi", "de:",
     "ab = 1\ncd = 2\nef = 3", '{ "quoted" }', "[Script]", "/" * 9000, "{1} of {2}", "% PDF-1",
     f"{'Ä' * 127}  gustar"],
)  # fmt: skip
def test_text_that_is_like_a_document_is_read(files, first):
    texts = {"train.de": f"{first}\nJa.\nNein.\n", "train.en": f"{first}\nYes.\nNo.\n"}
    assert next(iter(files(texts)["train"])).source == first.split("\n")[0]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32", "UTF-16LE", "UTF-16BE"])
def test_text_of_wide_characters_is_told_its_encoding(files, tmp_path, encoding):
    says = f"not UTF-8 but {encoding}:", f"`iconv -f {encoding} -t UTF-8`"
    with refused(f"{tmp_path / 'train.de'}, line 1: the text is", *says):
        files({"train.de": GERMAN.encode(encoding), "train.en": ENGLISH})


@pytest.mark.parametrize("kind", ["cut off", "bit flipped", "rubbish after it", "header only"])
def test_a_damaged_gzip_file_is_named(files, tmp_path, kind):
    text = "".join(random.Random(3).choices("abcdefgh \n", k=5000))
    data = gzip.compress(text.encode())
    middle = len(data) // 2
    damaged = {
        "cut off": data[:middle],
        "bit flipped": data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :],
        "rubbish after it": data + b"no gzip member",
        "header only": data[:5],
    }[kind]
    with refused(str(tmp_path / "train.de"), "gzip", "again"):
        files({"train.de": damaged, "train.en": damaged})


def test_text_of_a_corpus_that_is_not_fetched_names_the_command(tmp_path):
    fetched = {"fetch": "multi30k", "cache_dir": str(tmp_path), "train_source": "train.de"}
    command = f"`python launch.py --mode=fetch --config.data.cache_dir={tmp_path}"
    with refused(tmp_path / "corpora" / "multi30k", f"{command} --config.data.fetch=multi30k`"):
        open_source(settings(**fetched))
    (tmp_path / "corpora" / "multi30k").mkdir(parents=True)
    with refused("is not a file", f"{command} --config.data.fetch=multi30k`"):
        open_source(settings(**fetched))
    with refused("is not a folder", "check config.data.path"):  # a file of another text
        open_source(settings(**{**fetched, "train_source": "mine/train.de"}))
    with refused("is not a folder", f"--config.data.path='{tmp_path}/x y'"):
        open_source(settings(**{**fetched, "path": f"{tmp_path}/x y"}))
    for side, text in (("de", GERMAN), ("en", ENGLISH)):
        path = tmp_path / "corpora" / "multi30k" / f"train.{side}.gz"
        path.write_bytes(gzip.compress(text.encode()))
    assert list(open_source(settings(**fetched))["train"]) == PAIRS
