"""The page of phasors, in a real browser: `make test-browser`."""

import numpy as np
import pytest

from chromium import DESKTOP, PHONE, opened, overflow
from experiments.positions import phasors
from tiny_models import tiny_config

pytestmark = pytest.mark.browser
STILL, MOVING = {"reduced_motion": "reduce"}, {"reduced_motion": "no-preference"}
# The end of each hand, up and right of its hub, in radii.
ENDS = """hands => hands.map(hand => {
  const [circle, point] = hand.querySelectorAll("circle");
  const read = (name) => point.getAttribute(name) - circle.getAttribute(name);
  const radius = Number(circle.getAttribute("r"));
  return [-read("cy") / radius, read("cx") / radius];
})"""


@pytest.fixture(scope="module")
def drawn():
    return phasors.phasors_of(tiny_config())


@pytest.fixture(scope="module")
def file(drawn, tmp_path_factory):
    return phasors.write_phasors(drawn, tmp_path_factory.mktemp("page") / "positions.html")


def test_the_slider_turns_every_hand_to_its_sine_and_cosine(chromium, file, drawn):
    with opened(chromium, file, **STILL) as page:
        for number, phasor in enumerate(drawn):
            page.check(f"input[value='{number}']")
            for position in (0, 7, 47):
                page.fill("#position", str(position))
                drawn = page.eval_on_selector_all("#picture .hand", ENDS)
                expected = phasor.table[position][np.array(phasor.hands)]
                np.testing.assert_allclose(drawn, expected, atol=1e-5)
                assert page.locator("#picture g:not(.hand):visible").count() == position + 1


def test_it_plays_by_itself_only_where_motion_is_welcome(chromium, file):
    with opened(chromium, file, **STILL) as page:
        page.wait_for_timeout(600)
        assert page.inner_text("#play") == "Play"
        assert page.inner_text("#shown") == "0"
        page.click("#play")
        page.wait_for_function("Number(document.getElementById('shown').textContent) > 1")
        page.fill("#position", "5")  # who moves the slider wants to stay there
        page.wait_for_timeout(600)
        assert page.inner_text("#shown") == "5"
    with opened(chromium, file, **MOVING) as page:
        page.wait_for_function("Number(document.getElementById('shown').textContent) > 0")


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_nothing_is_wider_than_the_screen(chromium, file, viewport):
    with opened(chromium, file, viewport=viewport, **STILL) as page:
        assert overflow(page) <= 0
        boxes = page.eval_on_selector_all(
            "#picture text", "texts => texts.map(text => text.getBoundingClientRect().toJSON())"
        )
    assert len(boxes) > 16
    assert all(box["left"] >= 0 and box["right"] <= viewport["width"] for box in boxes)
