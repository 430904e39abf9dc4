"""The page in a real Chromium: somebody types, and sees translations and heads."""

import contextlib
import json

import pytest
from playwright.sync_api import Error as PlaywrightError
from serving import PATIENCE, serving

import transformer
from chromium import DESKTOP, PHONE, overflow
from experiments.serve.routes import Served

pytestmark = pytest.mark.browser
SAME = """wanted => {
  const { rows } = explorer.matrix({ kind: "cross", layer: 1, head: 2 });
  return JSON.stringify(rows) === JSON.stringify(wanted);
}"""
FIRST_IS = "text => document.querySelector('.answers button:not(.copy)')?.textContent === text"
SHOWN = """([name, texts]) => [...document.querySelectorAll(".run")].some((run) => {
  const shown = [...run.querySelectorAll("li button:not(.copy)")].map((button) => button.innerText);
  const heading = run.querySelector("h1, h2, h3").textContent.trim();
  return heading === name && JSON.stringify(shown) === JSON.stringify(texts);
})"""
MARKED = """wanted => {
  const words = [...document.querySelectorAll(".linked")].map((word) => word.textContent);
  return JSON.stringify(words.sort()) === JSON.stringify(wanted);
}"""
ALL_TOLD = """() => {
  const count = (name) => document.querySelectorAll(name).length;
  return count(".told.wrong") === count(".run");
}"""
UNDERLINED = """() => [...document.querySelectorAll(".answers u")].map((word) => {
  return [word.textContent, word.className, word.title.split(" ").at(-1)];
})"""
COPIED = """async () => {
  getSelection().selectAllChildren(document.querySelector(".answer"));
  document.execCommand("copy");
  const [item] = await navigator.clipboard.read();
  return [item.types, await navigator.clipboard.readText()];
}"""


