"""The accelerator study: parts are resumed, fail alone, fit into the time, and fill a page."""

import contextlib
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from experiments.studies.accelerator import (
    __main__,
    page,
    parts,
    steps,
    study,
    synthetic,
    twice,
    worker,
)
from experiments.studies.command import exit_code
from log_lines import heard
from transformer import losses
from transformer.errors import RunError

CONDITIONS = {
    "device": {"kind": "Toy 9", "count": 2},
    "jax": "0.0.1",
    "code": {"commit": "0123456789", "changed": False},
    "files": "abc",
    "toy": False,
    "platform": "toy",
    "python": "3.0",
    "processor": "an abacus",
}
ROW = {
    **{"model": "base", "dtype": "bfloat16", "length": 16, "rows": 64, "devices": 2},
    **{"parameters": 7, "compile_seconds": 2.5, "step_ms": 8.0, "tokens_per_second": 128_000.0},
    **{"flops_per_token": 10, "flops_per_second": 3e12, "program_bytes": 5 * 10**9},
    "device_bytes": None,
}
RESULTS = {
    "peak": [
        {"kind": kind, "size": size, "flops_per_second": speed}
        for kind, size, speed in (
            *(("bfloat16", 4096, 5e12), ("float32", 4096, 3e12)),
            *(("bfloat16", 8192, 6e12), ("float32", 8192, 2e12)),
        )
    ],
    "step": [ROW, {"model": "big", "dtype": "float32", "length": 64, "error": "no | room"}],
    "multi30k": [
        {
            "limit_seconds": 150.0,
            "course": [{"step": i, "seconds": 2.0 * i, "bleu": float(i)} for i in range(1, 26)],
            "best": {"step": 25, "seconds": 50.0, "bleu": 25.0},
            "test": {"bleu": 24.5, "sentences": 1000},
            **{"step": 26, "wall_seconds": 55.0, "tokens_per_second": 9.0, "parameters": 7},
        }
    ],
    "tests": [
        {"file": "tests.c", "passed": 38, "failed": 0, "skipped": 2, "failures": []},
        {
            **{"file": "tests.a", "passed": 2, "failed": 1, "skipped": 0},
            "failures": [{"test": "tests.a::test_b", "message": "`x` is not y"}],
        },
    ],
    "together": [
        {"runs": 4, "steps": 20, "vmap_seconds": 2.0, "sequential_seconds": 5.0, "speedup": 2.5}
    ],
    "decoding": [
        {
            **{"dtype": "float32", "beam": 4, "sentences": 64, "length": 32},
            **{"compile_seconds": 3.0, "sentences_per_second": 640.0},
            **{"tokens_per_second": 20_480.0, "tokens_per_sentence": 32.0},
        }
    ],
    "twice": {"steps": 20, "arrays": 9, "different": 0, "name": "", "difference": 0.0},
    "chunks": [{**ROW, "logits": 2**20}],
}


def measured(order, monkeypatch, outcomes=None, conditions=CONDITIONS, seconds=3600.0):
    """The parts that a start measures, with these outcomes, and what it says."""
    names = []

    def measure(part, own, limit):
        names.append(part.name)
        return {"seconds": 1.0, **(outcomes or {}).get(part.name, {"result": RESULTS[part.name]})}

    monkeypatch.setattr(study, "measure", measure)
    with heard() as lines:
        deadline = time.monotonic() + seconds
        study.measure_all(parts.PARTS, order, conditions, deadline)
    return names, lines


def test_every_part_has_a_measure_and_a_section_of_the_page():
    names = set(parts.NAMES)
    assert set(worker.MEASURES) - {worker.DEVICE} == names == set(page.SECTIONS) == set(RESULTS)
    assert study.DEVICE.name == worker.DEVICE


