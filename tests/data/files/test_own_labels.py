"""Labelled texts as people have them: their columns, quotes, folders and labels are recognised."""

import csv
import io

import pyarrow
import pytest
from format_examples import jsonl, parquet_bytes

from configs import own_labels
from source_settings import refused
from transformer.data.labelled import guess_columns, open_labelled, prepare_labelled
from transformer.data.pairs import Labelled

TEXTS = [f"A text, the {i}th; it has 'words' of its own" for i in range(60)]
ROWS = [(("Web", "Sport", "Etat")[i % 3], text) for i, text in enumerate(TEXTS)]
# Thai has no blanks between words.
THAI = [f"{food}อร่อยมากและ{place}" for food in ("ก๋วยเตี๋ยว", "ส้มตำ") for place in "กขคงจฉชซญ"]
NUMBERS = {"text_field": "1", "label_field": "0"}


def table(rows, **dialect):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", **dialect).writerows(rows)
    return file.getvalue()


GERMAN = table(ROWS, delimiter=";")
NEWS = table([(i % 4 + 1, f"The {i}th of all", text) for i, text in enumerate(TEXTS)], quoting=1)
DATE = "Mon Apr 06 22:19:45 PDT 2009"
WIDE = [(i, DATE, f"https://x.org/{i}", "Jo Doe", *row) for i, row in enumerate(ROWS)]
FILES = {
    "ag_news.csv": (NEWS, "1,2", "0"),
    "sorted.csv": (table(sorted(ROWS)), "1", "0"),
    "header.csv": (table([("Rubrik", "Artikel"), *ROWS]), "Artikel", "Rubrik"),
    "wide.csv": (table([("id", "date", "url", "by", "class", "body"), *WIDE]), "body", "class"),
    "thai.parquet": (
        parquet_bytes(pyarrow.table({"texts": THAI, "category": [i % 2 for i in range(18)]})),
        *("texts", "category"),
    ),
    "usual.jsonl": (
        jsonl({"text": text, "title": text, "intent": "a", "label": len(text)} for text in TEXTS),
        *("text", "label"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_columns_of_a_file_are_recognised(write, name):
    content, text, label = FILES[name]
    assert guess_columns(write({name: content})) == {
        "data.text_field": text,
        "data.label_field": label,
    }


def test_a_file_of_doubtful_columns_is_refused_with_flags_to_paste(write):
    content = table((*row, "ab"[i % 2]) for i, row in enumerate(ROWS))
    flags = "--config.data.text_field=1 --config.data.label_field=0"
    with refused("a.csv has the columns '0', '1', '2'", "labels may be in '0', '2'", flags):
        guess_columns(write({"a.csv": content}))
    assert guess_columns(write({"c.csv": ""})) == {}


def test_a_quote_other_than_the_usual_one_is_set(write):
    def read(content, **keys):
        source = open_labelled(write({"a.csv": content}, **NUMBERS, **keys))
        return [(item.label, item.text) for item in source.splits["train"]]

    assert read(GERMAN) == read(table(ROWS, delimiter=";", quotechar="'"), quote="'") == ROWS
    spoken = [("a", "'Tis good"), ("b", "don't; 'no', he said"), ("a", "'Fine'")]
    assert read(table(spoken)) == spoken
    keys = {"separator": "|", "quote": "^"}
    assert read("a|it's, 'x'\nb|^y|z^\n", **keys) == [("a", "it's, 'x'"), ("b", "y|z")]
    with refused("config.data.separator and config.data.quote: each is one character"):
        read(GERMAN, separator="; ")


def test_several_columns_are_one_text_without_empty_cells(write):
    keys = {**NUMBERS, "text_field": "1,2"}
    source = open_labelled(write({"a.csv": "a,One,two\nb,,three\na,  four ,\n"}, **keys))
    assert [item.text for item in source.splits["train"]] == ["One two", "three", "four"]


def test_labels_are_canonical_and_those_that_are_likely_one_are_named(write, said):
    content = "Caf\u00e9,x\nCafe\u0301,y\nno,x\nNo.,y\n-1,x\n1,y\nC,x\nC#,z\n"
    source = open_labelled(write({"a.csv": content}, **NUMBERS))
    assert source.labels == ("-1", "1", "C", "C#", "Caf\u00e9", "No.", "no")
    assert source.sizes["train"]["Caf\u00e9"] == 2
    warnings = [line for line in said if "likely one class" in line]
    assert [line.split(" are ")[0] for line in warnings] == ["warning: the labels 'No.', 'no'"]


def test_a_tokenizer_learns_of_long_texts_too(tmp_path):
    long = ["".join(THAI) * 30, "".join(THAI[::-1]) * 30]  # of more bytes than sentencepiece reads
    items, config = (
        [Labelled(text, "ab"[i]) for i, text in enumerate(long)],
        own_labels.get_config(),
    )
    config.data.cache_dir, config.tokenizer.vocab_size = str(tmp_path), 400
    texts, tokenizer = prepare_labelled(items, "ab", config.data, config.tokenizer)
    assert len(tokenizer.encode(THAI[:1])[0]) < 8 < len(THAI[0])
    assert texts.unknown_fraction == 0


FOLDER = {
    "README": "all about it",
    "__MACOSX/train/pos/2.txt": "x",
    "train/urls_pos.txt": "x",
    "train/pos/2.txt": "A fine film.\nVery.",
    "train/neg/more/1.txt": "A dull film.",
    "train/neg/1.png": b"\x89PNG",
    "train/neg/.ipynb_checkpoints/1.txt": "A dull film, saved.",
    "train/unsup/0.txt": "A film.",
    "test/pos/7.txt.gz": "Nice.",
    "test/neg/7.txt": "Bad.",
}


def test_a_folder_of_texts_for_each_class_is_read_and_the_rest_is_counted(write, said):
    source = open_labelled(write(FOLDER, train_source=".", validation_source="test"))
    texts = [item[:2] for item in source.splits["train"]]
    assert texts == [("A dull film.", "neg"), ("A fine film.\nVery.", "pos")]
    assert [item.text for item in source.splits["test"]] == ["Bad.", "Nice."]
    line = next(line for line in said if "train: its classes are" in line)
    left_out = "4 other files are left out: neg/.ipynb_checkpoints/1.txt, neg/1.png, "
    left_out += "unsup/0.txt, urls_pos.txt"
    assert line.endswith(f"its classes are 'neg', 'pos'; {left_out}")


def test_a_text_in_a_folder_that_is_not_utf8_is_named(write, said, tmp_path):
    texts = {**FOLDER, "train/pos/3.txt": b"caf\xe9"}
    with refused("file pos/3.txt: byte 0xE9 is not UTF-8", "data.skip_broken=True"):
        open_labelled(write(texts, train_source="."))
    open_labelled(write(texts, train_source=".", skip_broken=True))
    assert f"{tmp_path / 'train'}: skipped 1 broken files" in said


def test_a_class_may_be_called_train_and_a_folder_without_classes_is_refused(write):
    texts = {f"{name}/{i}.txt": f"{name} {i}" for name in ("train", "car") for i in range(3)}
    assert open_labelled(write(texts, train_source=".")).labels == ("car", "train")
    with refused("has no text in folders of classes", "2 other files", "train_source"):
        open_labelled(write({"x/a.csv": "x", "x/b.csv": "y"}, train_source="x"))
    with refused("config.data.path is empty"):  # not the folder of the process
        open_labelled(write({}, path="", train_source="."))
