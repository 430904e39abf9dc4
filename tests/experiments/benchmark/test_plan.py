"""The mode `plan` says what a training takes, trains nothing and leaves no run."""

import dataclasses
import re

import pytest
from ml_collections import ConfigDict

import tiny_captions
import tiny_classifier
import tiny_language_model
from experiments.benchmark import plan
from experiments.benchmark.plan import Measured, time_rows
from experiments.benchmark.workloads import BucketShape
from runs import toy_config
from tiny_run import CONFIG, command
from transformer.tasks.translation import TranslationTask

SHAPES = [BucketShape(8, 5, 3, None), BucketShape(8, 10, 1, None)]
MEASURED = Measured(100, "train.steps=100", 3, 1000, [5000], 2.0, [[1.0, 3.0], [4.0]], 6.0)


def cells(out):
    """The second column of the printed table, keyed by the first."""
    rows = re.findall("│ (.*?) *│ (.*?) *│", out)
    return dict(rows)


def number(text):
    return int(text.replace(",", ""))


def test_a_plan_counts_parameters_operations_and_steps_and_leaves_the_cache_alone(tmp_path):
    (tmp_path / "config.py").write_text(CONFIG.replace("CACHE", str(tmp_path / "cache")))
    flags = f"--config={tmp_path / 'config.py'}", f"--workdir={tmp_path / 'run'}"
    ended = command("--mode=plan", *flags)
    assert ended.code == 0, ended
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "config.py"}
    table = cells(ended.out)
    # Width 16, inner width 8: an attention has 4 * 16 * 16 weights, an inner layer 2 * 16 * 8 and
    # 8 + 16 biases, a norm 2 * 16 numbers.
    encoder = 1024 + 280 + 2 * 32
    decoder = 2 * 1024 + 280 + 3 * 32
    size = number(next(text for name, text in table.items() if name.startswith("vocabulary")))
    parameters = {name: number(text) for name, text in table.items() if "parameters, " in name}
    whole = parameters.pop("parameters, all")
    assert whole == sum(parameters.values()) == 16 * size + encoder + decoder
    weights = 1024 + 256 + 2 * 1024 + 256 + 16 * size
    [(count, rows, length, of_shape)] = re.findall(
        r"(\d+): (\d+)x(\d+) \((\d+)\)", table["batches per epoch"]
    )
    assert count == of_shape
    operations = 6 * weights * int(rows) * int(length)
    assert table["operations per step"] == plan.quantity(operations, "FLOP")
    assert table["train"] == "200 sentence pairs"
    # Each sentence has its end, too.
    tokens = sum(number(text) for name, text in table.items() if "tokens, " in name) + 2 * 200
    padding = 1 - tokens / (2 * int(count) * int(rows) * int(length))
    assert table["padding"] == f"{padding:.1%}"
    # Parameters, Adam's two moments, and a few counts.
    assert table["memory: parameters and optimizer"] == plan.quantity(12 * whole + 8, "B")
    assert table["disk: run"].partition(", ")[2].startswith("up to 3 checkpoints of ")
    assert "; evaluations: 2" in table["time: an evaluation, at most"]
    assert "40 steps, " in table["time: to the end"]
    assert "(train.steps=40)" in table["time: to the end"]
    assert "too" not in ended.out


def test_a_step_that_needs_too_much_memory_is_not_taken_and_what_to_change_is_said(
    tmp_path, capsys
):
    task = TranslationTask(toy_config(tmp_path))
    measured = Measured(7, "", 1, 1000, [2000], 1.0)
    plan.print_plan(task, plan.shapes_of(task.plan), measured, tmp_path / "run", 3000)
    said = capsys.readouterr().out
    assert "the memory is too small: lower --config.data.batch_tokens" in said
    assert cells(said)["time"] == "not measured, since the memory is too small"
    assert measured.fits(round(3000 / plan.MEMORY_FRACTION) + 1)
    assert not measured.fits(round(3000 / plan.MEMORY_FRACTION) - 1)


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
    ended = command(
        "--mode=plan", f"--config={tmp_path / 'config.py'}", "--config.data.num_buckets=1"
    )
    assert ended.code == 0, ended
    [read] = [text for name, text in cells(ended.out).items() if "tokens, " in name]
    assert tokens <= number(read) <= 1.5 * tokens


def test_the_time_to_the_end_is_a_range_up_to_the_limit_of_minutes():
    settings = ConfigDict({"minutes": 0.0, "patience": 5})
    table = dict(time_rows(settings, MEASURED, SHAPES, 1e9))
    assert table["time: a step"].startswith(f"{(3 * 2.0 + 4.0) / 4:.3g} s, ")
    # 100 steps of (3 * 1 + 4) / 4 to (3 * 3 + 4) / 4 seconds, 2 to compile, 3 evaluations of 6.
    assert table["time: to the end"].startswith("0:02:57 to 0:05:45: 100 steps, 25.0 epochs")
    assert table[""].startswith("or earlier: after 5 evaluations")
    settings.minutes = 2.0
    table = dict(time_rows(settings, MEASURED, SHAPES, 1e9))
    assert table["time: to the end"].startswith("0:02:00 to 0:02:00: ")
    assert table["time: to the end"].endswith(", or train.minutes=2")


def test_steps_are_measured_by_how_often_their_shape_occurs_and_never_none():
    taken = []
    plan._time_steps(lambda i: taken.append(i) or 0.5, [97, 1, 2])
    assert [taken.count(i) - 1 for i in range(3)] == [19, 1, 1]
