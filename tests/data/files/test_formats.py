"""One reader of rows: every format gives the same pairs, labelled texts and documents."""

import gzip
import json
import lzma
import tracemalloc

import pyarrow
import pytest
from pyarrow import parquet

from source_settings import refused, settings
from transformer.data.cleaning import cores, survey
from transformer.data.documents.sources import open_documents
from transformer.data.files import arrow, tmx
from transformer.data.labelled.sources import open_labelled
from transformer.data.labels import Labelled
from transformer.data.pairs import Pair
from transformer.data.parallel.sources import open_source

PAIRS = [
    Pair("Ein Haus.", "A house."),
    Pair('Er sagte "ja", dann & wann.', "He said yes <now> & then."),
    Pair("Größe \u2028 zählt", "Size counts"),
    Pair("", "Nothing."),
]
NAMES = {"source_field": "de", "target_field": "en", "train_target": ""}
NESTED = {"source_field": "translation.de", "target_field": "translation.en", "train_target": ""}
HEAD = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx><header/><body>\n'
END = "</body></tmx>\n"


def zstd(data):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def unit(pair, languages=("de", "en")):
    tuvs = zip(languages, pair[: len(languages)], strict=False)
    return "<tu>" + "".join(
        f'<tuv xml:lang="{language}"><seg>{escape(text)}</seg></tuv>' for language, text in tuvs
    ) + "</tu>\n"  # fmt: skip


def memory(pairs, languages=("de", "en")):
    return HEAD + "".join(unit(pair, languages) for pair in pairs) + END


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(pairs):
    """A table with a struct, as `datasets` has them, and the same in columns."""
    return pyarrow.table(
        {
            "id": list(range(len(pairs))),
            "translation": [{"de": pair.source, "en": pair.target} for pair in pairs],
            "de": [pair.source for pair in pairs],
            "en": [pair.target for pair in pairs],
        }
    )


def parquet_bytes(rows):
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(rows, sink, row_group_size=2)
    return sink.getvalue().to_pybytes()


def arrow_bytes(rows):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=3)
    return sink.getvalue().to_pybytes()


STATE = {"_data_files": [{"filename": f"data-0000{i}-of-00002.arrow"} for i in range(2)]}
SAVED = {
    "set/train/state.json": json.dumps(STATE),
    "set/train/dataset_info.json": "{}",
    "set/train/data-00000-of-00002.arrow": arrow_bytes(table(PAIRS[:3])),
    "set/train/data-00001-of-00002.arrow": arrow_bytes(table(PAIRS[3:])),
    "set/dataset_dict.json": '{"splits": ["train", "test"]}',
}
SHARDS = {
    f"hub/{split}-0000{i}-of-00002{end}.parquet": parquet_bytes(table(part))
    for split, end, parts in [
        ("train", "", (PAIRS[:1], PAIRS[1:])),
        ("test", "-0123456789abcdef", (PAIRS[:2], PAIRS[2:])),
    ]
    for i, part in enumerate(parts)
}
TSV = "".join(f"7\t{pair.source}\t{pair.target}\n" for pair in PAIRS)
CSV = "".join(f"{quoted(pair.target)},{quoted(pair.source)}\r\n" for pair in PAIRS)
# As spreadsheets write it where the comma is a decimal point.
SEMICOLONS = "".join(f"{quoted(pair.source)};{quoted(pair.target)}\r\n" for pair in PAIRS)
OBJECTS = [{"id": 1, "translation": {"de": pair.source, "en": pair.target}} for pair in PAIRS]
FORMATS = {
    "numbers.tsv": (TSV, {"source_field": "1", "target_field": "2"}),
    "header.tsv": ("id\tde\ten\n" + TSV, NAMES),
    "numbers.csv": (CSV, {"source_field": "1", "target_field": "0"}),
    "header.csv": ("en,de\n" + CSV, NAMES),
    "semicolons.csv": (SEMICOLONS, {}),
    "header_of_bars.csv": ("de|en\n" + SEMICOLONS.replace('";"', '"|"'), NAMES),
    "flat.jsonl": (jsonl(pair["translation"] for pair in OBJECTS), NAMES),
    "nested.jsonl": ("\n" + jsonl(OBJECTS), NESTED),
    "lists.jsonl": (jsonl([p.source, p.target] for p in PAIRS), {}),
    "memory.tmx": (memory(PAIRS), NAMES),
    "regions.TMX": (memory([(*p[:2], "x") for p in PAIRS], ("DE_at", "en-US", "fr")), NAMES),
    "flat.parquet": (parquet_bytes(table(PAIRS)), NAMES),
    "nested.parquet": (parquet_bytes(table(PAIRS)), NESTED),
    "columns.parquet": (parquet_bytes(table(PAIRS)), {"source_field": "2", "target_field": "3"}),
}
COMPRESSIONS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}


