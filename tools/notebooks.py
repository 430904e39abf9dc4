"""Executes the notebooks of docs/notebooks/ and renders them for the documentation site.

A notebook is a Python file in jupytext's percent format. If a cell starts with `# %% site="X"`, the
site executes X instead of the cell, for example to load a model instead of training it.
"""

import ast
import contextlib
import functools
import io
import json
import multiprocessing
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

PATHS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.py"))
CELL = re.compile(r'^# %%( \[markdown\])?(?: site="(.*)")?\n', re.MULTILINE)
COLAB = "https://colab.research.google.com/github/{}/blob/gh-pages/notebooks/{}.ipynb"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}


class Cell(NamedTuple):
    """A cell of code or Markdown; `site` is the code that the site executes instead, or None."""

    is_code: bool
    source: str
    site: str | None = None


def read(notebook: str) -> list[Cell]:
    """Returns the cells of a notebook."""
    _, *parts = CELL.split(notebook)
    cells = []
    for mark, site, source in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        text = re.sub("^# ?", "", source, flags=re.MULTILINE) if mark else source
        cells.append(Cell(not mark, text.strip("\n"), site))
    return cells


def execute(code: str, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Executes a cell, and yields the outputs that Jupyter shows.

    An output is ("text", a text), ("png", a picture as bytes) or ("html", an HTML element).
    """
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    tree = ast.parse(code)
    if isinstance(last := tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Assign([ast.Name("__value__", ast.Store())], last.value)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.fix_missing_locations(tree), "cell", "exec"), names)
        value = names.pop("__value__", None)
        if value is not None and not hasattr(value, "_repr_html_"):
            print(repr(value))
    if printed.getvalue():
        yield "text", printed.getvalue()
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, dpi=100)
        yield "png", picture.getvalue()
    plt.close("all")
    for kind in ("png", "html"):
        if content := getattr(value, f"_repr_{kind}_", lambda: None)():
            yield kind, content


def to_ipynb(cells: list[Cell], repository: str) -> str:
    """Returns a notebook as a .ipynb file, which first installs the package from `repository`."""
    install = Cell(True, f"%pip install -q git+https://github.com/{repository}")
    values: list[dict[str, Any]] = []
    for cell in [install, *cells] if repository else cells:
        values.append({"cell_type": "markdown", "metadata": {}, "source": cell.source})
        if cell.is_code:
            values[-1] |= {"cell_type": "code", "execution_count": None, "outputs": []}
    notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": KERNEL, "cells": values}
    return json.dumps(notebook, ensure_ascii=False, indent=1)


def build(path: Path, repository: str) -> dict[str, str | bytes]:
    """Executes a notebook in a temporary folder; returns the files for the site, keyed by name."""
    stem, names, cells = path.stem, {}, read(path.read_text("utf-8"))
    files: dict[str, str | bytes] = {f"{stem}.ipynb": to_ipynb(cells, repository)}
    colab = f" or [open it in Colab]({COLAB.format(repository, stem)})" if repository else ""
    page = [cells[0].source, f"[Download this notebook]({stem}.ipynb){colab}."]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in cells[1:]:
            page.append(f"```python\n{cell.source}\n```" if cell.is_code else cell.source)
            if cell.site:
                page.append(f"For this page, `{cell.site}` was executed instead.")
            for kind, content in execute(cell.site or cell.source, names) if cell.is_code else ():
                if kind == "png":
                    name = f"{stem}_{len(files)}.png"
                    files[name], content = content, f"![Output of the cell]({name})"
                elif kind == "html":
                    content = "<div>" + content.replace("\n", "&#10;") + "</div>"
                else:
                    content = f"```text\n{content}```"
                page.append(content)
    return files | {f"{stem}.md": "\n\n".join(page)}


def build_all(repository: str) -> dict[str, str | bytes]:
    """Builds all notebooks, two at a time.

    Args:
      repository: owner/name on GitHub, for the links to Colab; '' for no links.
    """
    files: dict[str, str | bytes] = {}
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for each in pool.map(functools.partial(build, repository=repository), PATHS):
            files |= each
    return files
