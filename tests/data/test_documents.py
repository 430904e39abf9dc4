"""Documents are what the text says stands by itself, and each is in one split."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from source_settings import settings
from transformer.data.documents import open_documents
from transformer.errors import UserError

TEXT = "first line\nsecond\n\n  \nthird para\nof two lines\n\nlast\n"


def documents(folder: Path, text: str = TEXT, **changes) -> dict[str, list[str]]:
    with gzip.open(folder / "text.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    found = open_documents(settings(path=str(folder), train_source="text", **changes))
    once, again = ({split: list(texts) for split, texts in found.items()} for _ in range(2))
    assert once == again
    return once


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("line", ["first line", "second", "third para", "of two lines", "last"]),
        ("paragraph", ["first line\nsecond", "third para\nof two lines", "last"]),
        ("file", [TEXT]),
    ],
)
def test_a_document_is_a_line_a_paragraph_or_the_file_as_it_is(tmp_path, kind, expected):
    found = documents(tmp_path, documents=kind, validation_fraction=0.0)
    assert found == {"train": expected}


def test_a_language_model_may_learn_the_text_of_a_document(tmp_path):
    text = "<!doctype html>\n<p>a</p>\n"
    splits = documents(tmp_path, text, documents="file", validation_fraction=0.0)
    assert splits == {"train": [text]}
    with pytest.raises(UserError, match=r"text.gz is a Word document \(DOCX\)"):
        documents(tmp_path, "PK\3\4\0\0word/")  # control: this one has none


def test_held_out_text_is_the_end_of_the_training_text(tmp_path):
    lines = [f"line {n}" for n in range(20)]
    text = "\n".join(lines) + "\n"
    found = documents(tmp_path, text, validation_fraction=0.2, test_fraction=0.1)
    assert found == {"train": lines[:14], "validation": lines[14:18], "test": lines[18:]}
    whole = documents(tmp_path, text, documents="file", validation_fraction=0.25)
    assert "".join(part for split in whole for part in whole[split]) == text
    assert [len(whole[split][0]) for split in ("train", "validation")] == [
        int(0.75 * len(text)),
        len(text) - int(0.75 * len(text)),
    ]


@pytest.mark.full
def test_the_training_text_is_not_held_in_memory(tmp_path):
    line = "x" * 999
    (tmp_path / "text").write_text(f"{line}\n" * 5000)
    keys = settings(
        path=str(tmp_path), train_source="text", validation_fraction=0.1, test_fraction=0.02
    )
    open_documents(keys)  # what is imported on first use is not measured
    tracemalloc.start()
    found = open_documents(keys)
    count = sum(1 for _ in found["train"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (count, len(found["validation"]), len(found["test"])) == (4400, 500, 100)
    assert peak < 0.3 * 5_000_000  # 600 texts are held out


def test_a_split_with_a_file_of_its_own_takes_nothing_from_the_training_text(tmp_path):
    (tmp_path / "other").write_text("one\ntwo\n")
    found = documents(tmp_path, validation_source="other", test_fraction=0.2)
    assert found["validation"] == ["one", "two"]
    assert len(found["train"]) == 4
    assert found["test"] == ["last"]
