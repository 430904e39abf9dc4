"""Whatever byte of the cache is damaged, the text comes out the same, and a line says so."""

import random
import shutil
from pathlib import Path

import numpy as np

from configs import base
from pair_corpus import prepare_corpus
from transformer.data.documents import prepare_text
from transformer.data.labelled import prepare_labelled
from transformer.data.pairs import Labelled, Pair

RNG = random.Random(1)
WORDS = ["".join(RNG.choices("abcdefgh", k=4)) for _ in range(40)]
LINES = [" ".join(RNG.choices(WORDS, k=6)) for _ in range(60)]
PAIRS = [Pair(line, line[::-1]) for line in LINES]
ITEMS = [Labelled(line, "ab"[i % 2]) for i, line in enumerate(LINES)]


def prepare(cache: Path) -> list[bytes]:
    """Everything that a cache holds of three small texts."""
    config = base.get_config()
    config.data.cache_dir, config.data.context = str(cache), 16
    config.tokenizer.vocab_size = 60
    rest = config.data, config.tokenizer
    corpus = prepare_corpus(PAIRS, *rest)
    text, tokenizer = prepare_text(LINES, *rest)
    labelled, own = prepare_labelled(ITEMS, ("a", "b"), *rest)
    stores = corpus.source, corpus.target, text.store, labelled.store
    arrays = [array for store in stores for array in (store.tokens, store.offsets)]
    unknown = corpus.unknown_fraction, text.unknown_fraction
    told = corpus.report, *unknown, text.notes["words"], labelled.notes["cut"]
    return [
        *(np.array(array).tobytes() for array in (*arrays, labelled.labels)),
        *(t.model for t in (corpus.source_tokenizer, corpus.target_tokenizer, tokenizer, own)),
        repr(told).encode(),
    ]


def test_a_flipped_byte_anywhere_in_the_cache_is_named_and_changes_nothing(tmp_path, said):
    whole = prepare(tmp_path / "cache")
    assert said == []
    files = sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert {path.suffix for path in files} == {".model", ".npy", ".json"}
    rng = random.Random(12)
    for _ in range(12):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "cache", copy)
        path = copy / rng.choice(files).relative_to(tmp_path / "cache")
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        path.write_bytes(data)
        said.clear()
        assert prepare(copy) == whole
        assert len(said) == 1, path
        assert str(path.parent if path.suffix != ".model" else path) in said[0]
        shutil.rmtree(copy)


def test_the_same_texts_as_documents_and_with_labels_have_tokenizers_of_their_own(tmp_path):
    config = base.get_config()
    config.data.context, config.tokenizer.vocab_size = 16, 60
    texts = [line.replace(" ", "<br />") for line in LINES]

    def train(folder: str, *orders) -> list[bytes]:
        config.data.cache_dir = str(tmp_path / folder)
        rest = config.data, config.tokenizer
        items = [Labelled(text, "ab"[i % 2]) for i, text in enumerate(texts)]
        prepares = {
            "documents": lambda: prepare_text(texts, *rest)[1],
            "labelled": lambda: prepare_labelled(items, ("a", "b"), *rest)[1],
        }
        return [prepares[order]().model for order in orders]

    one, other = train("both", "documents", "labelled")
    assert [one, other] == train("first", "documents") + train("second", "labelled")
    assert one != other
