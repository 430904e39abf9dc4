"""Words that share a sentence are pulled together, by the loss that the docstring defines."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread

from studies.cooccurrence import (
    SENTENCES,
    co_occurrence,
    cosines,
    main,
    mean_cosines,
    neighbours,
    pair_loss,
    run,
    split_words,
    train,
)

pytestmark = pytest.mark.full


@functools.cache
def built_in():
    """The words of the built-in sentences, and who shares one."""
    return co_occurrence(split_words(SENTENCES, "built in"))


@functools.cache
def trained(seed, shuffled=False):
    """Cosines of the built-in words before and after training."""
    words, together = built_in()
    rng = np.random.default_rng(seed)
    first = jnp.asarray(rng.normal(size=(len(words), 13)), jnp.float32)
    if shuffled:
        order = rng.permutation(len(words))
        together = together[order][:, order]
    last, losses = train(first, together, steps=101)
    assert losses[-1] < losses[0] / 4
    return np.asarray(cosines(first)), np.asarray(cosines(last))


def loss_of_the_docstring(vectors, together):
    """In float64, pair by pair."""
    total, count = 0.0, len(vectors)
    for j in range(count):
        for i in range(j):
            product = np.dot(vectors[i], vectors[j])
            cosine = product / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
            total += (cosine - together[i, j]) ** 2
    return 2 * total / (count * (count - 1))


def test_words_lose_case_and_punctuation_and_blank_lines_go():
    text = ["The sea, the SEA!", "", " … ", "“Don't” hide (sea-shells)."]
    assert split_words(text, "x") == [["the", "sea"], ["don't", "hide", "sea-shells"]]


def test_words_meet_where_a_sentence_holds_both():
    words, together = co_occurrence([["a", "b"], ["b", "c", "d"]])
    assert words == ["a", "b", "c", "d"]
    assert together.tolist() == [
        [True, True, False, False],
        [True, True, True, True],
        [False, True, True, True],
        [False, True, True, True],
    ]


def test_the_loss_is_that_of_the_docstring():
    rng = np.random.default_rng(3)
    vectors, together = rng.normal(size=(7, 5)), np.triu(rng.random((7, 7)) < 0.5, 1)
    together = together | together.T | np.eye(7, dtype=bool)
    expected = loss_of_the_docstring(vectors, together)
    loss = pair_loss(jnp.asarray(vectors), jnp.asarray(together))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert loss_of_the_docstring(vectors, ~together) != pytest.approx(expected, rel=0.01)


def test_the_absolute_loss_is_the_cosine_s_size_or_what_it_lacks_of_one():
    # Cosines: 0.6 of the first two, 0 of the first and the last, -0.8 of the others.
    vectors = jnp.array([[2.0, 0.0], [3.0, 4.0], [0.0, -1.0]])
    meets = np.eye(3, dtype=bool)
    meets[[0, 1], [1, 0]] = True
    loss = pair_loss(vectors, jnp.asarray(meets), "absolute")
    assert float(loss) == pytest.approx(((1 - 0.6) + 0 + 0.8) / 3, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_training_brings_words_of_one_sentence_nearer_than_others(seed):
    _, together = built_in()
    before, after = (mean_cosines(similarity, together) for similarity in trained(seed))
    shared, linked, apart = after
    assert after[shared] > 0.7
    assert after[shared] > after[linked] + 0.5 > after[apart] + 0.5
    # The controls: vectors that have not learnt, and vectors that have learnt other sentences.
    assert abs(before[shared] - before[apart]) < 0.15
    elsewhere = mean_cosines(trained(seed, shuffled=True)[1], together)
    assert elsewhere[shared] < 0.5


def test_same_seed_same_result(tmp_path):
    for folder, seed in (("a", 7), ("b", 7), ("c", 8)):
        run([f"--output={tmp_path / folder}", f"--seed={seed}", "--steps=11", "--width=5"])
    first, again, other = (
        dict(np.load(tmp_path / folder / "cooccurrence.npz")) for folder in "abc"
    )
    assert first.keys() == other.keys() == {
        "words", "together", "vectors_before", "vectors_after", "before", "after", "losses",
    }  # fmt: skip
    assert first["vectors_after"].shape == (len(first["words"]), 5)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["vectors_after"], other["vectors_after"])


def test_neighbours_are_the_nearest_others_first():
    similarity = np.array([[1.0, 0.2, 0.9], [0.2, 1.0, -0.5], [0.9, -0.5, 1.0]])
    assert neighbours(similarity, "abc", 2) == [
        "c 0.90, b 0.20",
        "a 0.20, c -0.50",
        "a 0.90, b -0.50",
    ]
    assert neighbours(similarity, "abc", 1) == ["c 0.90", "a 0.20", "a 0.90"]


def test_mean_cosines_count_each_pair_once_by_its_kind():
    _, together = co_occurrence([["a", "b"], ["b", "c"], ["d", "e"]])
    similarity = np.arange(25.0).reshape(5, 5)
    assert list(mean_cosines(similarity, together).values()) == [
        np.mean([1, 7, 19]),  # ab bc de
        np.mean([2]),  # ac, by way of b
        np.mean([3, 4, 8, 9, 13, 14]),
    ]
    assert list(mean_cosines(similarity[:2, :2], together[:2, :2]).values()) == [1]


def test_the_command_takes_a_text_and_prints_and_draws(tmp_path, capsys):
    text = tmp_path / "my text.txt"
    lines = "\ufeffred [apple]\n\ngrün $apple$\r\nred 苹果 pear\nred a[b]c\n"
    text.write_text(lines, encoding="utf-8")
    output = tmp_path / "new" / "folder"
    arguments = [f"--sentences={text}", f"--output={output}", "--steps=3", "--width=2"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "grün" in printed
    assert "a[b]c" in printed
    assert "in one sentence" in printed
    assert printed.splitlines()[-1] == str(output / "cooccurrence.png")
    assert imread(output / "cooccurrence.png").std() > 0.01
    saved = np.load(output / "cooccurrence.npz")
    assert saved["words"].tolist() == ["red", "apple", "grün", "苹果", "pear", "a[b]c"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\n ... \n", ("has 0 different words", "sentence per line")),
        (b"Sea, sea!", ("has 1 different words",)),
        ("red sea\ngrün".encode("latin-1"), ("line 2", "UTF-8")),
        (" ".join(map(str, range(1001))).encode(), ("1,001 different words", "2 to 1,000")),
        (None, ("text.txt", "cannot be read")),
    ],
)
def test_a_text_that_cannot_be_used_ends_in_one_line_and_code_2(content, says, tmp_path, capsys):
    text = tmp_path / "text.txt"
    if content is not None:
        text.write_bytes(content)
    assert main([f"--sentences={text}", f"--output={tmp_path / 'out'}"]) == 2
    refused(capsys, "text.txt", *says)
    assert not (tmp_path / "out").exists()


def refused(capsys, *says):
    """Checks that one line was printed as an error, with all of this in it."""
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert not [text for text in says if text not in line], line