@pytest.fixture
def write(tmp_path):
    """Writes the named contents, text or bytes, and returns settings that read the first."""

    def write_files(contents, **changes):
        for name, content in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        changes = {"train_source": next(iter(contents)), "train_target": "", **changes}
        return settings(path=str(tmp_path), **changes)

    return write_files


@pytest.fixture
def pairs(write):
    def read(contents, **changes):
        return list(open_source(write(contents, **changes))["train"])

    return read


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_pairs_as_often_as_asked(write, name):
    content, keys = FORMATS[name]
    train = open_source(write({name: content}, **keys))["train"]
    assert list(train) == list(train) == PAIRS


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("name", ["header.csv", "memory.tmx", "nested.jsonl"])
def test_a_suffix_of_compression_stands_behind_that_of_the_format(pairs, name, suffix):
    content, keys = FORMATS[name]
    data = COMPRESSIONS[suffix](content.encode())
    assert pairs({name + suffix: data}, **keys) == PAIRS
    assert pairs({name + suffix: data}, **keys, train_source=name) == PAIRS


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_parallel_files_are_unpacked_by_their_content_whatever_their_names(pairs, suffix):
    sides = [
        "".join(f"{side}\n" for side in sides)
        for sides in zip(*[p[:2] for p in PAIRS], strict=True)
    ]
    contents = {
        "corpus.de" + suffix: sides[0],
        "corpus.en": COMPRESSIONS[suffix](sides[1].encode()),
    }
    assert pairs(contents, train_source="corpus.de", train_target="corpus.en") == PAIRS


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("cut", [0.5, 0.98])
def test_a_damaged_archive_gives_one_line_of_its_name_and_kind(write, tmp_path, suffix, cut):
    data = COMPRESSIONS[suffix]("".join(f"{i * i}\t{i}\n" for i in range(3000)).encode())
    name = f"all.tsv{suffix}"
    kind = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}[suffix]
    with refused(f"{tmp_path / name} is a damaged or incomplete {kind} file", "download it again"):
        open_source(write({name: data[: int(cut * len(data))]}))
    open_source(write({name: data}))  # the control


def test_the_ends_of_lines_inside_a_field_become_blanks_of_a_pair(pairs):
    contents = {"a.csv": 'de,en\n"Ein\r\nHaus","A\nhouse"\n'}
    assert pairs(contents, **NAMES) == [Pair("Ein Haus", "A house")]


@pytest.mark.parametrize("name", ["memory.tmx", "flat.jsonl", "flat.parquet"])
def test_a_target_file_with_a_source_of_rows_is_refused(write, name):
    with refused(f"train_source={name!r} has both sides", "set config.data.train_target="):
        open_source(write({name: FORMATS[name][0]}, train_target="train.en"))


# Data sets of Hugging Face.


@pytest.mark.parametrize(
    ("contents", "source"),
    [(SAVED, "set/train"), (SHARDS, "hub/train"), (SHARDS, "hub/test")],
)
def test_a_folder_of_datasets_is_read_shard_after_shard(pairs, contents, source):
    for keys in (NAMES, NESTED):
        assert pairs(contents, **keys, train_source=source) == PAIRS