def test_parts_that_are_there_are_skipped_and_failed_ones_are_measured_again(order, monkeypatch):
    order = order._replace(data=Path("text"))
    failed = {"step": {"error": "no room", "result": RESULTS["step"]}, "twice": {"error": "gone"}}
    names, lines = measured(order, monkeypatch, failed)
    assert names == list(parts.NAMES)
    assert "step: no room (1 s)" in lines
    record = json.loads((order.folder / "step.json").read_text())
    assert record["device"] == CONDITIONS["device"]
    assert record["error"] == "no room"
    names, lines = measured(order, monkeypatch)
    assert names == ["step", "twice"]
    assert "peak: there since an earlier start" in lines
    assert measured(order, monkeypatch)[0] == []


def test_a_part_that_fails_sooner_than_before_leaves_what_was_measured(order, monkeypatch):
    rows = RESULTS["step"]
    measured(order, monkeypatch, {"step": {"error": "no room", "result": rows}})
    measured(order, monkeypatch, {"step": {"error": "killed", "result": rows[:1]}})
    record = json.loads((order.folder / "step.json").read_text())
    assert (record["error"], record["result"]) == ("no room", rows)
    measured(order, monkeypatch, {"step": {"error": "late", "result": rows + rows}})
    assert json.loads((order.folder / "step.json").read_text())["error"] == "late"


def test_the_digest_is_of_what_is_written_whether_or_not_it_is_committed(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "ROOT", tmp_path)
    (tmp_path / "configs").mkdir()
    digests = [study.source_digest()]
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", "2")):
        (tmp_path / "configs" / name).write_text(text)
        digests.append(study.source_digest())
    assert len(set(digests)) == 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device", {"kind": "Toy 8", "count": 2}),
        ("jax", "0.0.2"),
        ("files", "abd"),
        ("toy", True),
    ],
)
def test_other_conditions_measure_all_again(order, monkeypatch, key, value):
    measured(order, monkeypatch)
    names, _ = measured(order, monkeypatch, conditions={**CONDITIONS, key: value})
    assert names == [name for name in parts.NAMES if name != "multi30k"]


def test_a_damaged_record_is_measured_again(order, monkeypatch):
    measured(order, monkeypatch)
    (order.folder / "twice.json").write_text('{"part": "tw')
    (order.folder / "peak.json").write_text("[1]")
    assert measured(order, monkeypatch)[0] == ["peak", "twice"]


def test_parts_that_do_not_fit_into_the_time_are_skipped_with_a_line(order, monkeypatch):
    names, lines = measured(order, monkeypatch, seconds=59.5)
    assert names == ["peak", "twice"][: 1 + (40 + study.SPARE <= 59.5)]
    assert any(line.startswith("step: skipped, since it takes 150 s and 5") for line in lines)
    assert "multi30k: skipped, since there is no text: name it with --data" in lines
    # A tiny part takes no time worth mentioning.
    names, _ = measured(order._replace(toy=True), monkeypatch, seconds=30.0)
    assert names[0] == "step"


def test_a_part_may_use_the_time_that_later_ones_do_not_need(order, monkeypatch):
    found = {}

    def measure(part, own, limit):
        found[part.name] = own.seconds, limit
        return {"seconds": 0.0, "result": []}

    monkeypatch.setattr(study, "measure", measure)
    chosen = [part for part in parts.PARTS if part.name in ("step", "twice")]
    study.measure_all(chosen, order, CONDITIONS, time.monotonic() + 300)
    assert found["step"] == pytest.approx((260, 300), abs=1)
    assert found["twice"] == pytest.approx((285, 300), abs=1)


def test_a_process_that_takes_too_long_is_ended_with_what_it_started(tmp_path):
    log = tmp_path / "log"
    ending = study._run(["sh", "-c", "sleep 60 & echo $!; wait"], log, 1.0)
    assert ending == "it was ended after 1 s"
    end = time.monotonic() + 20  # the system ends it when it finds the time
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(int(log.read_text())).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < end
            time.sleep(0.02)
    code = "print('why'); raise SystemExit(3)"
    line = study._run([sys.executable, "-c", code], log, 20.0)
    assert line == "its process ended with exit code 3"
    assert log.read_text() == "why\n"


