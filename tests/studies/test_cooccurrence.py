"""Words that share a sentence are pulled together, by the loss that the docstring defines."""

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
    pair_loss,
    split_words,
    train,
)

pytestmark = pytest.mark.full


def loss_of_the_docstring(vectors, together):
    """In float64, pair by pair."""
    total, count = 0.0, len(vectors)
    for j in range(count):
        for i in range(j):
            product = np.dot(vectors[i], vectors[j])
            cosine = product / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
            total += (cosine - together[i, j]) ** 2
    return 2 * total / (count * (count - 1))


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


def test_training_brings_words_of_one_sentence_nearer_than_others():
    words, together = co_occurrence(split_words(SENTENCES, "built in"))
    vectors = np.random.default_rng(0).normal(size=(len(words), 13))
    first = jnp.asarray(vectors, jnp.float32)
    last, losses = train(first, together, steps=101)
    assert losses[-1] < losses[0] / 4
    before, after = (mean_cosines(np.asarray(cosines(each)), together) for each in (first, last))
    shared, linked, apart = after
    assert after[shared] > 0.7
    assert after[shared] > after[linked] + 0.5 > after[apart] + 0.5
    # The control: vectors that have not learnt.
    assert abs(before[shared] - before[apart]) < 0.15


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


def test_a_text_that_cannot_be_used_ends_in_one_line_and_code_2(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_bytes(b"Sea, sea!")
    assert main([f"--sentences={text}", f"--output={tmp_path / 'out'}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "text.txt has 1 different words" in line
