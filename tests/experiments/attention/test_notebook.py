"""What a notebook shows of a run: the explorer, heat maps, tables of embeddings."""

import html
import json
import re

import numpy as np
import pytest

from chromium import DESKTOP
from transformer.analysis.attention import Attention
from transformer.errors import UserError


@pytest.fixture
def translator(loaded):
    return loaded["translation"]


def shown(seen: Attention) -> str:
    """The page within what a notebook shows."""
    found = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', seen._repr_html_())
    assert found is not None
    return html.unescape(found[1])


def data_of(seen: Attention):
    """The data of the page."""
    return json.loads(re.search(r'id="data">(.*?)</script>', shown(seen), re.DOTALL)[1])


def test_a_notebook_shows_attention_as_the_explorer_with_its_numbers(translator):
    data = data_of(translator.attention("a b c", "c d"))
    assert data["notes"] == []
    [example] = data["examples"]
    assert example["written"] == ["▁c", "▁d", "</s>"]
    assert example["frames"][0]["weights"]["cross"]["shape"] == [1, 2, 3, 4]


@pytest.mark.browser
def test_the_explorer_within_another_page_works_in_a_browser(translator, chromium, tmp_path):
    seen = translator.attention("a b c", "c d")
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><body>{seen._repr_html_()}</body>", encoding="utf-8")
    with chromium.new_context(viewport=DESKTOP) as context:
        page, told = context.new_page(), []
        page.on("pageerror", lambda error: told.append(str(error)))
        page.goto(file.as_uri())
        inside = page.frames[1]
        inside.wait_for_selector("#chart")
        choice = {"kind": "cross", "layer": 1, "head": 2}
        rows = inside.evaluate("choice => explorer.matrix(choice).rows", choice)
        np.testing.assert_array_equal(np.array(rows), seen.weights["cross"][0, 1])
        inside.check("input[value=lines]")  # which would change the address of a page of its own
        assert told == []


def test_heat_maps_show_themselves_and_refuse_heads_that_are_not_there(translator):
    seen = translator.attention("a b c", "c d")
    figure = seen.figure()
    assert "Cross-attention" in figure.get_suptitle()
    assert [text.get_text() for text in figure.axes[0].texts] == ["head 1", "head 2"]
    assert len(seen.figure("encoder_self", head=2).axes[0].texts) == 1
    assert figure._repr_png_().startswith(b"\x89PNG")
    for number in (0, 3):
        message = f"head={number} does not exist: cross has layers 1 to 1 and heads 1 to 2"
        with pytest.raises(UserError, match=message):
            seen.figure(head=number)
