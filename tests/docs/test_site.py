"""The site of the documentation: its pages, and that it is read without a network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from places import ROOT

DOCS = ROOT / "docs"
LIBRARY = ROOT / "transformer"
# What a browser would fetch from elsewhere while it shows a page.
REMOTE = re.compile(r"""(?:src=|<link[^>]* href=|@import |url\()["']?(?:https?:)?//[^"')\s]+""")


def pages_of(nav) -> list[str]:
    """The pages that `nav` of mkdocs.yml names."""
    if isinstance(nav, str):
        return [nav]
    return [
        page for each in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(each)
    ]


@pytest.mark.full
def test_every_page_is_in_the_navigation_once():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    named = pages_of(yaml.safe_load(text[text.index("\nnav:") :])["nav"])
    sources = [*DOCS.rglob("*.md"), *(DOCS / "notebooks").glob("*.py")]
    own = {str(path.relative_to(DOCS).with_suffix(".md")) for path in sources}
    assert own < set(named)
    assert len(named) == len(set(named))
    assert set(named) - own == {
        "index.md",
        "contributing.md",
        "changelog.md",
        "reference/keys.md",
    }  # of docs/site/hooks.py


def modules() -> set[str]:
    """The modules of the library that have more than a line."""
    found = {path for path in LIBRARY.rglob("*.py") if path.read_text("utf-8").count("\n") > 3}
    names = (path.relative_to(ROOT).with_suffix("").parts for path in found)
    return {".".join(name).removesuffix(".__init__") for name in names}


@pytest.mark.full
def test_every_module_of_the_library_is_in_the_reference_once():
    pages = [page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md")]
    named = re.findall(r"^::: (transformer.*)$", "\n".join(pages), re.MULTILINE)
    assert sorted(named) == sorted(modules())


@pytest.mark.full
def test_what_is_fetched_from_elsewhere_would_be_seen():
    assert REMOTE.search('<script src="https://cdn.org/x.js"></script>')
    assert REMOTE.search("@font-face { src: url(//fonts.org/x) }")
    assert REMOTE.search('<link rel="stylesheet" href="https://fonts.org/css">')
    assert not REMOTE.search('<a href="https://arxiv.org/abs/1706.03762">')


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", f"--site-dir={folder}"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.full
def test_pages_fetch_nothing_from_elsewhere(site):
    assert len([*site.rglob("*.html")]) > len([*DOCS.glob("*.md")])
    assert [*site.rglob("*.css")]
    for file in (*site.rglob("*.html"), *site.rglob("*.css")):
        assert not REMOTE.search(file.read_text("utf-8")), file