def test_rows_before_a_failure_are_kept(order):
    def measure(order):
        yield {"runs": 1}
        yield {"runs": 4}
        raise RunError("no room\nfor 16")

    found = [json.loads(json.dumps(each)) for each in worker.outcomes(measure, order)]
    rows = [{"runs": 1}, {"runs": 4}]
    assert found[:2] == [{"result": rows[:1]}, {"result": rows}]
    assert found[2] == {"result": rows, "error": "no room for 16"}
    assert list(worker.outcomes(lambda order: 7, order)) == [{"result": 7}]
    [failed] = worker.outcomes(lambda order: 1 / 0, order)
    assert failed == {"error": "ZeroDivisionError: division by zero"}


def test_an_order_survives_json(order):
    for own in (order, order._replace(data=order.folder / "text", toy=True)):
        assert worker.parse_order(json.dumps(own._asdict(), default=str)) == own


def test_settings_end_with_the_time_but_the_first_one_is_measured():
    assert list(parts.within(60.0, "abc")) == ["a", "b", "c"]
    settings = parts.within(-1.0, "abc")
    assert next(settings) == "a"
    with pytest.raises(RunError, match="1 of 3 settings were measured"):
        next(settings)


def test_both_models_and_dtypes_come_before_other_lengths():
    first = steps.settings(toy=False)
    assert len(set(first)) == 12
    assert {own.length for own in first[:4]} == {32}
    assert len({(own.model, own.dtype) for own in first[:4]}) == 4
    assert {own.dtype for own in first[4:8]} == {"bfloat16"}


def test_batches_of_the_paper_are_full_and_of_25000_tokens():
    config = synthetic.paper_config("big", "bfloat16", toy=False)
    assert (config.model.d_model, config.model.dtype) == (1024, "bfloat16")
    batch = synthetic.FullBatches(config, [16, 32])[1]
    assert batch.labels.shape == (768, 32)
    assert (batch.source > 0).all()
    assert (batch.labels > 0).all()
    assert batch.labels.max() < config.tokenizer.vocab_size
    assert (batch.target[:, 1:] == batch.labels[:, :-1]).all()


def test_chunks_are_those_of_the_loss(order, monkeypatch):
    seen = []

    def tried(setting, toy):
        seen.append(losses.CHUNK_LOGITS["cpu"])
        return {}

    monkeypatch.setattr(steps, "_tried", tried)
    before = dict(losses.CHUNK_LOGITS)
    rows = list(steps.measure_chunks(order))
    assert seen == [row["logits"] for row in rows] == [2**20, 2**23, 2**26]
    assert before == losses.CHUNK_LOGITS


def test_the_page_has_the_numbers_of_all_parts(order, monkeypatch):
    measured(order._replace(data=Path("text")), monkeypatch)
    text = page.write(order.folder, CONDITIONS).read_text()
    assert text.startswith("# On 2 x Toy 9\n")
    # 3 of 2 x 6 TFLOP/s.
    assert (
        "128,000 target tokens per second (bfloat16, 64 sentences of 16 tokens; MFU 25.0%)" in text
    )
    row = "2.5 | 8.0 | 128,000 | 3 TFLOP/s | 25.0% | 5 GB | - |"
    assert f"| base | bfloat16 | 64 x 16 | {row}" in text
    assert f"| 1,048,576 | base | bfloat16 | 64 x 16 | {row}" in text
    assert r"| big | float32 | 64 | no \| room |" in text
    assert "| bfloat16 | 5 TFLOP/s | 6 TFLOP/s |" in text
    assert "Best BLEU on validation 25.00, after 25 steps and 50 s" in text
    assert "40 passed, 1 failed, 2 skipped in 2 files" in text
    assert "- `tests.a::test_b`: `'x' is not y`" in text
    assert "| 4 | 2.00 | 5.00 | 2.50 |" in text
    assert "| float32 | 3.0 | 640.0 | 20,480 | 32.0 |" in text
    assert "end with the same bits: all 9" in text
    assert "jax 0.0.1, Python 3.0, an abacus; code of commit 0123456." in text
    assert (order.folder / "docs" / "images" / "accelerator.png").stat().st_size > 5000
    lines = [line for line in text.splitlines() if line.startswith("|")]
    columns = {line.replace(r"\|", "").count("|") for line in lines if "base" in line}
    assert columns == {11, 12}


