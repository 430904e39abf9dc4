"""One reader of rows: every format gives the same pairs, labelled texts and documents."""

import gzip
import lzma
import tracemalloc

import pyarrow
import pytest
from format_examples import FORMATS, NAMES, PAIRS, jsonl, parquet_bytes, table, zstd

from source_settings import refused
from transformer.data.documents import open_documents
from transformer.data.files import arrow
from transformer.data.pairs import Pair
from transformer.data.parallel.sources import open_source
from transformer.data.parallel.texts import parallel_text

COMPRESSIONS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_pairs_as_often_as_asked(write, name):
    content, keys = FORMATS[name]
    train = open_source(write({name: content}, **keys))["train"]
    assert list(train) == list(train) == PAIRS


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_suffix_of_compression_stands_behind_that_of_the_format(pairs, suffix):
    content, keys = FORMATS["memory.tmx"]
    data = COMPRESSIONS[suffix](content.encode())
    assert pairs({f"memory.tmx{suffix}": data}, **keys, train_source="memory.tmx") == PAIRS


def test_sentences_with_commas_do_not_make_them_the_separator(pairs):
    text = "Yes, I do.;Ja, gern.\n" * 2 + "No.;Nein, nein, nein.\n" + "So, so.;So, so, so.\n"
    assert pairs({"a.csv": text})[2] == Pair("No.", "Nein, nein, nein.")


def test_text_of_parquet_that_is_not_utf8_is_refused(write, tmp_path):
    def content(word):
        sides = pyarrow.array([b"Tee", word], pyarrow.binary()).view(pyarrow.string())
        return parquet_bytes(pyarrow.table({"de": sides, "en": ["tea", "coffee"]}))

    open_source(write({"a.parquet": content(b"Kaffee")}, **NAMES))  # the control
    with refused(tmp_path / "a.parquet", "UTF8", "download it again"):
        open_source(write({"a.parquet": content(b"Caf\xe9")}, **NAMES))


# Documents.


TEXTS = ["one\ntwo\n\nthree", "four", " ", "five"]


@pytest.mark.parametrize(
    ("unit", "documents"),
    [
        ("line", ["one\ntwo\n\nthree", "four", "five"]),
        ("paragraph", ["one\ntwo", "three", "four", "five"]),
        ("file", ["one\ntwo\n\nthree\nfour\n \nfive\n"]),
    ],
)
def test_documents_are_read_from_a_field_of_rows(write, unit, documents):
    rows = {"a.parquet": parquet_bytes(pyarrow.table({"n": range(4), "body": TEXTS}))}
    changes = {"documents": unit, "validation_fraction": 0.0, "test_fraction": 0.0}
    text = open_documents(write(rows, text_field="body", **changes))
    assert list(text["train"]) == list(text["train"]) == documents
    with refused("'text'", "body", "config.data.text_field"):
        list(open_documents(write(rows, **changes))["train"])


# Memory.


@pytest.mark.full
@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.parquet"])
def test_rows_are_streamed(write, name, monkeypatch):
    monkeypatch.setattr(arrow, "ROWS_AT_ONCE", 8)
    many = [Pair(f"{i} {'x' * 10_000}", f"{i} {'y' * 10_000}") for i in range(300)]
    content = {
        "a.jsonl.zst": lambda: zstd(jsonl({"de": p.source, "en": p.target} for p in many).encode()),
        "a.parquet": lambda: parquet_bytes(table(many)),
    }[name]()
    rows = parallel_text(write({name: content}, **NAMES), "train")
    size = sum(len(p.source) + len(p.target) for p in many)
    many.clear()
    del content
    assert sum(1 for _ in rows) == 300  # what is imported stays
    tracemalloc.start()
    assert sum(1 for _ in rows) == 300
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 5
