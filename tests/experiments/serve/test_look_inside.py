"""The panel of the page: next words, the beam as a tree, and the browser's history."""

import math
from urllib.parse import parse_qs, urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from serving import serving
from test_serve_browser import FIRST_IS, best, card, opened, wait_for

from chromium import PHONE, overflow
from experiments.serve.routes import Served

pytestmark = pytest.mark.browser
TEXT = "a b c d"
BECAUSE = "said => document.getElementById('because').textContent.includes(said)"
SETTLED = "() => !document.querySelector('.late') && document.querySelector('.answer')"


@pytest.fixture(scope="module")
def site(loaded):
    names = ("translation", "language_model", "classification")
    with serving([Served(name, loaded[name]) for name in names]) as running:
        yield running


def type_text(page, text=TEXT):
    page.fill("#text", text)
    page.wait_for_timeout(250)  # the pause before the runs are asked
    wait_for(page, SETTLED)


def state(page):
    return {name: value for name, [value] in parse_qs(urlparse(page.url).fragment).items()}


def test_another_word_is_chosen_and_the_history_goes_back_and_forward(chromium, site, loaded):
    run = loaded["translation"]
    [own] = run.translate([TEXT])
    with opened(chromium, site) as page:
        type_text(page)
        best(page, "translation").click()
        page.wait_for_selector("#pieces button")
        [entries] = run.next_tokens([TEXT], [own])
        shown = page.locator("#pieces button").evaluate_all("all => all.map((each) => each.title)")
        for title, entry in zip(shown, entries, strict=True):
            assert abs(float(title[:-1]) / 100 - math.exp(entry.log_prob)) < 1e-3
        page.focus("#pieces button")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
        page.wait_for_selector("#bars li")
        found = run.alternatives(TEXT, own, 1)
        texts = page.locator("#bars small").all_inner_texts()
        assert texts == [each.text for each in found]
        layers = run.lens(TEXT, own)["decoder"].best[:, 1, 0]
        assert page.locator("#layers .token").all_inner_texts() == [*map(str, layers)]
        other = next(
            i for i, each in enumerate(found) if each.word and each.token != entries[1].token
        )
        page.locator("#bars li").nth(other).locator("button").click()
        assert page.input_value("#prefix") == found[other].prefix
        [changed] = run.translate([TEXT], prefix=[found[other].prefix])
        wait_for(page, FIRST_IS, changed)
        chosen = {"tab": "words", "position": "2", "prefix": found[other].prefix}
        assert state(page) == {"text": TEXT, **chosen}
        page.go_back()
        wait_for(page, FIRST_IS, own)
        assert page.input_value("#prefix") == ""
        page.go_forward()
        wait_for(page, FIRST_IS, changed)
        url = page.url
        page.goto("about:blank")
        page.goto(url)
        wait_for(page, FIRST_IS, changed)
        page.wait_for_selector("#bars [aria-current]")
        page.click("#clear")
        wait_for(page, FIRST_IS, own)


def test_the_tree_is_the_search_and_says_why_a_text_lost(chromium, site, loaded):
    run = loaded["translation"]
    with opened(chromium, site, viewport=PHONE) as page:
        type_text(page)
        page.get_by_role("tab", name="Next words").click()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#tree svg")
        steps = run.beam(TEXT)
        fates = [each.fate for step in steps for each in step]
        for fate in set(fates):
            assert page.locator(f"#tree g.{fate}").count() == fates.count(fate)
        [own, second] = [each.text for each in run.translate([TEXT], num_best=2)[0]]
        for text, said in ((own, "won"), (second, "lost"), ("g g g g g g g", "fell out")):
            page.fill("#why", text)
            wait_for(page, BECAUSE, said)
        assert overflow(page) <= 0
        url = page.url.partition("#")[0]
        page.goto("about:blank")
        page.goto(f"{url}#text=a+b+c+d&tab=beam&why=g+g+g+g+g+g+g")  # a link of the report
        wait_for(page, BECAUSE, "fell out")


def test_heads_that_are_switched_off_change_the_translation(chromium, site, loaded):
    run = loaded["translation"]
    names = [f"encoder.1.self.head.{head}.output" for head in (1, 2)]
    with opened(chromium, site, viewport=PHONE) as page:
        type_text(page)
        page.get_by_role("tab", name="Switch off").click()
        page.wait_for_selector("#without:has-text('with all heads')")
        for count, name in enumerate(names, 1):
            page.get_by_role("button", name=name.replace(".head.", ", head ")[:-7]).click()
            page.wait_for_selector(f"#without:has-text('without {name if count == 1 else 2}')")
            with run.intervene(dict.fromkeys(names[:count], "zero")):
                [changed] = run.translate([TEXT])
            assert page.inner_text("#without").endswith(changed)
        assert changed != run.translate([TEXT])[0]  # control
        assert overflow(page) <= 0


def test_each_run_has_the_tabs_of_what_it_can_do(chromium, site, loaded):
    with opened(chromium, site) as page:
        type_text(page, "one red")
        best(page, "classification").click()
        page.wait_for_selector("#chart canvas")
        assert [each.inner_text() for each in page.get_by_role("tab").all()] == [
            "Heads",
            "Switch off",
        ]
        best(page, "language_model").click()
        page.get_by_role("tab", name="Next words").click()
        page.locator("#pieces button").nth(2).click()
        page.locator("#bars button").nth(1).click()
        wait_for(page, "() => document.getElementById('text').value.split(' ').length === 3")
        wait_for(page, SETTLED)
        text = page.input_value("#text")
        assert text.startswith("one red ")
        [[first, *_]] = loaded["language_model"].generate([text], num_best=3)
        assert card(page, "language_model").locator(".answer").first.inner_text() == first.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_is_accessible(scheme, chromium, site):
    with opened(chromium, site) as page:
        page.emulate_media(color_scheme=scheme)
        type_text(page)
        for tab in ("words", "beam", "heads", "off"):
            page.click(f"#tab-{tab}")
            if tab == "words":
                page.click("#pieces button")
                page.wait_for_selector("#bars li")
            wait_for(page, SETTLED)
            [*found] = Axe().run(page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
