"""The notebooks run from the first to the last cell, and become pages and files for Colab."""

import contextlib
import json
import re
from pathlib import Path

import pytest

from places import ROOT
from tiny_run import without_pictures
from tools import notebooks

TINY = {
    "model.d_model": 16, "model.d_ff": 8, "data.validation_size": 6, "data.test_size": 6,
    "data.batch_tokens": 512, "data.num_buckets": 1, "tokenizer.vocab_size": 400,
    "train.steps": 4, "train.evaluate_every": 2, "evaluate.average_last_n": 1,
    "evaluate.bootstrap": 10,
}  # fmt: skip
SMALL = """# %% [markdown]
# # Title
#
#     a = b

# %% site="a = 2"
a = 1

# %%
print("one")
a
"""


def run(name: str, folder: Path, changes: dict[str, str]) -> tuple[str, list[str]]:
    """Executes a notebook with changes in its source; returns what it prints, and what it shows."""
    source = (ROOT / "docs" / "notebooks" / f"{name}.py").read_text("utf-8")
    for old, new in changes.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    names: dict = {}
    with contextlib.chdir(folder), without_pictures():
        cells = [cell.source for cell in notebooks.read(source) if cell.is_code]
        outputs = [output for cell in cells for output in notebooks.execute(cell, names)]
    printed = "".join(text for kind, text in outputs if kind == "text")
    return printed, [kind for kind, _ in outputs if kind != "text"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture(scope="module")
def paper(folder) -> tuple[str, list[str]]:
    settings = {**TINY, "data.train_size": 300}
    return run("paper_in_code", folder, {'{"train.steps": 900}': repr(settings)})


@pytest.mark.full
def test_the_modules_compute_the_equations_of_the_paper(paper):
    printed, shown = paper
    differences = [float(number) for number in re.findall("difference: (.*)", printed)]
    assert len(differences) == 7
    assert max(differences) < 1e-5
    assert shown == ["png"] * 5


@pytest.mark.slow  # the site executes it, too
def test_heads_are_drawn_scored_and_ablated(paper, folder):
    changes = {'RUN = "quickstart"': 'RUN = "runs/paper_in_code"'}
    printed, shown = run("what_heads_do", folder, changes)
    assert shown == ["html", "png", "png", "png", "png"]
    assert len(re.findall(r"AER 0\.\d{3}: ", printed)) == 2
    assert len(re.findall("without .*, layer ., head .:", printed)) == 2


@pytest.mark.full
def test_a_table_becomes_a_translator_and_a_page(folder):
    smaller = f"SETTINGS |= {TINY!r}\nconfig = load_page"
    changes = {"10_000, ": "300, ", '"test": 50': '"test": 3', "config = load_page": smaller}
    printed, _ = run("own_translator", folder, changes)
    assert len((folder / "briefe.txt").read_text("utf-8").splitlines()) == 3
    assert "time: to the end" in printed
    assert (folder / "page" / "index.html").stat().st_size > 100_000


@pytest.mark.parametrize("repository", ["", "OWNER/NAME"])
def test_a_notebook_becomes_a_page_and_a_file_for_colab(tmp_path, repository):
    (tmp_path / "small.py").write_text(SMALL, "utf-8")
    files = notebooks.build(tmp_path / "small.py", repository)
    cells = [cell["source"] for cell in json.loads(files["small.ipynb"])["cells"]]
    assert cells[-3:] == ["# Title\n\n    a = b", "a = 1", 'print("one")\na']
    assert cells[:-3] == [f"%pip install -q git+https://github.com/{repository}"] * bool(repository)
    assert ("github/OWNER/NAME/blob/gh-pages/" in files["small.md"]) == bool(repository)
    assert "```text\none\n2\n```" in files["small.md"]


def test_a_cell_that_fails_fails_the_notebook():
    with pytest.raises(ZeroDivisionError):
        [*notebooks.execute("1 / 0", {})]
