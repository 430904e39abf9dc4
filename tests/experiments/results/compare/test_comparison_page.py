"""The page of a comparison shows its marked sentences, and fits a phone."""

import pytest

from chromium import PHONE, browser, opened, overflow
from sweeps import sentences, translator
from tiny_run import command


@pytest.mark.browser
def test_the_page_is_as_wide_as_its_window(tmp_path):
    texts = [f"<script>alert(1)</script> & <b>bold</b> {text}" for text in sentences(60)]
    runs = [translator(tmp_path, n, errors, references=texts) for n, errors in ((0, 0.3), (1, 0.1))]
    flags = f"--runs={runs[0]},{runs[1]}", f"--output={tmp_path / 'out'}"
    ended = command("--mode=compare", *flags)
    assert ended.code == 0, ended.err
    with browser() as chromium:
        for viewport in (None, PHONE):
            options = {} if viewport is None else {"viewport": viewport}
            with opened(chromium, tmp_path / "out/comparison.html", **options) as shown:
                assert overflow(shown) <= 0
                assert shown.locator("mark").first.is_visible()