@pytest.mark.parametrize(
    ("contents", "source", "says"),
    [
        (SAVED, "set", ("several splits, train, test", "set/train")),
        (SHARDS, "hub", ("several splits, test, train", "hub/test")),
        (dict(list(SHARDS.items())[1:]), "hub/train", ("hub/train has 1 of 2 shards",)),
        (dict(list(SAVED.items())[:3]), "set/train", ("data-00001-of-00002.arrow", "not there")),
        (
            {
                "set/train/state.json": '{"_data_files": [{"filename": "../x.arrow"}]}',
                "set/x.arrow": b"",
            },
            "set/train",
            ("'../x.arrow', which is not there",),
        ),
        ({"set/state.json": "{"}, "set", ("state.json cannot be read", "download it again")),
        (
            {"set/state.json": '{"_data_files": [], "_indices_data_files": [{"filename": "i"}]}'},
            "set",
            ("flatten_indices",),
        ),
        ({"set/train.parquet": b"", "set/test.parquet": b""}, "set", ("several splits",)),
    ],
)
def test_a_folder_that_is_not_one_split_says_what_to_name(write, contents, source, says):
    with refused(*says):
        open_source(write(contents, **NAMES, train_source=source))


def test_class_labels_have_the_names_that_the_data_set_says(write):
    features = {
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        "text": {"_type": "Value"},
    }
    rows = pyarrow.table({"text": ["bad", "good", "?"], "label": [0, 1, -1]})
    named = rows.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    source = open_labelled(write({"a.parquet": parquet_bytes(named)}, skip_broken=True))
    assert list(source.splits["train"]) == [Labelled("bad", "neg"), Labelled("good", "pos")]
    assert source.broken == {str(source.splits["train"].source): 1}
    plain = open_labelled(write({"b.parquet": parquet_bytes(rows)}))
    assert plain.labels == ("-1", "0", "1")


@pytest.mark.parametrize("make", [parquet_bytes, arrow_bytes])
@pytest.mark.parametrize("where", [0.0, 0.5, 0.9])
def test_a_damaged_table_gives_one_line(write, tmp_path, make, where):
    name = {parquet_bytes: "a.parquet", arrow_bytes: "a.arrow"}[make]
    data = make(table(PAIRS * 50))
    with refused(f"{tmp_path / name} is a damaged or incomplete", "download it again"):
        open_source(write({name: data[: int(where * len(data))]}, **NAMES))


# Translation memories.


def test_the_code_inside_a_segment_is_no_text(pairs):
    inner = 'A <bpt i="1">&lt;b&gt;<sub>x</sub></bpt>house<ept i="1"/> <hi>so</hi><ph>y</ph>.'
    content = HEAD + unit(("Ein Haus", "@")).replace("@", inner) + END
    assert pairs({"a.tmx": content}, **NAMES) == [Pair("Ein Haus", "A house so.")]


def test_the_exact_language_goes_before_one_of_a_region(pairs):
    content = memory([("a", "b", "c", "d")], ("en-US", "en", "de-AT", "de-DE"))
    assert pairs({"a.tmx": content}, **NAMES) == [Pair("c", "b")]


SECRET = "secret of another file"


@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY x SYSTEM "{path}">',
        '<!ENTITY % x SYSTEM "{path}"> %x;',
        '<!ENTITY a "ha"><!ENTITY x "&a;&a;&a;&a;">',
        '<!ENTITY x "harmless">',
    ],
)
def test_entities_are_refused_before_they_are_used(write, tmp_path, declaration):
    (tmp_path / "secret.txt").write_text(SECRET)
    declared = declaration.format(path=(tmp_path / "secret.txt").as_uri())
    content = memory([("&x;", "b")]).replace("&amp;", "&")
    content = content.replace('SYSTEM "tmx14.dtd">', f"[{declared}]>")
    with refused("a.tmx, line 2: the entity", "is declared") as error:
        open_source(write({"a.tmx": content}, **NAMES))
    assert SECRET not in str(error.value)


