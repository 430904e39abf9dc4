"""Several processes train one model as one process does, and end together whatever happens."""

import json
import re
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import portpicker
import pytest
from device_processes import environment, on_devices, on_processes
from test_meshes import losses, mesh_trainer
from test_resume import saved_steps

from experiments.process.environment import join
from places import ROOT
from runs import lines
from tiny_run import CONFIG
from transformer.errors import UserError

EIGHT = ("data", "fsdp", "tensor")
DEADLINE = 10  # seconds
STEPS = 120


def train_alone(folder):
    assert mesh_trainer(folder / "one", "one", **{"train.steps": 50}).run()
    for name, steps in (("whole", 6), ("from_one", 4)):
        assert mesh_trainer(folder / name, "one", **{"train.steps": steps}).run()


def train_in_two(group, folder):
    assert (jax.device_count(), group.count) == (8, 2)
    for name in EIGHT:
        assert mesh_trainer(folder / name, name, group, **{"train.steps": 50}).run()
    for name, steps in (("from_two", 4), ("from_one", 6)):
        assert mesh_trainer(folder / name, "fsdp", group, **{"train.steps": steps}).run()
    group.part()


def resume_alone(folder):
    assert mesh_trainer(folder / "from_two", "one", **{"train.steps": 6}).run()


@pytest.mark.full
def test_steps_and_scores_of_two_processes_are_those_of_one_device(tmp_path):
    on_devices(1, train_alone, tmp_path)
    on_processes(4, train_in_two, tmp_path)
    on_devices(1, resume_alone, tmp_path)
    [scores] = lines(tmp_path / "one", "validation")
    for name in EIGHT:
        expected = losses(tmp_path / "one")
        np.testing.assert_allclose(losses(tmp_path / name), expected, rtol=0, atol=1e-5)
        [others] = lines(tmp_path / name, "validation")
        assert others == pytest.approx(scores, abs=1e-5)
    for name in ("from_one", "from_two"):
        expected = losses(tmp_path / "whole")
        np.testing.assert_allclose(losses(tmp_path / name), expected, rtol=0, atol=1e-5)


class Two:
    """Two processes that train one run by the command."""

    def __init__(self, folder, others=(), **changes):
        folder.mkdir(exist_ok=True)
        self.run = folder / "run"
        config = folder / "tiny.py"
        config.write_text(CONFIG.replace("CACHE", str(folder / "cache")))
        flags = {"train.deadline": DEADLINE, "train.evaluate_every": 10, "train.steps": STEPS}
        flags |= changes
        address = f"localhost:{portpicker.pick_unused_port()},2"
        command = [sys.executable, "launch.py", f"--config={config}", f"--workdir={self.run}"]
        command += [f"--config.{key}={value}" for key, value in flags.items()]
        options = {"env": environment(1), "cwd": ROOT, "text": True}
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.both = [
            subprocess.Popen([*command, f"--processes={address},{i}", *more], **options)
            for i, more in enumerate(((), others))
        ]

    def await_step(self, step):
        """Waits until the checkpoint of a step is there."""
        while not (self.run / "checkpoints" / str(step)).exists():
            assert all(process.poll() is None for process in self.both), self.ends()
            time.sleep(0.05)

    def ends(self):
        """The exit codes and the errors of both."""
        said = [process.communicate(timeout=120)[0] for process in self.both]
        errors = [re.findall("^error: .*", text, re.MULTILINE) for text in said]
        assert not any("Traceback" in text for text in said), said
        return [process.returncode for process in self.both], errors

    def send(self, number, index):
        self.both[index].send_signal(number)


@pytest.mark.slow
def test_processes_that_are_stopped_or_lost_lose_nothing(tmp_path):
    whole = Two(tmp_path / "whole")
    assert whole.ends() == ([0, 0], [[], []])
    for index in (0, 1):  # a signal to one stops both
        two = Two(tmp_path / "broken")
        two.await_step(20 * index + 10)
        two.send(signal.SIGTERM, index)
        assert two.ends() == ([143, 143], [[], []])
    two = Two(tmp_path / "broken")
    two.await_step(60)
    two.send(signal.SIGKILL, 1)
    codes, [[error], _] = two.ends()
    assert codes == [75, -9]
    assert error.startswith("error: another process is lost (")
    assert error.endswith("): start the same command again on all hosts")
    two = Two(tmp_path / "broken")
    two.await_step(90)
    two.send(signal.SIGKILL, 0)
    assert two.ends()[0] == [-9, -signal.SIGABRT]  # which jax sends itself
    assert Two(tmp_path / "broken").ends() == ([0, 0], [[], []])
    assert_same(two.run, whole.run)


@pytest.mark.full
def test_a_process_that_is_stuck_ends_the_other_at_the_deadline(tmp_path):
    two = Two(tmp_path, **{"train.steps": 10_000})
    two.await_step(10)
    two.send(signal.SIGSTOP, 1)
    start = time.monotonic()
    two.both[0].wait(6 * DEADLINE)
    assert time.monotonic() - start > DEADLINE / 2
    two.send(signal.SIGKILL, 1)
    codes, [[error], _] = two.ends()
    assert codes == [75, -9]
    assert error.startswith("error: no step has ended for 10 seconds (config.train.deadline)")


@pytest.mark.full
def test_unlike_processes_are_refused_by_both(tmp_path):
    codes, errors = Two(tmp_path, ["--config.train.steps=7"]).ends()
    error = "error: process 1 has config.train.steps 7, and process 0 120: give all the same code"
    assert codes == [2, 2]
    assert [line[: len(error)] for [line] in errors] == [error, error]


@pytest.mark.full
def test_a_process_without_others_ends_at_the_deadline(tmp_path):
    two = Two(tmp_path, **{"train.deadline": 2})
    two.send(signal.SIGKILL, 1)
    codes, [[error], _] = two.ends()
    assert codes == [2, -9]
    assert error.endswith("start all, each with its own index")


def test_a_wrong_place_among_processes_is_refused():
    for text in ("2", "host,2,0", "host:1,2,2", "host:1,0,0", "host:1,2"):
        with pytest.raises(UserError, match=f"^--processes={text} is neither auto nor HOST:PORT"):
            join(text, 1.0)
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match="in use: name another port"):
            join(f"localhost:{port},2,0", 1.0)
    with pytest.raises(UserError, match=r"auto finds no other processes .*: name HOST:PORT"):
        join("auto", 1.0)


def assert_same(folder, other):
    """Both runs took the same steps, and have the same scores and results."""
    assert saved_steps(folder) == saved_steps(other)
    assert lines(folder) == lines(other)
    tests = [json.loads((each / "results.json").read_text())["test"] for each in (folder, other)]
    assert all(test.pop("seconds") for test in tests)
    assert tests[0] == tests[1]
