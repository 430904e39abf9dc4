"""Hooks of MkDocs: files outside docs/ become pages, and links to them lead there.

README.md is the first page. A file of code that a page links to has a page with its text.
Notebooks are executed.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site.live import make_pages
from tools import key_table, notebooks

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
FILES = {page: file for file, page in PAGES.items()}
RANKS = {"results": 0.6, "reference": 0.3, "source": 0.1}  # of folders in the search; guides: 1
FENCED = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of files outside docs/, of the keys, the stored models and the notebooks."""
    for file, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / file)))
    files.append(File.generated(config, "reference/keys.md", content=key_table.page()))
    for name, html in make_pages().items():
        files.append(File.generated(config, f"live/{name}.html", content=html))
    for name, content in notebooks.build_all(config.extra["repository"]).items():
        files.append(File.generated(config, f"notebooks/{name}", content=content))
    linked = {path for page in files.documentation_pages() for path in _linked(page)}
    for path in sorted(linked):
        if path not in PAGES and not path.startswith("docs/") and (ROOT / path).is_file():
            files.append(File.generated(config, _page_of(path), content=_listing(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns a page whose links to files of the repository are links to their pages."""
    here = posixpath.dirname(page.file.src_uri)
    rank = RANKS.get(here.partition("/")[0])
    if rank is not None:
        page.meta["search"] = {"boost": rank}

    def link(path: str) -> str:
        return posixpath.relpath(_page_of(path), here or ".")

    return _replace_links(markdown, _file_of(page.file.src_uri), link)


def _linked(page: File) -> set[str]:
    """The paths below ROOT that a page links to."""
    paths: set[str] = set()

    def see(path: str) -> str:
        paths.add(path)
        return path

    _replace_links(page.content_string, _file_of(page.src_uri), see)
    return paths


def _replace_links(markdown: str, file: str, link: Callable[[str], str]) -> str:
    """The text of a file with its links replaced, but for those in blocks of code.

    Args:
      file: its path below ROOT.
      link: from a path below ROOT to the link.
    """
    folder = posixpath.dirname(file)

    def replace(match: re.Match) -> str:
        return link(posixpath.normpath(posixpath.join(folder, match[0])))

    parts = FENCED.split(markdown)
    return "".join(part if i % 2 else LINK.sub(replace, part) for i, part in enumerate(parts))


def _file_of(page: str) -> str:
    """The path below ROOT of the text of a page."""
    return FILES.get(page, f"docs/{page}")


def _page_of(file: str) -> str:
    """The page of a file; of what is in docs/, its path there, and of a notebook, its rendering."""
    if file in PAGES or not file.startswith("docs/"):
        return PAGES.get(file, f"source/{file}.md")
    return re.sub(r"^(notebooks/.*)\.py$", r"\1.md", file.removeprefix("docs/"))


def _listing(path: str) -> str:
    """A page with the text of a file."""
    language = path.rpartition(".")[2].replace("py", "python")
    return f"# {path}\n\n````{language}\n{(ROOT / path).read_text('utf-8')}````\n"
