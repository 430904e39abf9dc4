"""The mode `plan` says what a training takes, trains nothing and leaves no run."""

import dataclasses
import json
from pathlib import Path

import pytest

import tiny_captions
import tiny_classifier
import tiny_language_model
from experiments.benchmark import plan
from experiments.benchmark.plan import Measured, mean_seconds
from experiments.benchmark.workloads import BucketShape
from runs import toy_config
from tiny_run import CONFIG, command
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


@pytest.mark.full
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
    assert memory["needed"] == memory["step"] + memory["state"]
    assert memory["fits"]
    assert found["advice"] is None
    assert (time["steps"], time["evaluations"], time["ending"]) == (40, 2, "train.steps=40")
    assert 0 < time["least"] < time["most"]
    assert "train.steps=40" in ended.out
    assert found["disk"]["checkpoints"] == 1 + 2


def test_a_step_that_needs_too_much_memory_is_not_taken_and_what_to_change_is_said(
    tmp_path, monkeypatch, capsys
):
    task = TranslationTask(toy_config(tmp_path))
    measured = Measured(7, "", 1000, [2000], 1.0, [], 0.0)
    monkeypatch.setattr(plan, "measure", lambda *arguments: measured)
    found = plan.estimate(task, Path(tmp_path / "run"), 3000)
    assert found["time"] is None
    plan.print_plan(found)
    said = "the memory is too small: lower --config.data.batch_tokens"
    assert said in capsys.readouterr().out
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
    plan._time_steps(lambda i: taken.append(i) or 0.5, [97, 1, 2])
    assert [taken.count(i) - 1 for i in range(3)] == [19, 1, 1]
