"""Files as people have them: headers, quotes, other columns, encodings, line ends and names."""

import csv
import io
import json
import logging

import pytest
from format_examples import FORMATS, NAMES, PAIRS, memory, quoted

from source_settings import refused
from transformer.data.labelled import open_labelled
from transformer.data.pairs import Pair

REST = "Good day!\tGuten Tag!\nYes.\tJa.\n"


@pytest.mark.parametrize(
    "header",
    ["source\ttarget", "English\tyoruba", "en\tpt_BR", "EN\tzul", "Source (English)\tsentence_de",
     "\tEnglish", "zh-Hant\ten"],
)  # fmt: skip
def test_a_header_is_no_pair_and_the_log_says_so(pairs, caplog, header):
    caplog.set_level(logging.INFO)
    assert pairs({"a.tsv": f"{header}\n{REST}"}) == pairs({"a.tsv": REST})
    [line] = [line for line in caplog.messages if "a header that is not read" in line]
    assert repr(header.split("\t")[0]) in line


@pytest.mark.parametrize(
    "first",
    ["Go.\tGeh.", "Yes\tOui", "English.\tGerman.", "text of law\ttext", "no\tno",
     "I speak English\tIch spreche Englisch"],
)  # fmt: skip
def test_a_first_pair_that_is_no_header_stays(pairs, caplog, first):
    caplog.set_level(logging.INFO)
    assert pairs({"a.tsv": f"{first}\n{REST}"})[0] == Pair(*first.split("\t"))
    assert "; its first line, which is read as a row, has the columns" in caplog.text


def test_a_header_above_labels_is_no_text(write):
    rows = "id,text, Label\n" + "".join(f"{i},a text {i},{'yn'[i % 2]}\n" for i in range(9))
    source = open_labelled(write({"a.csv": rows}, text_field="1", label_field="2"))
    assert source.labels == ("n", "y")


def test_a_column_of_ids_is_named_with_its_key(pairs, caplog):
    rows = "".join(f"{i}\tLine {i}.\tSatz {i}\n" for i in range(50))
    pairs({"a.tsv": rows}, source_field="1", target_field="2")
    assert caplog.messages == [f for f in caplog.messages if "warning" not in f]  # the control
    pairs({"a.tsv": rows})
    [line] = [line for line in caplog.messages if "warning" in line]
    assert "config.data.source_field reads ids or empty cells, such as '0': name a" in line


SPOKEN = [Pair('"Hello," he said.', '"Hallo", sagte er.'), Pair("Well, yes.", "Also, ja."),
          Pair("a\ttab", "ein\tTab")]  # fmt: skip
SPOKEN += [Pair(f"Come in, {i}.", f"Komm {i}.") for i in range(12)]


def comma(text):
    """As spreadsheets write a cell."""
    return quoted(text) if set(text) & set('",\t') else text


def written(rows, quoting):
    file = io.StringIO()
    csv.writer(file, delimiter="\t", quoting=quoting).writerows((p.source, p.target) for p in rows)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        written(SPOKEN, csv.QUOTE_MINIMAL),
        "".join(f"{comma(p.source)}\t{comma(p.target)}\r\n" for p in SPOKEN),
        "".join(f"{comma(p.source)}\t{comma(p.target)}\n" for p in SPOKEN[1:2]),
    ],
    ids=["pandas", "spreadsheet", "commas"],
)
def test_a_tsv_whose_cells_are_quoted_is_read_without_these_quotes(pairs, caplog, content):
    caplog.set_level(logging.INFO)
    rows = pairs({"a.tsv": content})
    assert rows in (SPOKEN, SPOKEN[1:2])
    assert any("quoted as in CSV" in line for line in caplog.messages)


@pytest.mark.parametrize("line", ['"Hello!"\t"Hallo!"', 'A 5" disk\t"" nichts ""'])
def test_a_plain_tsv_keeps_its_quotes_as_they_are(pairs, line):
    assert pairs({"a.tsv": f"{REST}Well, yes.\tAlso, ja.\n{line}\n"})[-1] == Pair(*line.split("\t"))


def test_a_list_of_objects_is_read_as_json_lines_are(pairs):
    rows = [{"de": pair.source, "en": pair.target} for pair in PAIRS]
    assert pairs({"a.json": json.dumps(rows, indent=1)}, **NAMES) == PAIRS


@pytest.mark.parametrize("name", ["rows.json", "m.xml", "p.parquet.old"])
def test_a_format_is_recognised_by_what_is_in_the_file(pairs, name):
    like = {"r": "flat.jsonl", "m": "memory.tmx", "p": "flat.parquet"}[name[0]]
    assert pairs({name: FORMATS[like][0]}, **NAMES) == PAIRS


@pytest.mark.parametrize("first", ["[[Main Page]] is long.", '{ "quoted" }', '["laughs"] Yes.'])
def test_text_that_begins_with_brackets_is_no_json(files, first):
    contents = {"train.de": f"{first}\nJa.\n", "train.en": f"{first}\nYes.\n"}
    pairs = files(contents)["train"]
    assert [*pairs] == [Pair(first, first), Pair("Ja.", "Yes.")]
    with refused("both sides in its rows"):  # the control
        files({**contents, "train.de": '["a", "b"]\n'})


def test_a_folder_of_translation_memories_is_one_corpus(pairs, caplog):
    caplog.set_level(logging.INFO)
    contents = {"x/a.tmx": memory(PAIRS[:2]), "x/b.tmx": memory(PAIRS[2:]), "x/m.tmx.bak": ""}
    assert pairs(contents, **NAMES, train_source="x") == PAIRS
    assert "its languages are 'de', 'en'; TMX files: 2" in caplog.text
    with refused("in b.tmx: no field 'en'", "'de', 'nl'"):
        pairs({**contents, "x/b.tmx": memory(PAIRS[2:], ("de", "nl"))}, **NAMES, train_source="x")
    with refused("y is a folder without files that end in .tmx, .parquet"):
        pairs({"y/m.tmx.bak": memory(PAIRS)}, **NAMES, train_source="y")
