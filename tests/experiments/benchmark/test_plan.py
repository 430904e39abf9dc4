"""The mode `plan` says what a training takes, trains nothing and leaves no run."""

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tiny_captions
import tiny_classifier
import tiny_language_model
from experiments.benchmark import measure, plan
from experiments.benchmark.measure import BucketShape, Measured, mean_seconds
from experiments.process import environment
from runs import toy_config
from tiny_run import CONFIG, command, refused
from transformer.tasks.translation import TranslationTask

SHAPES = [BucketShape(8, 5, 3, None), BucketShape(8, 10, 1, None)]
MEASURED = Measured(100, "train.steps=100", 1000, [5000, 9000], 2.0, [[1.0, 3.0], [4.0]], 6.0)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The folder, the output and the JSON of a plan of a toy translator."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "config.py").write_text(CONFIG.replace("CACHE", str(folder / "cache")))
    ended = command(
        "--mode=plan",
        f"--config={folder / 'config.py'}",
        f"--workdir={folder / 'run'}",
        f"--output={folder / 'plan.json'}",
    )
    assert ended.code == 0, ended
    return folder, ended, json.loads((folder / "plan.json").read_text())


def test_parameters_and_operations_are_those_counted_by_hand(planned):
    _, ended, found = planned
    # Width 16, inner width 8: an attention has 4 * 16 * 16 weights, an inner layer 2 * 16 * 8 and
    # 8 + 16 biases, a norm 2 * 16 numbers.
    encoder = 1024 + 280 + 2 * 32
    decoder = 2 * 1024 + 280 + 3 * 32
    [size] = found["text"]["vocabulary"].values()
    assert sum(found["parameters"].values()) == 2 * found["parameters"]["all"]
    assert found["parameters"]["all"] == 16 * size + encoder + decoder
    weights = 1024 + 256 + 2 * 1024 + 256 + 16 * size
    assert found["flops"]["per_token"] == 6 * weights
    [shape] = found["shapes"]
    assert found["text"]["positions"] == shape["rows"] * shape["length"] * shape["batches"]
    assert found["flops"]["per_epoch"] == 6 * weights * found["text"]["positions"]
    assert found["flops"]["per_step"] == 6 * weights * shape["rows"] * shape["length"]
    assert f"{found['parameters']['all']:,}" in ended.out


def test_text_memory_and_time_are_those_of_the_run(planned):
    folder, ended, found = planned
    assert {path.name for path in folder.iterdir()} == {"cache", "config.py", "plan.json"}
    text, memory, time = found["text"], found["memory"], found["time"]
    assert text["splits"]["train"] == {"sentence pairs": 200}
    # Each sentence has its end, too.
    tokens = sum(text["tokens"].values()) + 2 * 200
    assert text["padding_fraction"] == pytest.approx(1 - tokens / (2 * text["positions"]))
    # Parameters, Adam's two moments, and a few counts.
    assert 0 <= memory["state"] - 12 * found["parameters"]["all"] < 100
    assert memory["step"] > memory["state"]
    # The libraries alone take more than this model; they are not on an accelerator.
    assert memory["process"] > 10**8
    assert memory["needed"] == memory["process"] > memory["step"] + memory["saving"]
    assert memory["fits"]
    assert found["advice"] is None
    assert (time["steps"], time["evaluations"], time["ending"]) == (40, 2, "train.steps=40")
    assert 0 < time["least"] < time["most"]
    assert len(found["shapes"][0]["seconds"]) == measure.STEPS
    assert "train.steps=40" in ended.out
    assert found["disk"]["checkpoints"] == 1 + 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workdir=nothing"], ("--config is missing", "configs/quickstart.py")),
        (
            ["--config=CONFIG", "--output=nowhere/plan.json"],
            ("/nowhere is not a folder: make it",),
        ),
        (["--config=CONFIG", "--config.data.source=files"], "is not a file"),
        (["--config=CONFIG", "--config.model.num_heads=3"], "num_heads=3"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(planned, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    config = str(planned[0] / "config.py")
    given = [argument.replace("CONFIG", config) for argument in arguments]
    refused("--mode=plan", *given, says=says)
    assert not list(tmp_path.iterdir())


def test_a_device_without_memory_for_it_ends_the_plan_in_a_line(planned, monkeypatch):
    def out_of_memory(*arguments):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")

    monkeypatch.setattr(plan, "measure", out_of_memory)
    says = ("the memory is too small", "--config.data.batch_tokens")
    refused("--mode=plan", f"--config={planned[0] / 'config.py'}", says=says)


@pytest.mark.parametrize(
    ("amx", "changes", "told"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"model.matmul_dtype": "float32"}, False),
        (True, {"model.architecture": "recurrent"}, False),
    ],
)
def test_the_key_for_a_cpu_with_amx_is_told_if_it_is_not_set(
    tmp_path, monkeypatch, capsys, amx, changes, told
):
    config = toy_config(tmp_path, **changes)
    monkeypatch.setattr(environment, "has_amx", lambda: amx)
    monkeypatch.setattr(plan, "measure", lambda *_: Measured(7, "", 1000, [1000] * 9, 1.0, [], 0.0))
    found = plan.estimate(TranslationTask(config), Path(tmp_path / "run"), 10**9)
    plan.print_plan(found)
    key = "config.model.matmul_dtype=bfloat16"
    assert found["faster"] == (key if told else None)
    assert (f"AMX, with which --{key} shortened" in capsys.readouterr().out) is told


