"""A real Chromium for tests of pages, which must ask for nothing and complain of nothing."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Yields the browser that is installed; a test fails where there is none."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.fail("there is no Chromium to open pages in: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield started
        started.close()


@contextlib.contextmanager
def opened(browser: Any, file: Path, address: str = "", **context: Any) -> Iterator[Any]:
    """Yields a page of a file; it may ask for nothing else, and write no error, in its lifetime.

    Args:
      address: what stands after `#`.
      context: of playwright's `new_context`, such as `color_scheme`.
    """
    context = {"viewport": DESKTOP, **context}
    with contextlib.closing(browser.new_context(**context)) as made:
        page, told, asked = made.new_page(), [], []
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        url = file.as_uri()
        page.goto(f"{url}#{address}" if address else url)
        yield page
        assert told == []
        outside = {name.partition("#")[0] for name in asked if not name.startswith("data:")}
        assert outside == {url}


def overflow(page: Any) -> int:
    """The pixels by which a page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
