"""A new task is its file, the doors of its module and its line in the registry."""

import pytest

import transformer
from experiments import modes
from experiments.process.modes import MODES
from experiments.results import tasks as results
from task_runs import SHORT, text_config
from transformer import tasks
from transformer.errors import UserError

TASK = '''
"""Votes: texts whose authors are classes."""

from transformer.tasks.classification import ClassificationTask


class VoteTask(ClassificationTask):
    unit, noun = "votes", "vote"
    model_noun, invitation = "reader of votes", "Type a vote"
    operations = ("classify",)
'''
DOORS = '''
"""The modes of votes."""

from experiments.modes.classification import attention


def show(task, variables, folder):
    (folder / "shown.txt").write_text(f"{len(task.text.held_out['test'])} {task.unit}")
    yield folder / "shown.txt"
'''


@pytest.fixture
def votes(tmp_path, monkeypatch):
    """A package with the new task; the registry has its line until the test ends."""
    for package, source in ((tasks, TASK), (modes, DOORS)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / "votes.py").write_text(source)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    from transformer.tasks import votes

    monkeypatch.setitem(tasks.REGISTRY, "votes", votes.VoteTask)
    # As when the registry of measures is made with this line.
    monkeypatch.setitem(results.REGISTRY, "votes", results.measures_of("votes"))


def train_votes(folder):
    """A run of labelled texts by the new task."""
    config = text_config("classification", folder)
    config.task = "votes"
    return transformer.train(config, folder / "run", SHORT)


@pytest.mark.full
def test_a_file_and_its_doors_train_score_show_report_and_use_a_new_task(votes, tmp_path):
    run = train_votes(tmp_path)
    assert (tmp_path / "run/shown.txt").read_text() == "24 votes"
    assert "votes:24" in run.results["test"]["accuracy_signature"]
    assert "votes" in (tmp_path / "run/report.html").read_text()
    [answer] = run.classify(["the plot is superb ."])
    assert answer in ("good", "bad")
    assert MODES["attention"].load("votes").__module__ == "experiments.modes.classification"
    task = tasks.REGISTRY["votes"]
    fitting = [name for name, mode in MODES.items() if mode.operation and mode.fits(task)]
    assert fitting == ["classify"]
    with pytest.raises(UserError, match=r"--mode=translate is not for config\.task=votes: "):
        MODES["translate"].load("votes")


def test_without_its_line_a_new_task_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config\.task='votes' is unknown: choose one of caption"):
        train_votes(tmp_path)
