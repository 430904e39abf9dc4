"""The attention explorer in a real Chromium: its pointers, keys, address, widths and colours."""

import numpy as np
import pytest
from attention_examples import FRAMES, MAPS, ONE, make_maps, rows

from chromium import DESKTOP, PHONE, opened, overflow
from experiments.attention.draw import Example, write_explorer
from experiments.process.modes import Options

pytestmark = pytest.mark.browser

HOSTILE = ("</script><b>", '"', "", "▁مرحبا", "▁a\nb", "\x00", "🙂", "x" * 300, "</s>")
VIEWS = ("matrix", "lines", "heads")


@pytest.fixture(scope="module")
def long_page(tmp_path_factory):
    source = (*(f"▁word{i}" for i in range(59)), "</s>")
    path = tmp_path_factory.mktemp("explorer") / "long.html"
    maps = make_maps(source, ("<s>", *source[:-1]), layers=(2, 2), heads=8)
    return write_explorer(path, Example(("step 1",), (maps,)), [], Options())


# -- pointers, keys and the address


def state(page) -> dict:
    return page.evaluate("explorer.state()")


def test_arrows_move_through_heads_and_layers_and_stop_at_their_ends(chromium, page):
    with opened(chromium, page, ONE) as shown:
        visited = []
        for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowUp"):
            shown.keyboard.press(key)
            visited.append((int(state(shown)["layer"]), int(state(shown)["head"])))
        assert visited == [(2, 4), (3, 4), (3, 4), (3, 3), (2, 3), (1, 3)]
        shown.focus('#head input[value="2"]')
        shown.keyboard.press("ArrowRight")
        assert shown.evaluate("document.activeElement.value") == "3"
        assert f"layer={state(shown)['layer']}&head=4" in shown.url


def test_a_cell_that_is_pointed_at_tells_its_tokens_and_its_number(chromium, page):
    with opened(chromium, page, ONE) as shown:
        box = shown.locator(".cells canvas").bounding_box()
        shown.mouse.move(box["x"] + box["width"] * 2.5 / 6, box["y"] + box["height"] * 1.5 / 7)
        number = f"{MAPS.weights['cross'][1, 2, 1, 2]:.4f}"
        assert shown.inner_text("#tip").split() == ["▁восхищ", "→", "ed", number]
        assert shown.inner_text("#row-title") == "Row 2 of 7 ▁восхищ"
        shown.mouse.move(5, 5)
        assert shown.is_hidden("#tip")
        assert shown.inner_text("#row-title") == "All rows, mean"


def test_the_slider_goes_through_the_checkpoints(chromium, page):
    with opened(chromium, page, ONE) as shown:
        assert shown.is_hidden("#steps")  # the sentence asked for has one checkpoint
        shown.select_option("#example", "1")
        assert shown.inner_text("#step") == "step 30"  # the last one
        shown.focus("#frame")
        shown.keyboard.press("Home")
        assert shown.inner_text("#step") == "step 10"
        np.testing.assert_array_equal(rows(shown), FRAMES[0].weights["cross"][1, 2])


def test_an_address_opens_the_view_that_it_was_taken_from(chromium, page):
    with opened(chromium, page) as shown:
        shown.select_option("#example", "1")
        shown.check('[name="view"][value="lines"]', force=True)
        shown.check('[name="layer"][value="2"]', force=True)
        shown.check("#end")
        shown.click("button.name >> nth=3")
        first, address = state(shown), shown.url.partition("#")[2]
        sums = shown.inner_text("aside")
    with opened(chromium, page, address) as again:
        assert state(again) == first
        assert again.inner_text("aside") == sums


# -- looks


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"]
)
def test_nothing_is_wider_than_the_window(chromium, page, long_page, scheme, viewport):
    for file in (page, long_page):
        with opened(chromium, file, viewport=viewport, color_scheme=scheme) as shown:
            for view in VIEWS:
                address = f"view={view}&kind=encoder_self&row=2&values=norms"
                shown.evaluate("address => { location.hash = address }", address)
                shown.wait_for_function("view => explorer.state().view === view", arg=view)
                assert overflow(shown) <= 0
                names = shown.locator(".name:visible")
                assert view == "heads" or names.first.is_visible()
                assert len(shown.screenshot()) > 20_000  # not blank


def test_hostile_tokens_are_text(chromium, tmp_path):
    maps = make_maps(HOSTILE, ("<s>", *HOSTILE[:-1]), layers=(1, 1), heads=1)
    path = tmp_path / "explorer.html"
    write_explorer(path, Example(("step 1",), (maps,)), [], Options())
    for view in VIEWS:
        with opened(chromium, path, f"view={view}&row=2", viewport=PHONE) as shown:
            assert overflow(shown) <= 0
            assert shown.locator("b:has-text('script')").count() == 0
    with opened(chromium, path, "view=matrix") as shown:
        names = shown.locator("button.name").all_inner_texts()
        assert names[:6] == ["</script><b>", '"', "∅", "▁مرحبا", "▁a␣b", "⟨0000⟩"]


@pytest.mark.parametrize("sides", [(), None], ids=["language model", "classifier"])
def test_a_text_of_one_side_has_its_page(chromium, tmp_path, sides):
    tokens = ("<s>", "▁one", "▁two")
    maps = make_maps((), tokens) if sides is not None else make_maps(tokens, ())
    path = tmp_path / "explorer.html"
    write_explorer(path, Example(("step 1",), (maps,)), [], Options())
    for view in VIEWS:
        with opened(chromium, path, f"view={view}&row=3") as shown:
            assert shown.is_hidden("#end")
            after = shown.inner_text("#row-after").removesuffix("layer 1, head 1")
            assert after == ("written after ▁two in " if sides is not None else "")
            last = "(next)" if sides is not None else "▁two"
            assert shown.inner_text("#row-title").endswith(last)