def test_what_the_file_of_a_dtd_declares_is_never_read(write, tmp_path):
    (tmp_path / "tmx14.dtd").write_text(f'<!ENTITY x "{SECRET}">')
    content = memory([("&x; a", "b"), ("c", "d")]).replace("&amp;", "&")
    with refused("line 4: the entity &x; is not declared", "skip_broken"):
        open_source(write({"a.tmx": content}, **NAMES))
    train = open_source(write({"a.tmx": content}, **NAMES, skip_broken=True))["train"]
    assert list(train) == [Pair("c", "d")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (HEAD + unit(PAIRS[0]), "line 5: broken XML (no element found)"),
        (HEAD + unit(PAIRS[0]) + "<tu></tuv>", "line 5: broken XML (mismatched tag)"),
        (HEAD + unit(("a", "b")).replace("a", "\x01"), "line 4: broken XML"),
        ("no XML", "line 1: broken XML"),
        (memory([("x" * (tmx.MAX_UNIT + 1), "b")]), "line 4: a unit of more than"),
    ],
)
@pytest.mark.parametrize("skip", [False, True])
def test_broken_xml_is_named_by_its_line(write, content, says, skip):
    with refused("a.tmx, ", says, "fix the file"):
        open_source(write({"a.tmx": content}, **NAMES, skip_broken=skip))


# Fields that are not there.


@pytest.mark.parametrize("name", ["header.tsv", "header.csv", "nested.jsonl", "memory.tmx",
                                  "nested.parquet"])  # fmt: skip
def test_another_schema_lists_the_fields_there_are(write, name):
    content, _ = FORMATS[name]
    keys = {**NAMES, "source_field": "nl"}
    with refused(name, "'nl'", "en", "config.data.source_field"):
        open_source(write({name: content}, **keys))


@pytest.mark.parametrize(
    ("content", "keys", "says"),
    [
        ("source\ttarget\na\tb\n", {}, "looks like a header (source, target)"),
        ("en\tpt_BR\na\tb\n", {}, "looks like a header (en, pt_BR)"),
        ("a\tb\n", {"target_field": "2"}, "line 1: 2 column(s), and data.target_field='2'"),
    ],
)
def test_numbers_that_do_not_fit_a_table_are_refused(write, content, keys, says):
    with refused(says, "config.data.source_field and config.data.target_field"):
        open_source(write({"a.tsv": content}, **keys))


@pytest.mark.parametrize(
    ("name", "content", "place", "why"),
    [
        ("a.tsv", "de\ten\na\tb\nc\nd\te\n", "line 3", "1 column(s)"),
        ("a.csv", 'de,en\na,b\n"c"x,d\nd,e\n', "line 3", "not CSV"),
        ("a.jsonl", jsonl([{"de": "a", "en": "b"}, {"de": 1, "en": "c"}, {"de": "d", "en": "e"}]),
         "line 2", "the source is not a string but 1"),
        ("a.tmx", HEAD + unit("ab") + unit("cd", ("de", "fr")) + unit("de") + END, "line 5",
         "no field 'en'; its fields are 'de', 'fr'"),
        ("a.parquet", parquet_bytes(pyarrow.table({"de": ["a", "c", "d"], "en": ["b", None, "e"]})),
         "row 2", "the target is not a string but null"),
    ],
)  # fmt: skip
def test_a_broken_row_of_pairs_is_named_or_passed_over_and_counted(
    write, tmp_path, caplog, name, content, place, why
):
    with refused(f"{tmp_path / name}, {place}: {why}", "config.data.skip_broken=True"):
        open_source(write({name: content}, **NAMES))
    train = open_source(write({name: content}, **NAMES, skip_broken=True))["train"]
    assert list(train) == [Pair("a", "b"), Pair("d", "e")]
    unit = place.split()[0]
    assert caplog.messages == [f"{tmp_path / name}: skipped 1 broken {unit}s"]


def test_sentences_with_commas_do_not_make_them_the_separator(pairs):
    text = "Yes, I do.;Ja, gern.\n" * 2 + "No.;Nein, nein, nein.\n" + "So, so.;So, so, so.\n"
    assert pairs({"a.csv": text})[2] == Pair("No.", "Nein, nein, nein.")


def test_a_row_of_csv_with_a_comma_that_no_quotes_protect_is_refused_and_not_cut(pairs, write):
    text = 'en,de\nNo.,Nein.\n"Yes, I do.","Ja, gern."\n'
    assert pairs({"a.csv": text}, **NAMES)[1] == Pair("Ja, gern.", "Yes, I do.")
    with refused("line 3: 4 column(s), where the first line has 2: put quotes around a cell"):
        pairs({"a.csv": text.replace('"', "")}, **NAMES)
    settings = {"documents": "line", "validation_fraction": 0.0, "test_fraction": 0.0}
    documents = write({"b.csv": "text\nOne, two.\n"}, text_field="text", **settings)
    with refused("line 2: 2 column(s), where the first line has 1"):
        list(open_documents(documents)["train"])


