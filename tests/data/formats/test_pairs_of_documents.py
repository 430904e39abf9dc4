"""Pairs of documents are training text: by messages, by times, by keys and by rows."""

import json

import pytest

from transformer.config import default_config
from transformer.data.pairs import Pair
from transformer.data.parallel.texts import parallel_text
from transformer.errors import UserError

PO = 'msgid "a"\nmsgstr "b\\n"\n\n#, fuzzy\nmsgid "c"\nmsgstr "d"\n\nmsgid "e"\nmsgstr ""\n'
CUE = "1\n00:00:{}.000 --> 00:00:{}.000\n{}\n\n"


def pairs(folder, source, target=""):
    """The pairs, and what the log says about them."""
    data = default_config().data
    data.path, data.train_source, data.train_target = str(folder), source, target
    data.source_field, data.target_field = "en", "de"
    text = parallel_text(data, "train")
    return [*text], text.describe() if hasattr(text, "describe") else ""


def test_messages_subtitles_keys_and_sheets_are_pairs(tmp_path):
    (tmp_path / "m.po").write_text(PO)
    found, told = pairs(tmp_path, "m.po")
    assert found == [Pair("a", "b")]
    assert told.endswith(
        "reads 1 pairs; 2 texts are left out: they are fuzzy or have no translation"
    )

    (tmp_path / "en.srt").write_text(CUE.format("01", "03", "a b") + CUE.format("05", "06", "c"))
    (tmp_path / "de.vtt").write_text("WEBVTT\n\n" + CUE.format("01", "02", "d"))
    found, told = pairs(tmp_path, "en.srt", "de.vtt")
    assert found == [Pair("a b", "d")]
    assert told.endswith("reads 1 pairs; 1 texts are left out: they have no partner")

    for name, texts in {
        "en/x": {"k": "a", "l": "b"},
        "de/x": {"k": "c"},
        "en/y": {"k": "d"},
    }.items():
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(texts))
    found, told = pairs(tmp_path, "en", "de")
    assert found == [Pair("a", "c")]
    assert "2 texts are left out" in told

    sheet = pytest.importorskip("openpyxl").Workbook()
    for row in (("en", "de"), ("a", "b")):
        sheet.active.append(row)
    sheet.save(tmp_path / "pairs.xlsx")
    assert pairs(tmp_path, "pairs.xlsx")[0] == [Pair("a", "b")]


def test_a_document_with_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "en.srt").write_text(CUE.format("01", "03", "a"))
    (tmp_path / "de.txt").write_text("b\n")
    with pytest.raises(UserError, match=r"de\.txt is not a document"):
        pairs(tmp_path, "en.srt", "de.txt")
