"""The page about a device: parts are resumed, fail alone in a line, and end with their time."""

import contextlib
import json
import time
from pathlib import Path

import psutil
import pytest
from systems import ENVIRONMENT

from configs import multi30k
from experiments.benchmark import accelerator
from experiments.benchmark.summary import spread
from experiments.config import override
from places import ROOT
from processes import end_with_worker
from transformer.config import check

FOUND = ENVIRONMENT | {"devices": {"kind": "Toy 9", "count": 2}, "python": "3.0", "backend": "toy"}
STEP = {
    **{name: spread([8.0]) for name in ("step_seconds", "tokens_per_second", "ratio")},
    **{"fraction": spread([0.25]), "peak_bytes": spread([7e9]), "compile_seconds": spread([5.0])},
}
TRAINING = {
    **{"workload": "w", "shapes": [[7, 5, 1]], "flops_per_step": 1e11, "parameters": 1234},
    **{"target_padding_fraction": 0.0, "program_bytes": 10**9, "device_bytes": 7, "errors": {}},
    "numbers": {"matmul": {"flops_per_second": spread([3e12])}, "step": STEP},
}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A function that starts the command, and returns its exit code and the parts it measures."""
    (tmp_path / "train.en").touch()
    found = dict(FOUND)
    monkeypatch.setattr(accelerator, "describe", lambda: found)

    def start(*flags, errors=(), device="Toy 9"):
        names = []

        def run_command(arguments, log, seconds):
            names.append(log.stem)
            leave(log)
            return dict(errors).get(log.stem, "")

        found["devices"] = {"kind": device, "count": 2}
        monkeypatch.setattr(accelerator, "run_command", run_command)
        flags = [f"--out={tmp_path / 'out'}", f"--data={tmp_path}", *flags]
        return accelerator.main(flags), names

    return start


def leave(log):
    """Leaves what the command of a part would."""
    folder, run = log.parent, log.parent / "multi30k"
    run.mkdir(exist_ok=True)
    parts = dict.fromkeys(accelerator.BENCHMARKS, TRAINING)
    (folder / "benchmark.json").write_text(json.dumps({"parts": parts}))
    log.write_text("...\n212 passed, 3 skipped in 70.1s\n")
    results = {"step": 26, "wall_seconds": 55.0, "test": {"bleu": 24.5, "signature": "s"}}
    (run / "results.json").write_text(json.dumps(results))
    events = [{"step": 5, "nll": 3.0}, {"step": 10, "bleu": 30.0, "seconds": 2.0}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def test_parts_that_are_done_are_skipped_and_failed_ones_are_measured_again(measured, tmp_path):
    names = list(accelerator.ACCELERATOR_PARTS)
    assert measured(errors={"big": "no room", "tests": "1 failed"}) == (1, names)
    text = (tmp_path / "out" / "accelerator.md").read_text()
    assert "- big: no room\n" in text
    assert "- tests: 1 failed\n" in text
    assert "212 passed" not in text
    assert measured("--parts=base,big") == (0, ["big"])
    assert measured() == (0, ["tests"])
    assert measured() == (0, [])
    assert measured(device="Toy 8") == (0, names)


def test_the_page_has_the_numbers_and_the_command_of_each_part(measured, tmp_path):
    measured()
    text = (tmp_path / "out" / "accelerator.md").read_text()
    assert text.startswith("# On 2 x Toy 9\n\n2 x Toy 9, 2 cores of an abacus, jax 0.0.1, Python")
    assert "code of commit 0123456." in text
    assert "| big | compiled step | 8,000 (8,000 to 8,000) | 8 | 25% |" in text
    assert "| base | large matrix products | 3 TFLOP/s" in text
    assert "212 passed, 3 skipped in 70.1s." in text
    assert "| bleu | 24.5 |" in text
    assert "| 10 | 2 | 30.00 |" in text
    for part in accelerator.BENCHMARKS:
        assert f"--peers= --data={tmp_path} --parts={part}\n" in text
        assert f"- {part}: took 0 s\n" in text
    assert "python launch.py --config=configs/multi30k.py --workdir=DIR/multi30k " in text
    assert "not measured" not in text


def test_without_its_text_the_training_is_left_out_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "describe", lambda: FOUND)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert accelerator.main(["--out=~/out", "--parts=multi30k"]) == 0
    text = (tmp_path / "out" / "accelerator.md").read_text()
    assert "- multi30k: no text: name it with --data, or fetch it: python launch.py" in text


@pytest.mark.full
def test_a_part_that_fails_or_takes_too_long_is_ended_with_what_it_started(tmp_path):
    log = tmp_path / "part.log"
    failed = accelerator.run_command(["-c", "print('a'); raise SystemExit('why')"], log, 60.0)
    assert failed == "why (exit code 1, see part.log)"
    assert accelerator.run_command(["-c", "print('a')"], log, 60.0) == ""
    assert log.read_text() == "a\n"
    code = "import os; os.execvp('sh', ['sh', '-c', 'sleep 60 & echo $!; wait'])"
    ended = accelerator.run_command(["-c", code], log, 1.5)
    assert ended == "not done after 0 minutes, see part.log"
    end = time.monotonic() + 20  # the system ends it when it finds the time
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(int(log.read_text())).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_commands_name_what_there_is(tmp_path):
    command = accelerator.commands(tmp_path, Path("text"), "gpu", 5)
    assert list(command) == list(accelerator.ACCELERATOR_PARTS)
    files = [argument for argument in command["tests"] if argument.startswith("tests/")]
    assert len(files) == 14
    assert [name for name in files if not (ROOT / name).is_file()] == []
    config = multi30k.get_config()
    for flag in command["multi30k"][3:]:
        key, _, text = flag.removeprefix("--config.").partition("=")
        override(config, key, text)
    check(config)
    assert config.train.minutes == 3.75
    # Of the 8,000 steps of the whole training, fewer than 20 are followed by an evaluation.
    assert 0 < 8000 / config.train.evaluate_every < 20
    # A device of a single process has no other process on it.
    assert "-n0" in accelerator.commands(tmp_path, None, "tpu", 5)["tests"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--parts=step"], "--parts has 'step': choose from base,big"),
        (["--data=nowhere"], "--data=nowhere has no train.en"),
        (["--minutes=0"], "'0' is not a whole number between 1 and 600"),
        (["--toy"], "unrecognized arguments: --toy"),
        ([], "JAX finds no accelerator but a CPU: install JAX for it"),
    ],
)
def test_a_wrong_flag_or_device_ends_in_one_line(tmp_path, monkeypatch, capsys, flags, says):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    describe = f"import json; print(json.dumps({dict(FOUND, backend='cpu')}))"
    monkeypatch.setattr(accelerator, "DESCRIBE", describe)
    assert accelerator.main([f"--out={tmp_path / 'out'}", *flags]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert says in line
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert accelerator.describe()["backend"] == "cpu"


@pytest.mark.full
def test_a_signal_ends_the_command_and_what_its_part_has_started(tmp_path):
    flags = [f"--out={tmp_path}", "--parts=base"]
    end_with_worker(["experiments.benchmark.accelerator", *flags], "experiments.benchmark")