@pytest.fixture(scope="module")
def site(loaded):
    runs = [Served(name, run) for name, run in loaded.items()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("experiments.serve.serve.languages_of", lambda data: ("he", "pt"))
        with serving([*runs, Served("second", loaded["translation"])]) as running:
            yield running


@contextlib.contextmanager
def opened(chromium, site, **context):
    """Yields the page; it asks only its own server, and complains of nothing."""
    own = f"http://127.0.0.1:{site.port}/"
    with contextlib.closing(chromium.new_context(**{"viewport": DESKTOP, **context})) as made:
        page, told, asked = made.new_page(), [], []
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(own)
        yield page
        # Errors of requests that the page shows itself are also lines of the console.
        assert [line for line in told if "Failed to load resource" not in line] == []
        assert asked
        assert all(url.startswith(own) for url in asked)


def wait_for(page, script: str, argument=None) -> None:
    """Waits until a function of the page is true, which playwright's own waiting would `eval`."""
    for _ in range(PATIENCE * 20):
        if page.evaluate(script, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(script)


def card(page, name: str):
    return page.locator(".run", has=page.get_by_role("heading", name=name, exact=True))


def best(page, name: str) -> str:
    return card(page, name).locator("li").first.locator(":first-child").first


def test_what_is_typed_is_answered_by_every_run(chromium, site, loaded):
    with opened(chromium, site) as page:
        page.keyboard.type("one red")  # the text has the focus
        own = loaded["translation"].translate(["one red"], num_best=3)[0]
        for name in ("translation", "second"):
            # An answer to the first letters may come before.
            wait_for(page, SHOWN, [name, [each.text or "∅" for each in own]])
        found = loaded["language_model"].generate(["one red"], num_best=3)[0]
        card(page, "language_model").locator("li").nth(2).wait_for()
        assert best(page, "language_model").inner_text() == found[0].text
        assert "nats over" in card(page, "language_model").locator(".told").inner_text()
        classes = loaded["classification"].classify(["one red"], num_best=2)[0]
        card(page, "classification").locator(".bar").nth(1).wait_for()
        bars = card(page, "classification").locator(".bar").all_inner_texts()
        assert [bar.split() for bar in bars] == [
            [label, f"{100 * probability:.1f}%"] for label, probability in classes
        ]
        page.fill("#text", "  ")
        wait_for(page, "() => !document.querySelector('.answers li')")


def test_the_words_that_align_with_the_one_under_the_pointer_are_marked(chromium, site, loaded):
    [[text, links]] = loaded["translation"].align(["a b c"])
    sides = ["a", "b", "c"], text.split()
    with opened(chromium, site) as page:
        page.fill("#text", "a b c")
        item = card(page, "translation").locator("li").first
        for side, words in ((1, item.locator("button .word")), (0, item.locator(".source .word"))):
            wait_for(page, FIRST_IS, text)
            words.first.hover()
            right = [sides[1 - side][link[1 - side]] for link in links if link[side] == 0]
            marked = [sides[side][0], *right] if side == 0 else [*right, sides[side][0]]
            wait_for(page, MARKED, sorted(marked))
    with opened(chromium, site, viewport=PHONE, has_touch=True) as page:
        page.fill("#text", "a b c")
        card(page, "translation").locator(".source .word").first.tap()
        wait_for(page, MARKED, sorted(marked))


def test_an_outdated_answer_is_never_shown(chromium, site, loaded):
    held = []

    def hold(route):
        held.append(route) if "a b" in route.request.post_data else route.continue_()

    [own] = loaded["translation"].translate(["c d e"])
    with opened(chromium, site) as page:
        page.route("**/api/translate", hold)
        page.fill("#text", "a b")
        while len(held) < 2:  # of both translators
            page.wait_for_timeout(20)
        page.fill("#text", "c d e")
        wait_for(page, FIRST_IS, own)
        for route in held:
            with contextlib.suppress(PlaywrightError):  # the page has dropped it
                route.continue_()
        page.wait_for_timeout(300)
        assert best(page, "translation").inner_text() == own


def test_the_heads_are_those_of_the_answer_that_is_chosen_and_follow_what_is_typed(
    chromium, site, loaded
):
    with opened(chromium, site) as page:
        page.fill("#text", "a b c")
        best(page, "translation").wait_for()
        assert not page.is_visible("#heads")
        page.get_by_role("tab", name="Heads").press("Enter")
        page.wait_for_selector("#chart canvas")
        assert page.locator("#chart canvas").count() == 2  # of one layer
        own = loaded["translation"].translate(["a b c"], num_best=3)[0]
        for number in (0, 2):
            card(page, "translation").locator("li button:not(.copy)").nth(number).click()
            wanted = loaded["translation"].attention("a b c", own[number].text)
            rows = wanted.weights["cross"][0, 1]
            wait_for(page, SAME, rows.astype(float).tolist())
        page.check("input[value=lines]")
        page.fill("#text", "d e f g")
        wait_for(page, "() => document.getElementById('title').textContent === 'd e f g'")
        assert page.is_checked("input[value=lines]")  # the view stays
        page.fill("#text", "one red")
        best(page, "language_model").click()
        wait_for(page, "() => explorer.state().kind === 'decoder_self'")
        page.get_by_role("button", name="Close").click()
        assert not page.is_visible("#heads")


def test_a_mistake_and_a_server_that_has_ended_are_told(chromium, site):
    with opened(chromium, site) as page:
        page.fill("#text", "one zebra")
        told = card(page, "language_model").locator(".told.wrong")
        told.wait_for()
        assert "zebra" in told.inner_text()
        page.route("**/api/*", lambda route: route.abort())
        page.fill("#text", "one")
        wait_for(page, ALL_TOLD)
        assert told.inner_text() == "the server does not answer"


def test_unsure_words_are_underlined_unless_typed_and_copied_as_plain_text(
    chromium, site, tiny, tmp_path
):
    folder, text = tiny.copy(tmp_path / "run"), "un deux\n\n deux! un"
    (folder / "confidence.json").write_text(json.dumps({"words": [0.0] * 6, "lines": [0.0] * 6}))
    words = ["un", 0.1], ["deux", 0.9], ["deux", 0.26], ["!", 0.5], ["un", 0.24]
    best, asked = {"text": text, "score": -1, "tokens": 6, "words": words}, []

    def answer(route):
        asked.append(route.request.post_data_json)
        route.fulfill(json={"translations": [[best]], "unread": [0]})

    rights = {"permissions": ["clipboard-read", "clipboard-write"]}
    run = Served("sure", transformer.load(folder))
    with serving([run]) as sure, opened(chromium, sure, **rights) as page:
        page.route("**/api/translate", answer)
        page.fill("#text", "a")
        wait_for(page, FIRST_IS, text)
        first, *others = page.evaluate(UNDERLINED)
        assert first == ["un", "unsure very", "10%"]
        assert others == [["deux", "unsure", "26%"], ["un", "unsure very", "24%"]]
        description = page.locator(".answer").get_attribute("aria-description")
        assert description == "unsure: un 10%, deux 26%, un 24%"
        assert page.evaluate(COPIED) == [["text/plain"], text]
        page.fill("#prefix", "un deux")
        wait_for(page, "() => document.querySelectorAll('.answers u').length === 2")
        assert page.evaluate(UNDERLINED) == others
        assert asked[-1]["prefixes"] == ["un deux"]
        assert all(each["confidence"] for each in asked)
        assert page.locator(".run > p u").count() == 2  # of the legend
    with opened(chromium, site) as page:
        assert page.locator(".run u").count() == 0


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_nothing_is_wider_than_the_screen(chromium, site, viewport):
    with opened(chromium, site, viewport=viewport, color_scheme="dark") as page:
        page.fill("#text", "a b c d e f g h a b c d e f g h " + "x" * 100)
        best(page, "translation").wait_for()
        page.get_by_role("tab", name="Heads").click()
        page.wait_for_selector("#chart canvas")
        assert overflow(page) <= 0


def test_terms_of_the_glossary_are_written(chromium, site, loaded):
    run = loaded["translation"]
    free = run.translate(["a b"])
    term = next(x for x in "hgfedcba" if x not in free[0])
    [text] = run.translate(["a b"], glossary={"b": term})
    asked = {"texts": ["a b"], "glossary": {"b": term}}
    assert site.post("translate", asked).json()["translations"][0][0]["text"] == text
    with opened(chromium, site) as page:
        page.fill("#text", "a b")
        page.click("summary")
        page.fill("#glossary", f"zz =\nb = {term}")
        wait_for(page, FIRST_IS, text)
