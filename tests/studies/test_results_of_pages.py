"""The commands of the pages of results are run as they stand there, and their scores collected."""

import json
import re

import pytest

from places import ROOT
from studies import results
from studies.results import main, read_pages

WRITE = "import pathlib,sys; p=pathlib.Path(sys.argv[1][10:]); p.mkdir(parents=True)"


def test_every_page_of_the_documentation_has_commands_that_make_runs():
    for page, commands in read_pages(ROOT / results.PAGES).items():
        assert all(command.startswith("python ") for command in commands), page


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a page of three commands, of which the second fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORPORA", "corpora of mine")
    score = "(p/'results.json').write_text(sys.argv[2])"
    content = json.dumps({"step": 7, "test": {"bleu": 31.5}, "wall_seconds": 120}).replace(
        '"', '\\"'
    )
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "docs/results/README.md").write_text("| [page](page.md) |\n")
    (tmp_path / "docs/results/page.md").write_text(
        f'```\npython -c "{WRITE}; {score}" --workdir=runs/one "{content}"\n'
        'python -c "import sys; sys.exit(sys.argv[1])" $CORPORA\n'
        f'python -c "{WRITE}" --workdir=runs/three\n```\n'
    )
    return tmp_path


def test_scores_become_csv_and_a_page_ends_at_its_first_failure(folder, capsys):
    assert main([]) == 1
    printed = capsys.readouterr().out
    assert (folder / "docs/results/data/one.csv").read_text() == (
        "step,test_bleu,wall_seconds\n7,31.5,120\n"
    )
    assert re.search(r"page +.? +1 +.? +2 ", printed)  # one run of two minutes
    assert "$CORPORA: exit code 1, see runs/logs_of_results/page.log" in printed
    assert "corpora of mine\n" in (folder / "runs/logs_of_results/page.log").read_text()
    assert not (folder / "runs/three").exists()


def test_an_unknown_page_and_missing_corpora_are_refused(folder, capsys, monkeypatch):
    assert main(["--pages=page,nothing"]) == 2
    assert "--pages=nothing is not there: use page" in capsys.readouterr().err
    monkeypatch.delenv("CORPORA")
    assert main([]) == 2
    assert "CORPORA is not set" in capsys.readouterr().err
    assert not results.DATA.exists()
