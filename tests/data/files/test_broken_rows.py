"""Fields that are not there and rows that are broken are named, or passed over and counted."""

import pyarrow
import pytest
from format_examples import END, HEAD, NAMES, jsonl, parquet_bytes, unit

from source_settings import refused
from transformer.data.pairs import Pair
from transformer.data.parallel.sources import open_source


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
    assert caplog.messages[-1] == f"{tmp_path / name}: skipped 1 broken {unit}s"


def test_a_row_of_csv_with_a_comma_that_no_quotes_protect_is_refused_and_not_cut(pairs):
    text = 'en,de\nNo.,Nein.\n"Yes, I do.","Ja, gern."\n'
    assert pairs({"a.csv": text}, **NAMES)[1] == Pair("Ja, gern.", "Yes, I do.")
    with refused("line 3: 4 column(s), where the first line has 2 (a cell that has a separator"):
        pairs({"a.csv": text.replace('"', "")}, **NAMES)
