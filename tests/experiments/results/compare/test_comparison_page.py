"""The page of a comparison is one file with its numbers, figures and marked sentences."""

import re

import pytest

from chromium import PHONE, browser, opened, overflow
from sweeps import sentences, translator
from tiny_run import command

HOSTILE = "<script>alert(1)</script> & <b>bold</b>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    texts = [f"{HOSTILE} {text}" for text in sentences(60)]
    runs = [translator(root, n, errors, references=texts) for n, errors in enumerate((0.3, 0.1))]
    runs = ",".join(map(str, runs))
    ended = command("--mode=compare", f"--runs={runs}", f"--output={root / 'out'}")
    assert ended.code == 0, ended.err
    return root / "out/comparison.html"


def test_the_page_has_the_table_figures_sentences_and_runs(page):
    text = page.read_text()
    for part in ("95% interval", "trial_0", "trial_1"):
        assert part in text
    assert text.count("<svg") == 2
    for direction in ("Better", "Worse"):
        assert re.search(f"{direction} than .*/trial_0", text)
    assert "<mark>wrong</mark>" in text
    assert "tok:13a" in text
    assert "Difference to the baseline, with 95% intervals." in text


@pytest.mark.browser
def test_the_page_is_as_wide_as_its_window(page):
    with browser() as chromium:
        for viewport in (None, PHONE):
            options = {} if viewport is None else {"viewport": viewport}
            with opened(chromium, page, **options) as shown:
                assert overflow(shown) <= 0
                assert shown.locator("mark").first.is_visible()
