"""Text files give their pairs however they were written, or one line says what is wrong."""

import gzip
import random

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
    splits = files(contents)
    assert list(splits["train"]) == list(splits["train"]) == PAIRS
    assert list(splits["validation"]) == list(splits["test"]) == []


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b", "\r"])
def test_characters_that_splitlines_splits_at_stay_inside_their_line(files, character):
    line = f"Ein{character}Haus."
    assert len(line.splitlines()) == 2
    splits = files({"train.de": f"{line}\nJa.\n", "train.en": "A house.\nYes.\n"})
    assert list(splits["train"]) == [Pair(line, "A house."), Pair("Ja.", "Yes.")]


# What can be wrong with text files.


@pytest.mark.parametrize(
    ("contents", "changes", "says"),
    [
        (
            {"trian.de": GERMAN, "train.en": ENGLISH, "notes.md": ""},
            {},
            ("data.train_source='train.de'", "/train.de is not a file: check config.data.path and"),
        ),
        (
            {"train.de": GERMAN, "train.en": ENGLISH, "dev.en": "a\n"},
            {"validation_target": "dev.en", "test_size": 0},
            ("data.validation_target='dev.en' has no source", "config.data.validation_source"),
        ),
        (
            {"all.tsv": "a\tb\tc\na\tb\n"},
            {**TSV, "target_field": "2"},
            ("/all.tsv, line 2: 2 column(s), and no column 2: fix the line, or set",),
        ),
        (
            {"all.tsv": "a\tb\tc\n"},
            {**TSV, "source_field": "0", "target_field": "0"},
            ("config.data.source_field and config.data.target_field: name different", "'0, 0'"),
        ),
    ],
)
def test_files_that_cannot_be_read_are_named_with_the_fix(files, contents, changes, says):
    with refused(*says):
        files(contents, **changes)


@pytest.mark.parametrize(("source", "target"), [(2, 5), (5, 2)])
def test_files_of_unequal_length_are_refused_on_opening(files, tmp_path, source, target):
    contents = {"train.de": "ja\n" * source, "train.en": "yes\n" * target}
    shorter = tmp_path / ("train.de" if source < target else "train.en")
    with refused(f"{shorter} ends after {min(source, target)} lines, before", "line n"):
        files(contents)


def test_other_encodings_of_one_byte_are_not_guessed(files):
    cyrillic = "\n".join(["Привіт, світе!"] * len(GERMAN.splitlines())) + "\n"
    with refused("train.de, line 1: byte 0xCF", "Western European", "WINDOWS-1251"):
        files({"train.de": cyrillic.encode("cp1251"), "train.en": ENGLISH})


XML = '<?xml version="1.0"?>\n'
CUES = "1\n00:00:01,000 --> 00:00:02,000\nGuten Tag!\n"
DOCUMENTS = {  # as other programs write them, and the name of each kind and a part of its fix
    "a.zip": (b"PK\x03\x04" + bytes(30) + b"train.de", "a zip archive", "unpack it"),
    "s.srt": (CUES, "subtitles (SRT", "pysubs2"),
    "s.vtt": ("WEBVTT\n\n00:01.000 --> 00:02.000\nHi\n", "subtitles (SRT, VTT", "pysubs2"),
    "d.docx": (b"PK\x03\x04" + bytes(30) + b"word/document.xml", "(DOCX)", "pandoc"),
    "d.pdf": (b"%PDF-1.7\n%\xe2\xe3\n", "a PDF document", "pdftotext"),
    "d.html": ("<!-- a -->\n<!DOCTYPE html>\n<html>\n", "an HTML page", "pandoc"),
    "m.po": ('# a\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n', "(PO, POT)", "end its name in .po"),
    "m.xlf": (f'{XML}<xliff version="1.2">\n', "an XLIFF file", "end its name in .xlf"),
    "m.sgm": ('<srcset setid="newstest2014">\n', "XML or SGML", "one sentence per line"),
    "m.strings": ('/* a\n b */\n"a" = "Guten Tag!";\n', "Apple texts", "prop2po"),
    "m.properties": ("# a\na.b = Guten Tag!\n\nc.d=Ja\nd.e=Nein\n", "key=text", "prop2po"),
    "m.json": ('{\n  "a": {"b": "Guten Tag!"}\n}\n', "a JSON object", "json2po"),
    "m.yml": ("---\nde:\n  a: Guten Tag!\n", "a YAML file", "yaml2po"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_named_with_what_makes_text_of_it(files, pairs, tmp_path, name):
    content, *says = DOCUMENTS[name]
    data = content.replace("\n", "\r\n").encode() if isinstance(content, str) else content
    with refused(f"{tmp_path / 'a.txt.gz'} is a", *says):
        pairs({"a.txt.gz": gzip.compress(data)})
    with refused(*says):
        files({"train.de": content, "train.en": content})


@pytest.mark.parametrize(
    "first",
    ["[10:22:33] Hi", "<b>Hi</b>", '"a" is "b".', "PK", "Tom: Hi", "ab = 1\ncd = 2\nef = 3",
     "[Script]", "/" * 9000, "{1} of {2}", f"{'Ä' * 127}  gustar"],
)  # fmt: skip
def test_text_that_is_like_a_document_is_read(files, first):
    texts = {"train.de": f"{first}\nJa.\nNein.\n", "train.en": f"{first}\nYes.\nNo.\n"}
    assert next(iter(files(texts)["train"])).source == first.split("\n")[0]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE"])
def test_text_of_wide_characters_is_told_its_encoding(files, tmp_path, encoding):
    with refused(f"{tmp_path / 'train.de'}, line 1: the text is", "`iconv -f UTF-16 -t UTF-8`"):
        files({"train.de": GERMAN.encode(encoding), "train.en": ENGLISH})


@pytest.mark.parametrize("kind", ["cut off", "bit flipped"])
def test_a_damaged_gzip_file_is_named(files, tmp_path, kind):
    text = "".join(random.Random(3).choices("abcdefgh \n", k=5000))
    data = gzip.compress(text.encode())
    middle = len(data) // 2
    damaged = {
        "cut off": data[:middle],
        "bit flipped": data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :],
    }[kind]
    with refused(str(tmp_path / "train.de"), "gzip", "again"):
        files({"train.de": damaged, "train.en": damaged})


def test_text_of_a_corpus_that_is_not_fetched_names_the_command(tmp_path):
    fetched = {"fetch": "multi30k", "cache_dir": str(tmp_path), "train_source": "train.de"}
    with refused(tmp_path / "corpora" / "multi30k", "`python launch.py --mode=fetch`"):
        open_source(settings(**fetched))
    (tmp_path / "corpora" / "multi30k").mkdir(parents=True)
    for side, text in (("de", GERMAN), ("en", ENGLISH)):
        path = tmp_path / "corpora" / "multi30k" / f"train.{side}.gz"
        path.write_bytes(gzip.compress(text.encode()))
    assert list(open_source(settings(**fetched))["train"]) == PAIRS