@pytest.mark.full
def test_the_cores_that_other_processes_use_are_told(tmp_path, monkeypatch, capsys):
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        before = measure.other_processes()[busy.pid]
        deadline = time.monotonic() + 60
        while measure.other_processes()[busy.pid] < before + 0.1:
            assert time.monotonic() < deadline
        assert os.getpid() not in measure.other_processes()
        busy.kill()
    task = TranslationTask(toy_config(tmp_path))
    seconds = [[1.0]] * len(measure.shapes_of(task.plan))
    for cores, told in ((0.1, False), (1.44, True)):
        measured = Measured(7, "", 1000, [1000] * 9, 1.0, seconds, 0.0, cores)
        monkeypatch.setattr(plan, "measure", lambda *_, measured=measured: measured)
        plan.print_plan(plan.estimate(task, Path(tmp_path / "run"), 10**9))
        assert ("other processes used 1.4 cores" in capsys.readouterr().out) is told


@pytest.mark.parametrize(
    ("recipe", "step", "told"), [("size", 9e3, 1), ("size", 1, 0), ("none", 9e3, 0)]
)
def test_a_shorter_training_is_named_if_the_recipe_takes_hours(
    tmp_path, monkeypatch, capsys, recipe, step, told
):
    config = toy_config(tmp_path)
    task = TranslationTask(config)
    config.recipe = recipe
    seconds = [[step]] * len(measure.shapes_of(task.plan))
    measured = Measured(7, "", 1000, [1000] * 9, 1.0, seconds, 0.0)
    monkeypatch.setattr(plan, "measure", lambda *_: measured)
    plan.print_plan(plan.estimate(task, Path(tmp_path / "run"), 10**9))
    assert capsys.readouterr().out.count("--config=configs/own_text.py:hour trains") == told


