"""The parts of the accelerator study that start tests and a training keep what these have done."""

import json
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from configs import multi30k as multi30k_config
from experiments.config import override
from experiments.studies.accelerator import (
    multi30k,
    numeric_tests,
    page,
    steps,
    study,
    synthetic,
    worker,
)
from processes import end_with_worker
from transformer.config import check
from transformer.errors import UserError

RESULTS = {"step": 26, "wall_seconds": 55.0, "tokens_per_second": 9.0, "parameters": 7}


def test_failures_are_read_from_the_report_of_pytest():
    report = """<testsuites><testsuite>
        <testcase classname="tests.m" name="good"/>
        <testcase classname="tests.m" name="bad"><failure message="1 &gt; 2&#10;more"/></testcase>
        <testcase classname="tests.m" name="left"><skipped message="later"/></testcase>
        <testcase classname="tests.n" name="good"/>
        </testsuite></testsuites>"""
    failures = [{"test": "tests.m::bad", "message": "1 > 2 more"}]
    expected = {"passed": 1, "failed": 1, "skipped": 1, "failures": failures}
    other = {"passed": 1, "failed": 0, "skipped": 0, "failures": []}
    assert numeric_tests.count(report) == [
        {"file": "tests.m", **expected},
        {"file": "tests.n", **other},
    ]


def rows_of(order, tmp_path, monkeypatch, content):
    """The rows of the part, of a file of tests with this content, and how it ended."""
    (tmp_path / "test_own.py").write_text(content)
    monkeypatch.setattr(numeric_tests, "ROOT", tmp_path)
    monkeypatch.setattr(numeric_tests, "TOY_FILES", ("test_own.py",))
    outcomes = list(worker.outcomes(numeric_tests.measure, order._replace(toy=True)))
    return outcomes[-1]["result"], outcomes[-1].get("error", "")


def test_a_failed_test_is_named_and_the_part_is_not_done(order, tmp_path, monkeypatch):
    content = "def test_a(): pass\ndef test_b(): assert 1 == 2\n"
    [row], error = rows_of(order, tmp_path, monkeypatch, content)
    assert (row["passed"], row["failed"]) == (1, 1)
    assert row["failures"][0]["test"] == "test_own::test_b"
    assert error == "1 tests failed, see tests.log"


def test_a_warning_is_no_failure_of_a_test_of_numbers(order, tmp_path, monkeypatch):
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    content = "import warnings\ndef test_a(): warnings.warn('old', DeprecationWarning)\n"
    [row], error = rows_of(order, tmp_path, monkeypatch, content)
    assert (row["passed"], row["failed"], error) == (1, 0, "")


def test_tests_that_take_too_long_keep_what_was_tested(order, tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    content = f"""
import pathlib, time
def test_a(): pass
def test_b():
    pathlib.Path({str(begun)!r}).touch()
    time.sleep(60)
"""

    class Pytest(subprocess.Popen):
        """Its time is over when the second test has begun."""

        def wait(self, timeout=None):
            if timeout is None:
                return super().wait()
            while not begun.exists():
                time.sleep(0.02)
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Pytest)
    start = time.monotonic()
    [row], error = rows_of(order._replace(seconds=30.0), tmp_path, monkeypatch, content)
    assert row["passed"] == 1
    assert error == "the tests were ended after 30 s"
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("scored", [True, False])
def test_a_training_that_is_not_scored_in_time_keeps_its_course(order, monkeypatch, scored):
    def launch(command, cwd, timeout):
        assert timeout == order.seconds
        [run] = [Path(flag.partition("=")[2]) for flag in command if flag.startswith("--workdir")]
        event = {"step": 10, "split": "validation", "bleu": 30.0, "seconds": 2.0}
        (run / "metrics.jsonl").write_text(json.dumps(event) + "\n")
        if not scored:
            raise subprocess.TimeoutExpired(command, timeout)
        results = {**RESULTS, "test": {"bleu": 29.0}}
        (run / "results.json").write_text(json.dumps(results))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(multi30k.subprocess, "run", launch)
    outcomes = list(worker.outcomes(multi30k.measure, order._replace(data=Path("text"))))
    [found] = outcomes[-1]["result"]
    assert found["best"]["bleu"] == 30.0
    assert found.get("test") == ({"bleu": 29.0} if scored else None)
    assert ("error" in outcomes[-1]) is not scored
    text = "\n".join(page.SECTIONS["multi30k"]([found], {}))
    assert ("| bleu | 29 |" in text) is scored


@pytest.mark.parametrize("toy", [True, False])
def test_what_the_training_changes_is_taken_by_its_config(order, toy):
    config = multi30k_config.get_config()
    for setting in multi30k.settings(order._replace(toy=toy, data=Path("text")), 90.0):
        key, _, text = setting.partition("=")
        override(config, key, text)
    check(config)
    assert config.train.minutes == 1.5
    # Of the 8,000 steps of the whole training, fewer than 20 are followed by an evaluation.
    assert toy or 0 < 8000 / config.train.evaluate_every < 20


def test_the_tests_to_run_are_there():
    for name in (*numeric_tests.FILES, *numeric_tests.TOY_FILES):
        file, _, test = name.partition("::")
        path = numeric_tests.ROOT / file
        assert path.is_file(), name
        assert f"def {test}" in path.read_text(encoding="utf-8")


def test_the_course_of_a_training_is_that_of_its_evaluations():
    events = [
        {"step": 5, "split": "train", "nll": 3.0, "seconds": 1.0},
        {"step": 10, "split": "validation", "bleu": 30.0, "seconds": 2.0},
        {"step": 10, "split": "heads", "entropy": 1.0},
        {"step": 20, "split": "validation", "bleu": 29.0, "seconds": 4.0},
    ]
    found = multi30k.read_course(events)
    assert [own["step"] for own in found["course"]] == [10, 20]
    assert found["best"] == {"step": 10, "seconds": 2.0, "bleu": 30.0}
    assert multi30k.read_course([])["best"] is None


def test_a_text_that_is_given_must_be_there(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"has no train\.en: name a folder"):
        multi30k.find_data(tmp_path)
    (tmp_path / "train.en.gz").write_bytes(b"")
    assert multi30k.find_data(tmp_path) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert multi30k.find_data(Path("~")) == tmp_path


def test_the_parameters_of_a_model_are_those_of_all_its_settings():
    config = synthetic.paper_config("base", "float32", toy=True)
    task = synthetic.SyntheticTask(config, [5])
    own = task.init_params(jax.random.key(config.seed))
    given = steps.initial_params("base", toy=True)
    jax.tree.map(np.testing.assert_array_equal, given, own)
    assert not any(isinstance(x, jax.Array) for x in jax.tree.leaves(given))


def test_a_signal_that_ends_the_study_ends_its_part(tmp_path):
    flags = [f"--out={tmp_path}", "--toy"]
    end_with_worker(["experiments.studies.accelerator", *flags], study.WORKER)
