"""The page of phasors, in a real browser: `make test-browser`."""

import numpy as np
import pytest

from chromium import PHONE, opened, overflow
from experiments.positions import plots
from tiny_models import tiny_config

pytestmark = pytest.mark.browser
STILL = {"reduced_motion": "reduce"}
# The end of each hand, up and right of its hub, in radii.
ENDS = """hands => hands.map(hand => {
  const [circle, point] = hand.querySelectorAll("circle");
  const read = (name) => point.getAttribute(name) - circle.getAttribute(name);
  const radius = Number(circle.getAttribute("r"));
  return [-read("cy") / radius, read("cx") / radius];
})"""


@pytest.fixture(scope="module")
def drawn():
    return plots.phasors_of(tiny_config())


@pytest.fixture(scope="module")
def file(drawn, tmp_path_factory):
    return plots.write_phasors(drawn, tmp_path_factory.mktemp("page") / "positions.html")


def test_the_slider_turns_every_hand_to_its_sine_and_cosine(chromium, file, drawn):
    with opened(chromium, file, viewport=PHONE, **STILL) as page:
        assert overflow(page) <= 0
        for number, phasor in enumerate(drawn):
            page.check(f"input[value='{number}']")
            for position in (0, 7, 47):
                page.fill("#position", str(position))
                drawn = page.eval_on_selector_all("#picture .hand", ENDS)
                expected = phasor.table[position][np.array(phasor.hands)]
                np.testing.assert_allclose(drawn, expected, atol=1e-5)
                assert page.locator("#picture g:not(.hand):visible").count() == position + 1
