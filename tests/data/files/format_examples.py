"""The same pairs in every format that is read."""

import json

import pyarrow
from pyarrow import parquet

from transformer.data.pairs import Pair

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
    "targets.jsonl": (
        jsonl({"src": p.source, "trgs": [p.target, "x"]} for p in PAIRS),
        {**NAMES, "source_field": "src", "target_field": "trgs.0"},
    ),
    "memory.tmx": (memory(PAIRS), NAMES),
    "regions.TMX": (memory([(*p[:2], "x") for p in PAIRS], ("DE_at", "en-US", "fr")), NAMES),
    "flat.parquet": (parquet_bytes(table(PAIRS)), NAMES),
    "nested.parquet": (parquet_bytes(table(PAIRS)), NESTED),
    "targets.parquet": (
        parquet_bytes(
            pyarrow.table({"de": [p[0] for p in PAIRS], "en": [[p[1], ""] for p in PAIRS]})
        ),
        {**NAMES, "target_field": "en.0"},
    ),
    "columns.parquet": (parquet_bytes(table(PAIRS)), {"source_field": "2", "target_field": "3"}),
}
