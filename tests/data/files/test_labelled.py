"""Labelled texts are read with their labels, or one line says where and what is wrong."""

import pytest
from format_examples import jsonl, quoted

from source_settings import refused
from transformer.data.characters import canonicalize
from transformer.data.labelled import open_labelled
from transformer.data.pairs import Labelled

NUMBERS = {"text_field": "1", "label_field": "0"}


@pytest.fixture
def files(write):
    """Opens the files source on the named contents, in a folder of their own."""
    return lambda contents, **changes: open_labelled(write(contents, **changes))


def test_texts_are_read_with_their_labels_and_counted(files):
    texts = [Labelled("A film, with commas.", "pos"), Labelled("Größe \u2028 zählt", "neg")]
    rows = "".join(f"{c},{quoted(t)},\r\n" for t, c, _ in texts)
    source = files({"table.csv": rows}, **NUMBERS)
    assert list(source.splits["train"]) == list(source.splits["train"]) == texts
    assert source.labels == ("neg", "pos")
    assert source.sizes["train"] == {"neg": 1, "pos": 1}


def test_labels_of_json_may_be_whole_numbers_or_truth_values(files):
    rows = [{"text": "x", "label": 0}, {"text": "y", "label": -12}, {"text": "z", "label": True}]
    source = files({"a.jsonl": jsonl(rows)})
    assert [label for _, label, _ in source.splits["train"]] == ["0", "-12", "true"]


def test_a_broken_line_is_named_or_passed_over_and_counted(files, tmp_path, said):
    content = "text,label\nx,a\n,b\ny,b\n"
    with refused(f"{tmp_path}/a.csv, line 3: the text is empty", "data.skip_broken=True"):
        files({"a.csv": content})
    source = files({"a.csv": content}, skip_broken=True)
    assert [item.label for item in source.splits["train"]] == ["a", "b"]
    assert f"{tmp_path}/a.csv: skipped 1 broken lines" in said


def test_a_quote_that_is_never_closed_is_named_by_the_line_it_starts_in(files):
    with refused("a.csv, line 3: not CSV", "fix the line"):
        files({"a.csv": 'text,label\nx,a\n"y,b\n' + "z,b\n" * 40})


def test_a_cell_of_csv_may_be_a_book(files):
    book = "a line\n" * 20_000 + "end"  # of more than the 131,072 characters of Python's csv
    source = files({"a.csv": f'text,label\n"{book}",a\ny,b\n'})
    assert [item.text for item in source.splits["train"]] == [book, "y"]


# Setting aside.

HUNDRED = "".join(f"{'ab'[i % 2]}\ttext {i} of {i * i % 41}\n" for i in range(97))


def test_the_end_of_the_training_file_is_held_out_test_last(files):
    sizes = {"validation_size": 5, "test_size": 11}
    whole = list(files({"a.tsv": HUNDRED}, **NUMBERS).splits["train"])
    splits = files({"a.tsv": HUNDRED}, **NUMBERS, **sizes, holdout="end").splits
    assert list(splits["train"]) == list(splits["train"]) == whole[:81]
    assert list(splits["validation"]) == whole[81:86]
    assert list(splits["test"]) == whole[86:]
    by_hash = files({"a.tsv": HUNDRED}, **NUMBERS, **sizes).splits  # control
    assert [len(list(by_hash[split])) for split in splits] == [81, 5, 11]
    assert list(by_hash["test"]) != whole[86:]


def test_a_text_that_occurs_twice_is_held_out_whole_by_its_hash(files):
    content = HUNDRED + HUNDRED.replace("\n", "\u200b\n")
    splits = files({"a.tsv": content}, **NUMBERS, validation_size=10, test_size=20).splits
    texts = [
        {canonicalize(text) for text, *_ in splits[name]}
        for name in ("train", "validation", "test")
    ]
    assert [len(each) for each in texts] == [82, 5, 10]
    assert not texts[0] & texts[1] | texts[0] & texts[2] | texts[1] & texts[2]


def test_a_text_whose_copy_at_the_end_is_held_out_is_not_trained_on(files):
    sizes = {"validation_size": 5, "test_size": 11}
    last = HUNDRED.splitlines(keepends=True)[-16:]
    copies = "".join(f"{'ba'[line[0] == 'b']}{line[1:]}" for line in last)  # with another label
    splits = files({"a.tsv": copies + HUNDRED}, **NUMBERS, **sizes, holdout="end").splits
    alone = files({"b.tsv": HUNDRED}, **NUMBERS, **sizes, holdout="end").splits
    assert {name: list(texts) for name, texts in splits.items()} == {
        name: list(texts) for name, texts in alone.items()
    }
