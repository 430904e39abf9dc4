"""Maps of token embeddings show the trained table, and neighbours are the nearest tokens."""

import base64
import json
import re

import jax
import numpy as np
import pytest
from matplotlib.image import imread

from configs import base
from experiments.display import vector_space
from experiments.positions import embeddings
from experiments.positions.embeddings import token_kinds
from tiny_models import tiny_config
from tiny_run import command
from transformer.data.tokenizer.train import train_tokenizer
from transformer.errors import UserError
from transformer.inference.base import TokenTable
from transformer.inference.classifier import TextClassifier
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator
from transformer.model.build import REGISTRY
from transformer.model.classifier import Classifier
from transformer.runs.run import Run

NUMBERS = {"int8": "<i1", "uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}
ROYAL = "king man woman queen well-known apple"
TEXT = ("the House and the mouse", "the houses", "a $1 [bold] mouse the", ROYAL, ROYAL)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Tokenizers of words and of characters."""
    settings, cache = base.get_config().tokenizer, tmp_path_factory.mktemp("tokenizers")
    settings.vocab_size = 40
    found = {}
    for settings.kind in ("word", "char"):
        found[settings.kind] = train_tokenizer(TEXT, settings, cache, "TEXT")
    return found


def trained_table(folder):
    """The table of the run's newest checkpoint, and its tokens."""
    run = Run(folder).load_trained()
    table = np.asarray(run.variables["params"]["target_embedding"]["table"])
    return table, run.predictor.target_tokenizer.pieces(range(len(table)))


def decode(encoded):
    """An array as the page's script reads it."""
    (name,) = encoded.keys() & NUMBERS.keys()
    return np.frombuffer(base64.b64decode(encoded[name]), NUMBERS[name]).reshape(encoded["shape"])


def reference_neighbours(vectors, token, count):
    """The nearest by cosine in float64, one pair at a time, and their cosines."""
    cosines = [float(u @ vectors[token]) / np.sqrt(u @ u * (vectors[token] @ vectors[token]))
               for u in vectors.astype(np.float64)]  # fmt: skip
    order = sorted(set(range(len(vectors))) - {token}, key=lambda other: -cosines[other])[:count]
    return order, [cosines[other] for other in order]


# -- vectors


def test_neighbours_are_the_nearest_by_cosine_and_never_the_vector_itself():
    vectors = np.random.default_rng(1).normal(size=(23, 7)).astype(np.float32)
    vectors[3] = vectors[5]
    found, cosines = vector_space.neighbours(vectors, 17)
    for token in range(23):
        expected, expected_cosines = reference_neighbours(vectors, token, 17)
        assert {*found[token]} - {3, 5} == {*expected} - {3, 5}
        np.testing.assert_allclose(cosines[token], expected_cosines, atol=1e-6)
    assert vector_space.neighbours(vectors, 50)[0].shape == (23, 22)


# -- tables


@pytest.mark.parametrize(
    ("kind", "tied", "of_translator", "of_generator"),
    [
        ("transformer", "none", {"source": 17, "target": 23, "output": 23}, ["input", "output"]),
        ("recurrent", "all", {"source_target_output": 23}, ["input_output"]),
    ],
)
def test_each_table_is_named_once_by_all_that_it_is_for(
    kind, tied, of_translator, of_generator, tokenizers
):
    settings, tokenizer = base.get_config().decode, tokenizers["word"]
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    changes = {"architecture": kind, "tied_embeddings": tied, **layers}
    network = REGISTRY[kind](tiny_config(**changes))
    tables = tables_of(Translator(network, tokenizer, tokenizer, settings))
    assert {name: len(table.vectors) for name, table in tables.items()} == of_translator
    decoder = REGISTRY[kind](tiny_config(**{**changes, "num_encoder_layers": 0}))
    assert list(tables_of(Generator(decoder, tokenizer, settings, 7, False))) == of_generator
    encoder = tiny_config(**{**changes, "num_decoder_layers": 0})
    network = Classifier(encoder, 3, "mean")
    assert list(tables_of(TextClassifier(network, tokenizer, "abc", 7, 2))) == ["input"]


def tables_of(predictor):
    """The tables of parameters of zeros."""
    shapes = predictor.param_shapes()
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return predictor.token_tables({"params": params})


# -- one token


def test_a_token_is_found_by_its_piece_or_by_the_word_that_it_is(tokenizers):
    words, characters = tokenizers["word"], tokenizers["char"]
    for name in ("mouse", "▁mouse"):
        assert words.pieces([embeddings.find_token(words, name)]) == ["▁mouse"]
    assert words.pieces([embeddings.find_token(words, "</s>")]) == ["</s>"]
    assert characters.pieces([embeddings.find_token(characters, "m")]) == ["m"]
    pieces = "name one of its pieces: h, o, m, e, s"
    for tokenizer, name, fix in ((words, "", "name another"), (characters, "homes", pieces)):
        with pytest.raises(UserError, match=f"--token={name} is not a token of this model: {fix}"):
            embeddings.find_token(tokenizer, name)


def test_a_sum_of_unit_vectors_leaves_its_own_words_out_of_the_answer(tokenizers):
    tokenizer = tokenizers["word"]
    # Of any lengths: the first axis is royal, the second male, the third female.
    directions = {"king": (2, 2, 0), "man": (0, 3, 0), "woman": (0, 0, 5), "queen": (7, 0, 7)}
    vectors = np.zeros((tokenizer.vocab_size, 3), np.float32)
    for word, vector in {**directions, "apple": (-1, 1, -1), "well-known": (0, 1, 1)}.items():
        vectors[embeddings.find_token(tokenizer, word)] = vector
    tables = {"source": TokenTable(vectors, tokenizer), "target": TokenTable(-vectors, tokenizer)}
    found, opposite = embeddings.neighbour_tables(tables, "king - man + woman")
    _, tokens, cosines = ([*column.cells] for column in found.columns)
    assert tokens[:2] == ["▁queen", "▁well-known"]
    assert not {"▁king", "▁man", "▁woman"} & {*tokens}
    point = np.array([1, 1, 0]) / 2**0.5 - [0, 1, 0] + [0, 0, 1]
    queen = np.array([7, 0, 7])
    cosine = point @ queen / np.linalg.norm(point) / np.linalg.norm(queen)
    assert float(cosines[0]) == pytest.approx(cosine, abs=6e-4)
    assert [*opposite.columns[2].cells] == cosines
    assert embeddings.neighbour_tables(tables, "well-known")  # no difference of two
    with pytest.raises(UserError, match="--token=prince is not a token of this model"):
        embeddings.neighbour_tables(tables, "king - prince + woman")


# -- maps


def test_the_page_and_the_arrays_hold_the_trained_table(copy):
    ended, use = command(f"--workdir={copy}", "--mode=embeddings"), "source_target_output"
    place, (table, pieces) = copy / "figures" / "embeddings", trained_table(copy)
    names = (f"{use}_tsne.png", f"{use}_pca.png", "embeddings.npz", "embeddings.html")
    assert (ended.code, ended.out.split()) == (0, [str(place / name) for name in names]), ended
    arrays = {n.removeprefix(f"{use}_"): a for n, a in np.load(place / "embeddings.npz").items()}
    page = (place / "embeddings.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    ((shown,), (vocabulary,)) = data["tables"], data["vocabularies"]
    assert vocabulary["pieces"] == arrays["tokens"].tolist() == pieces
    np.testing.assert_array_equal(decode(vocabulary["kinds"]), token_kinds(pieces))
    expected, cosines = vector_space.neighbours(table, 10)
    np.testing.assert_array_equal(decode(shown["neighbours"]), expected)
    np.testing.assert_array_equal(arrays["neighbours"], expected)
    np.testing.assert_allclose(decode(shown["cosines"]) / 100, cosines, atol=0.0051)
    assert [each["method"] for each in shown["maps"]] == ["t-SNE", "PCA"]
    for each, method in zip(shown["maps"], ("tsne", "pca"), strict=True):
        points = arrays[method]
        steps = np.ptp(points, axis=0).max() / embeddings.MAP_STEPS
        read = decode(each["points"]) * steps + points.min(axis=0)
        np.testing.assert_allclose(read, points, atol=0.51 * steps)
        assert imread(place / f"{use}_{method}.png")[..., :3].std() > 0.01
    np.testing.assert_array_equal(arrays["pca"], vector_space.pca(table)[0])


def test_of_many_tokens_the_first_are_mapped_by_tsne(monkeypatch, said):
    vectors = np.random.default_rng(3).normal(size=(23, 5))
    monkeypatch.setattr(embeddings, "MAX_TOKENS", 13)
    first, whole = embeddings.make_maps("target_output", vectors)
    assert (len(first.points), len(whole.points)) == (13, 23)
    assert said == [first.title]
    assert "Target and output embeddings: t-SNE of the first 13 of 23 tokens" in first.title
    again, _ = embeddings.make_maps("target_output", vectors)
    np.testing.assert_array_equal(again.points, first.points)
