"""Data sets of Hugging Face are read shard after shard, with the names of their classes."""

import json

import pyarrow
import pytest
from format_examples import NAMES, NESTED, PAIRS, arrow_bytes, parquet_bytes, table

from source_settings import refused
from transformer.data.labelled import open_labelled
from transformer.data.pairs import Labelled
from transformer.data.parallel.sources import open_source

SAVED = {
    "set/train/state.json": "{}",
    "set/train/data-00000-of-00002.arrow": arrow_bytes(table(PAIRS[:3])),
    "set/train/data-00001-of-00002.arrow": arrow_bytes(table(PAIRS[3:])),
}
SHARDS = {
    f"hub/{split}-0000{i}-of-00002{end}.parquet": parquet_bytes(table(part))
    for split, end, parts in [
        ("train", "", (PAIRS[:1], PAIRS[1:])),
        ("test", "-0123456789abcdef", (PAIRS[:2], PAIRS[2:])),
    ]
    for i, part in enumerate(parts)
}


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
        (SHARDS, "hub", ("several splits, test, train", "hub/test")),
        (dict(list(SHARDS.items())[1:]), "hub/train", ("hub/train has 1 of 2 shards",)),
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
    plain = open_labelled(write({"b.parquet": parquet_bytes(rows)}))
    assert plain.labels == ("-1", "0", "1")


@pytest.mark.parametrize(("name", "make"), [("a.parquet", parquet_bytes), ("a.arrow", arrow_bytes)])
def test_a_damaged_table_gives_one_line(write, tmp_path, name, make):
    data = make(table(PAIRS * 50))
    with refused(f"{tmp_path / name} is a damaged or incomplete", "download it again"):
        open_source(write({name: data[: len(data) // 2]}, **NAMES))


def test_files_of_numbers_alone_are_those_of_their_own_folder(pairs):
    own = {"data/train/0000.parquet": parquet_bytes(table(PAIRS))}
    other = {"data/0000.parquet": parquet_bytes(table(PAIRS[:1]))}
    assert pairs(own | other, **NAMES, train_source="data/train") == PAIRS