@pytest.mark.parametrize("name", ["0000.parquet", "2023.parquet", "00000-of-00001.parquet"])
def test_files_of_numbers_alone_are_those_of_their_own_folder(pairs, name):
    own = {f"data/train/{name}": parquet_bytes(table(PAIRS))}
    other = {f"data/{name}": parquet_bytes(table(PAIRS[:1]))}
    assert pairs(own | other, **NAMES, train_source="data/train") == PAIRS


@pytest.mark.parametrize("encoding", ["GB2312", "utf-88"])
def test_a_memory_in_an_encoding_that_cannot_be_read_says_what_to_do(pairs, encoding):
    content = memory(PAIRS).replace('"1.0"', f'"1.0" encoding="{encoding}"')
    with refused("a.tmx", "convert the file to UTF-8"):
        pairs({"a.tmx": content}, **NAMES)


def test_a_field_with_a_near_name_is_told_it(write):
    keys = {"source_field": "source", "target_field": "english"}
    with refused("'english' (did you mean 'English'?)"):
        open_source(write({"a.tsv": "source\tEnglish\na\tb\n"}, **keys))
    with refused("'english' (did you mean 'English'?)"):
        open_source(write({"a.jsonl": jsonl([{"source": "a", "English": "b"}])}, **keys))


def test_skipping_is_not_offered_if_the_first_rows_are_broken_alike(write):
    rows = [{"de": "a"}, {"de": "b"}, {"de": "c", "en": "d"}]
    with refused("line 1: no field 'en'") as error:
        open_source(write({"a.jsonl": jsonl(rows)}, **NAMES))
    assert "skip_broken" not in str(error.value)
    with refused("line 1: no field 'en'", "skip_broken"):  # a control
        open_source(write({"a.jsonl": jsonl(rows[1:])}, **NAMES))


def test_a_file_of_broken_rows_alone_is_refused_with_the_first(write):
    with refused("only broken lines, 2 of them; line 1: no field 'de'", "'a'"):
        open_source(write({"a.jsonl": '{"a": 1}\n{"b": 1}\n'}, **NAMES, skip_broken=True))


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
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_documents_are_read_from_a_field_of_rows(write, name, unit, documents):
    rows = {"a.jsonl": jsonl({"n": 1, "body": text} for text in TEXTS),
            "a.parquet": parquet_bytes(pyarrow.table({"body": TEXTS}))}  # fmt: skip
    changes = {"documents": unit, "validation_fraction": 0.0, "test_fraction": 0.0}
    text = open_documents(write({name: rows[name]}, text_field="body", **changes))
    assert list(text["train"]) == list(text["train"]) == documents
    with refused("'text'", "body", "config.data.text_field"):
        open_documents(write({name: rows[name]}, **changes))


# Memory.


@pytest.mark.parametrize("name", ["a.tmx", "a.jsonl.zst", "a.parquet"])
def test_rows_are_streamed(write, name, monkeypatch):
    monkeypatch.setattr(arrow, "ROWS_AT_ONCE", 8)
    monkeypatch.setattr(survey, "MAX_CHARACTERS", 100_000)
    monkeypatch.setattr(cores, "MAX_PROCESSES", 1)
    many = [Pair(f"{i} {'x' * 10_000}", f"{i} {'y' * 10_000}") for i in range(200)]
    content = {
        "a.tmx": lambda: memory(many),
        "a.jsonl.zst": lambda: zstd(jsonl({"de": p.source, "en": p.target} for p in many).encode()),
        "a.parquet": lambda: parquet_bytes(table(many)),
    }[name]()
    chosen = write({name: content}, **NAMES)
    size = sum(len(p.source) + len(p.target) for p in many)
    del many, content
    assert sum(1 for _ in open_source(chosen)["train"]) == 200  # what is imported stays
    tracemalloc.start()
    assert sum(1 for _ in open_source(chosen)["train"]) == 200
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 5
