"""Sources give the right pairs, as often as asked, or say in one line what is wrong."""

import contextlib
import sys

import pytest

import ted_archive
from source_settings import refused, settings
from transformer.data import documents, labelled
from transformer.data.pairs import Pair
from transformer.data.parallel.sources import REGISTRY, open_source


def test_an_unknown_source_is_refused_with_the_choices():
    with refused("data.source='grammer'", "choose one of grammar, copy, reverse, files, tfds"):
        open_source(settings(source="grammer"))


# -- generated text of every kind

ELSEWHERE = ("files", "tfds", "quotations")
SIZES = {"train": 60, "validation": 5, "test": 3}
OPEN = {
    "pairs": (REGISTRY, open_source),
    # Not `open_labelled`, since a few sums do not have all labels.
    "labelled": (labelled.REGISTRY, lambda keys: labelled.REGISTRY[keys.source](keys)),
    "documents": (documents.REGISTRY, documents.open_documents),
}
GENERATED = [
    pytest.param(kind, source, id=f"{kind}-{source}")
    for kind, (registry, _) in OPEN.items()
    for source in registry
    if source not in ELSEWHERE
]


def opened(kind, source, seed=7, **sizes):
    """The splits of a source, each read twice to the same end."""
    sizes = {f"{split}_size": size for split, size in {**SIZES, **sizes}.items()}
    splits = OPEN[kind][1](settings(source=source, seed=seed, documents="line", **sizes))
    read = {split: list(items) for split, items in splits.items()}
    assert read == {split: list(items) for split, items in splits.items()}
    return read


def sides(item) -> list[str]:
    """What of an item a model reads."""
    if isinstance(item, str):
        return [item]
    return [item.source, item.target] if isinstance(item, Pair) else [item.text, item.label]


@pytest.mark.parametrize(("kind", "source"), GENERATED)
def test_a_generated_source_is_a_function_of_its_seed_and_its_splits_share_no_text(kind, source):
    splits = opened(kind, source)
    assert {split: len(items) for split, items in splits.items()} == SIZES
    texts = [sides(item)[0] for items in splits.values() for item in items]
    assert len(set(texts)) == len(texts)
    assert [text for text in texts if not text.strip() or text != " ".join(text.split())] == []
    assert all(opened(kind, source, seed=8)[split] != splits[split] for split in SIZES)
    longer = opened(kind, source, train=70)
    assert longer["train"][:60] == splits["train"]
    assert len(longer["train"]) == 70
    assert (longer["validation"], longer["test"]) == (splits["validation"], splits["test"])


@pytest.mark.parametrize("source", [p.values[1] for p in GENERATED if p.values[0] == "pairs"])
def test_sequences_twice_as_long_or_else_test_pairs_joined_measure_length_generalization(source):
    splits = opened("pairs", source)
    keys = {f"{split}_size": size for split, size in SIZES.items()}
    found = open_source(settings(source=source, seed=7, length_generalization_size=1, **keys))
    [longer] = found.pop("length_generalization")
    assert {split: list(items) for split, items in found.items()} == splits
    if source in ("copy", "reverse"):
        longest = max(len(pair.source.split()) for pair in splits["train"])
        assert (longest, len(longer.source.split())) == (12, 24)
    else:
        first, second = splits["test"][:2]
        joined = [f"{first.source} {second.source}", f"{first.target} {second.target}"]
        assert sides(longer) == joined


def test_fewer_than_two_test_pairs_to_join_are_refused_before_the_training():
    keys = {"source": "grammar", "train_size": 9, "validation_size": 1}
    with refused("length_generalization_size=3 joins two pairs", "test_size to 2 or more"):
        open_source(settings(**keys, test_size=1, length_generalization_size=3))


# -- TensorFlow Datasets


@pytest.fixture(scope="module")
def ted_folder(tmp_path_factory):
    """A folder in which TFDS's own builder has prepared a small TED corpus."""
    folder = tmp_path_factory.mktemp("tfds data")
    with ted_archive.downloads(ted_archive.ted(tmp_path_factory.mktemp("archives"))):
        open_source(settings(source="tfds", tfds_dir=str(folder)))
    return str(folder)


@contextlib.contextmanager
def no_network():
    with ted_archive.downloads({}):
        yield


def open_tfds(folder, **changes):
    with no_network():
        return open_source(settings(source="tfds", tfds_dir=folder, **changes))


def test_tfds_gives_the_published_text_of_every_split_without_tensorflow(ted_folder):
    splits = open_tfds(ted_folder)
    for name, expected in ted_archive.TED.items():
        assert sorted(splits[name]) == sorted(Pair(*pair) for pair in expected)
        assert list(splits[name]) == list(splits[name])
    assert "tensorflow" not in sys.modules


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tfds_name": "ted_hrlr_translat"}, ("'ted_hrlr_translat'", "tensorflow.org/datasets")),
        ({"tfds_fields": ("de", "en")}, ("data.tfds_fields=('de', 'en')", "choose from ru, en")),
        ({"tfds_validation": "dev"}, ("tfds_validation='dev'", "train, validation, test")),
    ],
)
def test_what_tfds_does_not_have_is_refused_with_the_choices(ted_folder, changes, says):
    with refused(*says):
        open_tfds(ted_folder, **changes)


def test_a_dataset_that_cannot_be_downloaded_is_refused_with_a_fix(tmp_path):
    says = ("ru_to_en", str(tmp_path), "config.data.source=files", "set config.data.tfds_dir")
    with no_network(), refused(*says):
        open_source(settings(source="tfds", tfds_dir=str(tmp_path)))
