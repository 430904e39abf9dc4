"""What is left to do of a run: one function, one truth table."""

import json
import shutil

import pytest

from tiny_run import unsealed
from transformer.files import write_json
from transformer.runs.run import Run, State

STEPS = 40  # of the shared run


@pytest.fixture
def run(copy):
    return Run(copy)


def change(path, **values):
    path.write_text(json.dumps({**unsealed(path), **values}))


def train_further(run):
    change(run.folder / "config.json", train={**run.config.train.to_dict(), "steps": STEPS + 1})


def lack_evaluation(run):
    record = run.folder / "checkpoints" / str(STEPS) / "record.json"
    content = unsealed(record)
    del content["scores"]
    write_json(record, content)


def delete(*names):
    def change(run):
        for name in names:
            path = run.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def have_older_scores(run):
    change(run.folder / "results.json", step=STEPS - 1)


def be_imported(run):
    (run.folder / "marian").mkdir()


ALL = "checkpoints", "results.json", "report.html"


@pytest.mark.parametrize(
    ("changes", "state", "is_scored"),
    [
        ([], State.REPORTED, True),
        ([delete("report.html")], State.SCORED, True),
        ([delete("results.json")], State.TRAINED, False),
        ([have_older_scores], State.TRAINED, False),
        ([train_further], State.STARTED, True),  # scored before the end of its training
        ([lack_evaluation], State.STARTED, True),
        ([delete("checkpoints")], State.REPORTED, True),
        ([delete("checkpoints", "results.json")], State.NEW, False),
        ([delete(*ALL, "config.json")], State.NEW, False),
        ([delete(*ALL), be_imported], State.IMPORTED, False),
        ([be_imported], State.IMPORTED, True),
    ],
)
def test_the_state_of_a_run_is_what_its_folder_shows(run, changes, state, is_scored):
    for each in changes:
        each(run)
    if (run.folder / "config.json").exists():
        run = Run(run.folder)
    assert (run.state, run.scores is not None) == (state, is_scored)
    assert (run.step > 0) == (run.folder / "checkpoints").exists()


def test_epochs_end_a_run_by_the_batches_that_it_has_recorded(run):
    batches = json.loads((run.folder / "run.json").read_text())["data"]["batches_per_epoch"]
    train = run.config.train.to_dict()
    for epochs, state in ((STEPS / batches, State.REPORTED), (1 + STEPS / batches, State.STARTED)):
        limits = {**train, "steps": 10 * STEPS, "epochs": epochs}
        change(run.folder / "config.json", train=limits)
        assert Run(run.folder).state == state
    (run.folder / "run.json").unlink()  # which alone tells the end
    assert Run(run.folder).state == State.REPORTED
