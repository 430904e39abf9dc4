"""The page of embeddings in a real Chromium: what it shows, finds and asks of the network."""

import numpy as np
import pytest

from chromium import PHONE, opened, overflow
from tiny_run import command, shared_run

pytestmark = pytest.mark.browser
PLACE = "figures/embeddings"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The folder of the tiny run's maps."""
    folder = shared_run(tmp_path_factory).copy(tmp_path_factory.mktemp("drawn") / "run")
    assert command(f"--workdir={folder}", "--mode=embeddings").code == 0
    return folder / PLACE


@pytest.fixture
def page(drawn, chromium):
    """The page, which may neither complain nor ask for anything."""
    with opened(chromium, drawn / "embeddings.html", viewport=PHONE) as page:
        page.wait_for_function("map.size !== undefined")
        yield page
        assert overflow(page) == 0


@pytest.fixture(scope="module")
def arrays(drawn):
    """What the page should show."""
    prefix = "source_target_output_"
    saved = np.load(drawn / "embeddings.npz")
    return {name.removeprefix(prefix): saved[name] for name in saved.files}


def told(page):
    """The token that the page tells of, its neighbours and their cosines."""
    cells = [text.split("\n") for text in page.locator("#neighbours button").all_inner_texts()]
    return page.locator("#token").inner_text(), cells


def expected(arrays, token):
    nearest = zip(arrays["neighbours"][token], arrays["cosines"][token], strict=True)
    return str(arrays["tokens"][token]), [[arrays["tokens"][j], f"{c:.2f}"] for j, c in nearest]


def agree(seen, wanted):
    """Checks names, and cosines to a hundredth: halves may be rounded either way."""
    assert (seen[0], [cells[0] for cells in seen[1]]) == (wanted[0], [c[0] for c in wanted[1]])
    cosines = [[float(cells[1]) for cells in each[1]] for each in (seen, wanted)]
    np.testing.assert_allclose(*cosines, atol=0.0101)


def test_a_search_chooses_and_centres_the_token(page, arrays):
    token = 9
    page.fill("#search", str(arrays["tokens"][token]).removeprefix("▁"))
    agree(told(page), expected(arrays, token))
    width, height = page.evaluate("[map.size.width, map.size.height]")
    np.testing.assert_allclose(
        page.evaluate("token => map.place(token)", token), [width / 2, height / 2], atol=0.5
    )
    page.fill("#search", "nothing like it")
    assert page.locator("#found").inner_text() == "No token has “nothing like it” in it."
