"""The numbers of the attention explorer in a real Chromium are those of the arrays."""

import numpy as np
import pytest
from attention_examples import FRAMES, MAPS, ONE, rows

from chromium import opened
from experiments.attention.draw import hide_end_of_sentence
from transformer.analysis.attention import KINDS

pytestmark = pytest.mark.browser

# Words of SOURCE, TARGET and what is written, as spans of tokens.
SOURCE_WORDS = ((0, 1), (1, 3), (3, 5), (5, 6))
TARGET_WORDS = ((0, 1), (1, 2), (2, 4), (4, 6), (6, 7))
WRITTEN_WORDS = ((0, 1), (1, 3), (3, 5), (5, 6), (6, 7))


def every_head(maps):
    for kind, weights in maps.weights.items():
        for layer, head in np.ndindex(weights.shape[:2]):
            yield {"kind": kind, "layer": layer + 1, "head": head + 1}, weights[layer, head]


def test_every_number_of_the_page_is_the_arrays(chromium, page):
    with opened(chromium, page) as shown:
        for choice, weights in every_head(MAPS):
            np.testing.assert_array_equal(rows(shown, **choice), weights)
            last = shown.evaluate("choice => explorer.row(choice)", {**choice, "row": 5})
            np.testing.assert_array_equal(last["weights"], weights[4])
            assert last["token"] == MAPS.names(choice["kind"])[0][4]
        for frame, maps in enumerate(FRAMES, 1):
            choice = {"example": 2, "frame": frame, "kind": "cross", "layer": 3, "head": 5}
            np.testing.assert_array_equal(rows(shown, **choice), maps.weights["cross"][2, 4])


def test_rows_sum_to_one_shown_and_hidden_and_are_then_those_of_the_pictures(chromium, page):
    hidden = hide_end_of_sentence(MAPS)
    with opened(chromium, page) as shown:
        for choice, weights in every_head(hidden):
            found = rows(shown, end="hidden", **choice)
            np.testing.assert_allclose(found, weights, rtol=1e-6, atol=1e-9)
            for end in ("shown", "hidden"):
                for tokens in ("pieces", "words"):
                    found = rows(shown, end=end, tokens=tokens, **choice)
                    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
        of_sink = shown.evaluate("renormalise([[0.1, 0, 0.2, 0, 0.1, 0.5]])")
        np.testing.assert_allclose(of_sink, [[0.2, 0, 0.4, 0, 0.2]], rtol=1e-12)


def test_weights_times_norms_are_the_arrays_product_and_hiding_leaves_them(chromium, page):
    with opened(chromium, page) as shown:
        for choice, weights in every_head(MAPS):
            norms = MAPS.value_norms[choice["kind"]][choice["layer"] - 1, choice["head"] - 1]
            wanted = weights.astype(float) * norms.astype(float)
            np.testing.assert_array_equal(rows(shown, values="norms", **choice), wanted)
            assert not np.allclose(wanted.sum(-1), 1, rtol=0.01)  # as the page says
        wanted = MAPS.weights["cross"][1, 2].astype(float) * MAPS.value_norms["cross"][1, 2]
        found = rows(shown, kind="cross", layer=2, head=3, values="norms", end="hidden")
        np.testing.assert_array_equal(found, wanted[:, :-1])


@pytest.mark.parametrize("kind", KINDS)
def test_words_sum_their_columns_and_average_their_rows(chromium, page, kind):
    words = {"source": SOURCE_WORDS, "target": TARGET_WORDS, "written": WRITTEN_WORDS}
    _, queries, keys, *_ = KINDS[kind]
    weights = MAPS.weights[kind][1, 2].astype(float)
    wanted = [
        [weights[a:b, c:d].sum(axis=1).mean() for c, d in words[keys]] for a, b in words[queries]
    ]
    with opened(chromium, page) as shown:
        choice = {"kind": kind, "layer": 2, "head": 3, "tokens": "words"}
        np.testing.assert_allclose(rows(shown, **choice), wanted, rtol=1e-12)
        named = shown.evaluate("choice => explorer.matrix(choice)", choice)
        names = {
            "source": ["He", "admired", "her.", "</s>"],
            "target": ["<s>", "Он", "восхищался", "ею.", "Да"],
            "written": ["Он", "восхищался", "ею.", "Да", "</s>"],
        }
        assert (named["queries"], named["keys"]) == (names[queries], names[keys])
        after = ["<s>", "▁Он", "ался", ".", "▁Да"]
        assert named["after"] == (after if queries == "written" else None)


def test_the_numbers_written_are_those_of_the_row_from_the_strongest_on(chromium, page):
    row = MAPS.weights["cross"][1, 2, 3]
    with opened(chromium, page, f"{ONE}&row=4") as shown:
        written = shown.locator("#row-keys tr").all_inner_texts()
        order = np.argsort(-row, kind="stable")
        assert [text.split() for text in written] == [
            [MAPS.source_tokens[key], f"{row[key]:.4f}"] for key in order
        ]
        assert shown.inner_text("#row-sum") == "1.0000"
        assert shown.locator(".sums span").all_inner_texts() == ["1.0000"] * 7
        assert shown.inner_text("#row-title") == "Row 4 of 7 ▁ею"
        assert shown.inner_text("#row-after") == "written after ался in layer 2, head 3"
        said = shown.inner_text("#said")
        assert "Row ▁ею, written after ался, reads:" in said
        assert f"{MAPS.source_tokens[order[0]]} {row[order[0]]:.4f}" in said
