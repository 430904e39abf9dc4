"""TFDS gives texts with the names of their labels, or one text field, or says what is wrong."""

import sys

import pytest

import review_archives
import ted_archive
from source_settings import refused, settings
from transformer.data import tfds
from transformer.data.pairs import Labelled

IMDB = {
    "tfds_name": "imdb_reviews",
    "tfds_fields": ("text", "label"),
    "tfds_train": "train[:60%]",
    "tfds_validation": "train[60%:]",
}
SST2 = {
    "tfds_name": "glue/sst2",
    "tfds_fields": ("sentence", "label"),
    "tfds_test": "validation",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which TFDS's own builders have prepared a few labelled texts."""
    folder, archives = (tmp_path_factory.mktemp(name) for name in ("tfds", "archives"))
    for make, keys in ((review_archives.imdb, IMDB), (review_archives.sst2, SST2)):
        with review_archives.downloads(make(archives)):
            open_labelled(folder, **keys)
    return folder


def open_labelled(folder, kinds=("text", "label"), make=Labelled, **keys):
    return tfds.open_splits(settings(source="tfds", tfds_dir=str(folder), **keys), kinds, make)


def open_prepared(folder, *args, **keys):
    with ted_archive.downloads({}):
        return open_labelled(folder, *args, **keys)


def test_imdb_gives_the_published_reviews_with_the_names_of_their_labels(folder):
    splits = open_prepared(folder, **IMDB)
    assert [len(list(splits[split])) for split in ("train", "validation", "test")] == [3, 2, 3]
    train = [*splits["train"], *splits["validation"]]
    assert sorted(train) == sorted(Labelled(*review) for review in review_archives.IMDB["train"])
    assert sorted(splits["test"]) == sorted(Labelled(*r) for r in review_archives.IMDB["test"])
    assert list(splits["test"]) == list(splits["test"])
    assert "tensorflow" not in sys.modules


def test_sst2_gives_its_sentences_and_a_split_without_labels_is_refused(folder):
    splits = open_prepared(folder, **SST2)
    expected = sorted(Labelled(text, label) for text, label in review_archives.SST2["train"])
    assert sorted(Labelled(text.strip(), label) for text, label, _ in splits["train"]) == expected
    assert [label for _, label, _ in splits["test"]] == ["positive"]
    hidden = open_prepared(folder, **{**SST2, "tfds_test": "test"})
    with refused("data.tfds_test='test'", "glue/sst2", "without a label", "another split"):
        list(hidden["test"])


def test_one_text_field_is_enough_where_one_is_asked_for(folder):
    splits = open_prepared(folder, ("text",), str, **{**IMDB, "tfds_fields": ("text",)})
    assert sorted(splits["test"]) == sorted(text for text, _ in review_archives.IMDB["test"])
    with refused("are not the fields (text) of", "choose from"):
        open_prepared(folder, ("text",), str, **IMDB)


def test_fields_of_the_wrong_kind_are_refused_with_the_names_of_all(folder):
    with refused("('label', 'text') are not the fields (text, label) of imdb_reviews/plain_text"):
        open_prepared(folder, **{**IMDB, "tfds_fields": ("label", "text")})
