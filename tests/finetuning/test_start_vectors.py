"""Tables of embeddings start with the word vectors of a file, and a resumed run without it."""

import gzip
import hashlib
import logging
from pathlib import Path

import jax
import numpy as np
import pytest

from runs import identical, toy_config
from task_runs import text_config
from tiny_classifier import ROWS
from transformer import tasks
from transformer.errors import UserError
from transformer.optim.parameters import named_leaves
from transformer.runs.run import Run
from transformer.training.run import TrainingRun
from transformer.training.start import read_vectors, start_with_vectors

WORDS = ("the", "plot", "The", "film", "cast", "!")  # of the file, not all of the text
TEXT = [row.replace("the plot", "The Plot") for row in ROWS]
REVIEWS = ["the film was fine !", "The Plot was dull !"] * 40


def write_file(path, width=16, words=WORDS, header=False):
    """A file of vectors, and the vectors by their words."""
    vectors = np.random.default_rng(1).normal(size=(len(words), width)).astype(np.float32)
    rows = [f"{len(words)} {width}"] * header
    rows += [" ".join([w, *map(str, v.tolist())]) for w, v in zip(words, vectors, strict=True)]
    text = "".join(f"{row}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return dict(zip(words, vectors, strict=True))


def started(config):
    """The parameters before and after vectors were put in, the predictor, and the record."""
    predictor = tasks.REGISTRY[config.task](config).predictor
    draw = np.random.default_rng(0).normal
    fresh = jax.tree.map(lambda x: draw(size=x.shape).astype(x.dtype), predictor.param_shapes())
    after, record = start_with_vectors(Run(Path(), config), predictor, fresh)
    return named_leaves(fresh), named_leaves(jax.device_get(after)), predictor, record


def check_rows(before, after, pieces, expected):
    """Tokens have the vectors of their words, up to one factor, and the others their own."""
    rows = [i for i, piece in enumerate(pieces) if piece in expected]
    vectors = np.array([expected[pieces[i]] for i in rows])
    factor = np.sqrt(np.mean(before**2) / np.mean(vectors**2))
    np.testing.assert_allclose(after[rows], factor * vectors, rtol=1e-6)
    others = [i for i in range(len(before)) if i not in rows]
    assert identical(after[others], before[others])
    assert len(rows) == len(expected)


@pytest.mark.parametrize("architecture", ["transformer", "bag_of_embeddings"])
def test_tokens_of_a_classifier_start_with_the_vectors_of_their_words(
    architecture, tmp_path, caplog
):
    theirs = write_file(tmp_path / "words.gz")
    changes = {"model.architecture": architecture, "train.source_vectors": f"{tmp_path}/words.gz"}
    config = text_config("classification", tmp_path / "text", TEXT, **changes)
    config.model.bigram_buckets = 5 * (architecture != "transformer")
    with caplog.at_level(logging.INFO):
        before, after, predictor, found = started(config)
    pieces = predictor.tokenizer.pieces(range(predictor.tokenizer.vocab_size))
    [table] = [name for name in before if not identical(before[name], after[name])]
    expected = {f"▁{word}": theirs[word] for word in ("the", "The", "film", "cast", "!")}
    expected["▁Plot"] = theirs["plot"]  # in small letters, since the file has no other
    check_rows(before[table], after[table], pieces, expected)
    share = f"{table}: 6 of {len(pieces)} tokens start with vectors of {tmp_path}/words.gz"
    assert caplog.records[-1].getMessage() == f"{share} ({600 / len(pieces):.0f}%)"
    digest = hashlib.sha256((tmp_path / "words.gz").read_bytes()).hexdigest()
    record = {"file": f"{tmp_path}/words.gz", "sha256": digest, "tokens": 6}
    assert found == {"vectors": {"source": record}}


def test_subwords_with_vectors_are_looked_up_as_they_are(tmp_path):
    theirs = write_file(tmp_path / "bpemb", words=("▁the", "the", "film", "▁plot", "!"))
    changes = {"train.source_vectors": f"{tmp_path}/bpemb"}
    config = text_config("classification", tmp_path / "text", TEXT, **changes)
    before, after, predictor, _ = started(config)
    pieces = predictor.tokenizer.pieces(range(predictor.tokenizer.vocab_size))
    assert {"▁the", "▁film", "▁Plot"} <= {*pieces}
    [table] = [name for name in before if not identical(before[name], after[name])]
    expected = {piece: theirs[piece.lower()] for piece in pieces if piece.lower() in theirs}
    assert "▁Plot" in expected
    check_rows(before[table], after[table], pieces, expected)


@pytest.mark.parametrize(
    ("tied", "side", "table"),
    [("none", "source", "source"), ("none", "target", "target"), ("all", "source", "target")],
)  # fmt: skip
def test_either_side_of_a_translator_may_start_with_vectors(tied, side, table, tmp_path):
    config = toy_config(tmp_path / "cache", **{"model.tied_embeddings": tied})
    letters = write_file(tmp_path / "letters", 8, ("a", "c", "missing"))
    config.train[f"{side}_vectors"] = str(tmp_path / "letters")
    before, after, predictor, _ = started(config)
    changed = [name for name in before if not identical(before[name], after[name])]
    assert changed == [f"{table}_embedding/table"]  # "target" if it is one for all
    pieces = predictor.target_tokenizer.pieces(range(len(before[changed[0]])))
    expected = {f"▁{letter}": letters[letter] for letter in "ac"}
    check_rows(before[changed[0]], after[changed[0]], pieces, expected)


def test_a_header_changes_nothing_and_words_of_several_parts_are_passed_over(tmp_path):
    for name, header in (("glove", False), ("word2vec", True)):
        write_file(tmp_path / name, 3, ("a", "b"), header)
    (tmp_path / "parts").write_text(". . . 5 6 7\n" + (tmp_path / "glove").read_text())
    (tmp_path / "blanks").write_text((tmp_path / "word2vec").read_text().replace("\n", " \n"))
    expected, width = read_vectors(tmp_path / "glove", {"a", "b", "."})
    assert width == 3
    assert sorted(expected) == ["a", "b"]
    for name in ("word2vec", "blanks"):
        found, width = read_vectors(tmp_path / name, {"a", "b", "."})
        assert width == 3
        assert identical(found, expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a 1 2 3\nb 1 2\nc 1 2 3\n", "line 2 is not a word and 3 numbers: name a text file of"),
        ("2 3\na 1 2 3\nb 1 two 3\n", "line 3 is not a word and 3 numbers"),
        ("3 3\na 1 2 3\nb 1 2 3\n", "has 2 vectors, and its first line says 3: copy or download"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(text, says, tmp_path):
    (tmp_path / "words").write_text(text)
    with pytest.raises(UserError, match=says):
        read_vectors(tmp_path / "words", {"a", "b"})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model.architecture": "bag_of_embeddings", "model.bag_of_embeddings_width": 5},
         "have 5: set config.model.bag_of_embeddings_width=16, or"),
        ({"tokenizer.kind": "char"}, "tokens as a word: name a file of the language, or"),
        ({"train.target_vectors": "PATH"}, "the model has no target embeddings: leave the key out"),
    ],
)  # fmt: skip
def test_vectors_that_do_not_fit_are_refused_before_the_run(change, says, tmp_path):
    write_file(tmp_path / "words", words=WORDS[:5])
    path = str(tmp_path / "words")
    changes = {"train.source_vectors": path} | {
        k: path if v == "PATH" else v for k, v in change.items()
    }
    config = text_config("classification", tmp_path / "text", TEXT, **changes)
    with pytest.raises(UserError, match=says):
        started(config)


def test_a_resumed_run_needs_no_file_and_keeps_its_vectors(tmp_path):
    words = write_file(tmp_path / "words")
    changes = {"train.target_vectors": str(tmp_path / "words")}
    config = text_config("language_model", tmp_path / "text", REVIEWS, **changes)
    task = tasks.REGISTRY[config.task](config)

    def restored(folder, save=False):
        run = TrainingRun(task, config, folder)
        state = run.restore()
        if save:
            run.save(1, state)
        run.close()
        return state

    first = restored(tmp_path / "run", save=True)
    (tmp_path / "words").unlink()
    assert identical(restored(tmp_path / "run").params, first.params)
    pieces = task.predictor.tokenizer.pieces(range(task.predictor.tokenizer.vocab_size))
    ratio = np.asarray(first.params["target_embedding"]["table"])[pieces.index("▁film")]
    ratio = ratio / words["film"]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
    with pytest.raises(UserError, match="cannot be read"):  # the control: a fresh run needs it
        restored(tmp_path / "fresh")
