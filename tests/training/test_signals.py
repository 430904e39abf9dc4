"""A signal is answered within a second and obeyed within a few, in processes of their own."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from places import ROOT

pytestmark = pytest.mark.full

# A program that XLA runs for a minute, in which Python does nothing.
BUSY = """
import jax, jax.numpy as jnp
from transformer import signals

@jax.jit
def minute(x):
    return jax.lax.fori_loop(0, 10**9, lambda i, x: jnp.sin(x) * 1.0001, x)

def wait():
    print("busy", flush=True)
    minute(jnp.ones(64)).block_until_ready()
"""


class Process:
    """A process whose lines are read as they come, each with its time."""

    def __init__(self, *command):
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[tuple[float, str]] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def wait_until(self, reached, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while not reached(self):
            assert self.process.poll() is None, self.text
            assert time.monotonic() < end, self.text
            time.sleep(0.01)

    def signal(self, number: int) -> tuple[float, float, int]:
        """Sends a signal; returns the seconds to the answer and to the end, and the exit code."""
        start = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(120)
        end = time.monotonic()
        self.reader.join()
        name = signal.Signals(number).name
        answers = [at for at, line in self.lines if line.startswith(f"{name}: ")]
        assert answers, self.text
        return answers[0] - start, end - start, code


def test_a_second_signal_ends_the_process_at_once_and_one_passed_on_does_not():
    program = BUSY + (
        "from experiments.process.process import logging_to\n"
        "with logging_to('stdout'), signals.StopSignals() as stop:\n    wait()\n"
    )
    process = Process("-c", program)
    process.wait_until(lambda p: "busy" in p.text)
    for _ in range(2):  # as a wrapper that passes on what the terminal sends to both
        process.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert process.process.poll() is None
    time.sleep(1)
    start = time.monotonic()
    process.process.send_signal(signal.SIGINT)
    assert process.process.wait(20) == 130
    assert time.monotonic() - start < 1
    process.reader.join()
    assert process.text.count("SIGINT: saving, then stopping; repeat it to stop at once") == 1


# -- the real command

# Layers enough for half a minute of compilation, and for steps and outputs that take seconds.
FLAGS = {
    "model.num_encoder_layers": 6,
    "model.num_decoder_layers": 6,
    "train.log_every": 1,
    "train.steps": 500,
    "evaluate.max_sentences": 500,
    "evaluate.training_beam_size": 4,
    "decode.max_extra": 50,
}


def launch(folder: Path, cache: Path, **changes) -> Process:
    flags = {**FLAGS, **changes, "data.cache_dir": cache}
    return Process(
        "launch.py",
        "--config=configs/quickstart.py",
        f"--workdir={folder}",
        *(f"--config.{key}={value}" for key, value in flags.items()),
    )


def evaluating(process) -> bool:
    return any(process.folder.glob("checkpoints/*/record.json"))


PHASES = {
    "data": (lambda p: True, {"data.train_size": 60_000}, 2.5),
    "evaluation": (evaluating, {"train.evaluate_every": 2}, 3.0),
    "scoring": (
        lambda p: "training ended" in p.text,
        {"train.steps": 2, "evaluate.max_sentences": 1},
        3.0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_to_the_command_is_answered_and_obeyed_in_every_phase(phase, number, tmp_path):
    reached, changes, delay = PHASES[phase]
    process = launch(tmp_path / "run", tmp_path / "cache", **changes)
    process.folder = tmp_path / "run"
    process.wait_until(reached)
    time.sleep(delay)
    answered, ended, code = process.signal(number)
    assert code == 128 + number, process.text
    assert answered < 1
    assert ended < 5
    assert "Traceback" not in process.text