def test_the_page_says_what_is_missing_and_what_ended_early(order, monkeypatch):
    failed = {name: {"error": f"no {name}"} for name in parts.NAMES if name != "step"}
    rows = RESULTS["step"][:1]
    names, _ = measured(order, monkeypatch, {**failed, "step": {"result": rows, "error": "late"}})
    text = page.write(order.folder, CONDITIONS).read_text()
    assert len(names) == 7
    assert text.count("Not measured.") == 1
    assert "Not complete: no peak." in text
    assert "| base | bfloat16 | 64 x 16 |" in text
    assert "MFU -" in text
    # Of another device nothing is there, and there is nothing to draw.
    (order.folder / page.PICTURE).unlink()
    other = {**CONDITIONS, "device": {"kind": "Toy 8", "count": 1}, "toy": True}
    text = page.write(order.folder, other).read_text()
    assert text.count("Not measured.") == len(parts.NAMES)
    assert "these numbers show that the study runs, and nothing else" in text
    assert "![" not in text
    assert not (order.folder / page.PICTURE).exists()


def test_differences_of_two_states_are_those_of_their_bits():
    one = {"a": np.array([1.0, 2.0], np.float32), "b": np.array([3], np.int32)}
    same = {name: array.copy() for name, array in one.items()}
    equal = {"arrays": 2, "different": 0, "name": "", "difference": 0.0}
    assert twice.differences(one, same) == equal
    same["a"][1] = 2.5
    found = twice.differences(one, same)
    assert found == {"arrays": 2, "different": 1, "name": "a", "difference": 0.5}
    nan = {"a": np.array([math.nan], np.float32)}
    assert twice.differences(nan, nan)["different"] == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--parts=step,stop"], "--parts has 'stop': choose from peak,step"),
        (["--data=nowhere"], "--data=nowhere has no train.en"),
        (["--minutes=0"], "'0' is not a whole number between 1 and 600"),
        (["--tiny"], "unrecognized arguments: --tiny"),
    ],
)
def test_a_wrong_flag_ends_in_one_line(tmp_path, capsys, flags, says):
    assert exit_code(__main__.run, [f"--out={tmp_path / 'out'}", *flags]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_machine_without_an_accelerator_is_told_before_anything_is_measured(
    tmp_path, capsys, monkeypatch
):
    device = {"devices": {"kind": "cpu", "count": 1}, "packages": {}, "code": None}
    device |= {"platform": "cpu", "python": "3", "processor": "an abacus"}
    monkeypatch.setattr(__main__, "measure", lambda *_: {"result": device})
    monkeypatch.setattr(__main__, "measure_all", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert exit_code(__main__.run, ["--out=~/own"]) == 2
    assert (tmp_path / "own").is_dir()
    line = capsys.readouterr().err
    assert "no accelerator but a CPU" in line
    assert "--toy" in line
    assert line.count("\n") == 1


@pytest.mark.slow
def test_the_whole_study_runs_with_tiny_models_and_then_skips_all(tmp_path, capsys):
    flags = [f"--out={tmp_path}", "--toy", "--minutes=30"]
    assert exit_code(__main__.run, flags) == 0
    assert "skipped" not in capsys.readouterr().out.replace("multi30k: skipped", "")
    text = (tmp_path / page.PAGE).read_text()
    assert text.count("Not measured.") == 1
    assert "Not complete" not in text
    assert exit_code(__main__.run, flags) == 0
    assert capsys.readouterr().out.count("there since an earlier start") == len(parts.NAMES) - 1