def test_a_step_that_needs_too_much_memory_is_not_taken_and_what_to_change_is_said(
    tmp_path, monkeypatch, capsys
):
    config = toy_config(tmp_path, **{"data.max_tokens": 8, "data.batch_multiple": 1})
    task = TranslationTask(config)
    size = sum(shape.positions for shape in measure.shapes_of(task.plan))
    measured = Measured(7, "", 1000, [1000 + 100 * size], 1.0, [], 0.0)
    monkeypatch.setattr(plan, "measure", lambda *arguments: measured)
    # 0.8 * 5,000 bytes, less the state twice, are room for 20 tokens of 100 bytes.
    found = plan.estimate(task, Path(tmp_path / "run"), 5000)
    assert found["memory"]["largest_batch_tokens"] == 16
    assert found["time"] is None
    assert found["advice"].startswith("set --config.data.batch_tokens=16, ")
    assert found["advice"].endswith(f"gradient_accumulation_steps={math.ceil(size / 16)}")
    plan.print_plan(found)
    assert "the memory is too small: set --config.data.batch_tokens=16" in capsys.readouterr().out
    assert "d_model" in plan.estimate(task, Path(tmp_path / "run"), 2000)["advice"]
    # Batches have eight rows at least, so fewer tokens are no help.
    config.data.batch_multiple = 8
    assert "d_model" in plan.estimate(task, Path(tmp_path / "run"), 5000)["advice"]
    enough = 2 * 1000 + 100 * size
    assert measured.fits(round(enough / measure.MEMORY_FRACTION) + 1)
    assert not measured.fits(round(enough / measure.MEMORY_FRACTION) - 1)


TEXTS = {
    "text": "".join(f"{line}\n" for line in tiny_language_model.LINES * 20),
    "train.tsv": "\n".join(tiny_classifier.ROWS),
}


@pytest.mark.parametrize(
    ("page", "tokens"),
    [
        # 160 lines of three words and an end, less two tenths that are held out.
        (tiny_language_model.CONFIG, 128 * 4),
        # 120 texts, 24 and 12 of them held out, of a begin and at least five words.
        (tiny_classifier.CONFIG, 84 * 6),
        # 120 captions of about twenty subwords.
        (tiny_captions.CONFIG, 120 * 16),
    ],
)
def test_models_of_other_tasks_have_a_plan(tmp_path, monkeypatch, page, tokens):
    for name, content in TEXTS.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "config.py").write_text(page.replace("PATH", str(tmp_path)))
    measured = dataclasses.replace(MEASURED, step_bytes=[5000], step_seconds=[[1.0]])
    monkeypatch.setattr(plan, "measure", lambda *arguments: measured)
    flags = (f"--config={tmp_path / 'config.py'}", f"--output={tmp_path / 'plan.json'}")
    flags += ("--config.data.num_buckets=1", "--config.train.steps=100")
    ended = command("--mode=plan", *flags)
    assert ended.code == 0, ended
    found = json.loads((tmp_path / "plan.json").read_text())
    [read] = found["text"]["tokens"].values()
    assert tokens <= read <= 1.5 * tokens
    [shape] = found["shapes"]
    assert found["text"]["positions"] == shape["rows"] * shape["length"] * shape["batches"]
    assert "train.steps=100" in ended.out


def test_the_time_to_the_end_is_a_range_up_to_the_limit_of_minutes(tmp_path):
    assert mean_seconds(SHAPES, MEASURED.step_seconds) == (3 * 2.0 + 4.0) / 4
    settings = toy_config(tmp_path).train
    found = plan._run_time(MEASURED, settings, SHAPES, evaluations=3)
    assert found["least"] == 100 * 7 / 4 + 2.0
    assert found["most"] == 100 * 13 / 4 + 2.0 + 3 * 6.0
    settings.minutes = 1.0
    found = plan._run_time(MEASURED, settings, SHAPES, evaluations=3)
    assert (found["least"], found["most"]) == (60, 60)


def test_steps_are_measured_by_how_often_their_shape_occurs_and_never_none():
    taken = []
    measure._time_steps(lambda i: taken.append(i) or 0.5, [97, 1, 2])
    assert [taken.count(i) - 1 for i in range(3)] == [19, 1, 1]


def test_quantities_and_durations_are_readable():
    assert measure.quantity(0, "B") == "0 B"
    assert measure.quantity(999, "B") == "999 B"
    assert measure.quantity(999_950, "B") == "1 MB"
    assert measure.quantity(1500, "FLOP") == "1.5 kFLOP"
    assert measure.quantity(12.3e9, "B") == "12.3 GB"
    assert plan.duration(4.21) == "4.2 s"
    assert plan.duration(3723) == "1:02:03"
