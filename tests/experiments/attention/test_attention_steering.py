"""The attention explorer in a real Chromium: playing, keys that others own, and odd addresses."""

import pytest
from attention_examples import make_maps

from chromium import opened
from experiments.attention.explorer import Example, write_explorer
from experiments.process.options import Options

pytestmark = pytest.mark.browser

ONE = "view=matrix&kind=cross&layer=2&head=3"
PLAYS = ("▶", "Play the checkpoints", "polite")
PAUSES = ("❚❚", "Pause", "off")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The explorer of a sentence, with snapshot sentences at three checkpoints and at two."""
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    maps = make_maps()
    tracked = [Example(tuple(f"step {i}" for i in range(n)), (maps,) * n) for n in (3, 2)]
    return write_explorer(path, Example(("step 2",), (maps,)), tracked, Options())


def playing(page) -> tuple:
    play = page.locator("#play")
    live = page.get_attribute("#said", "aria-live")
    return play.text_content(), play.get_attribute("aria-label"), live


def state(page) -> dict:
    return page.evaluate("explorer.state()")


def prevented(page, place: str, key: str) -> bool:
    """Presses a key at an element, and returns whether the browser then leaves it alone."""
    return page.evaluate(
        "([place, key]) => !document.querySelector(place).dispatchEvent("
        "new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }))",
        [place, key],
    )


def test_playing_ends_where_another_sentence_or_address_is_chosen(chromium, page):
    with opened(chromium, page, f"{ONE}&example=2&frame=1") as shown:
        assert playing(shown) == PLAYS
        shown.click("#play")
        assert playing(shown) == PAUSES
        shown.select_option("#example", "2")
        assert playing(shown) == PLAYS
        shown.click("#play")
        assert playing(shown) == PAUSES
        shown.evaluate("location.hash = 'example=2&frame=1'")
        shown.wait_for_function("explorer.state().example === '2'")
        assert playing(shown) == PLAYS
        shown.wait_for_timeout(700)  # longer than a checkpoint is shown
        assert state(shown)["frame"] == "1"
        shown.click("#play")  # the control: it goes on by itself, and ends by itself
        shown.wait_for_function("explorer.state().frame === '2'")
        assert playing(shown) == PAUSES
        shown.wait_for_function("document.getElementById('play').textContent === '▶'")
        assert playing(shown) == PLAYS
        assert state(shown)["frame"] == "3"


def test_arrows_are_left_to_what_scrolls_and_where_nothing_moves(chromium, page):
    with opened(chromium, page, ONE) as shown:
        before = state(shown)
        for place in (".list", "summary", "details p"):
            for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
                assert not prevented(shown, place, key)
        assert state(shown) == before
        assert prevented(shown, "body", "ArrowDown")
        assert not prevented(shown, "body", "ArrowDown")  # there is no fourth layer
        assert state(shown)["layer"] == "3"
        shown.focus('#layer input[value="2"]')
        shown.keyboard.press("ArrowDown")
        assert state(shown)["layer"] == "3"  # nor do its buttons go round to the first
