"""The command of the benchmark: its flags, its exit code, and what it leaves."""

import pytest
from systems import ENVIRONMENT

from experiments.benchmark import __main__, measurements, summary, turns
from experiments.benchmark import benchmark as command
from experiments.benchmark.measurements import Setting
from experiments.benchmark.summary import timed_numbers
from processes import end_with_worker
from tiny_run import CONFIG, refused
from transformer.errors import UserError


def test_a_misspelt_part_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "config.py").write_text(CONFIG.replace("CACHE", str(tmp_path / "cache")))
    flags = ("--mode=benchmark", f"--config={tmp_path / 'config.py'}")
    refused(*flags, "--parts=start,trianing", says="'trianing': choose from training,decoding")
    refused(*flags, "--peers=tensorflow", says="'tensorflow': choose from torch,")
    refused(*flags, "--baseline=nowhere.json", says="--baseline=nowhere.json is not a benchmark")
    assert __main__.main([f"--out={tmp_path / 'out'}", "--parts=tine"]) == 2
    error = capsys.readouterr().err
    assert error == f"error: --parts has 'tine': choose from {','.join(__main__.BENCH_PARTS)}\n"
    assert not (tmp_path / "out").exists()
    names = ["training", "decoding", "start"]
    assert command.choose("start,training", names) == ["training", "start"]


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A function that runs the command, given the seconds that it measures."""
    cost = {"step": 1.0}

    def measure(workload, setting):
        return {"workload": "w", "numbers": {"decoding": timed_numbers([cost["step"]], [1e12])}}

    monkeypatch.setitem(measurements.KINDS, "decoding", measure)
    monkeypatch.setattr(__main__, "BASELINE", tmp_path / "speed.json")
    monkeypatch.setattr(__main__, "show_results", lambda found, before, name: judge(found, before))
    monkeypatch.setattr(measurements.environment, "describe", lambda: ENVIRONMENT)

    def judge(found, before):
        changes = summary.compare(before, found) if before else []
        return any(change.worse for change in changes)

    def run(*flags, seconds=1.0):
        cost["step"] = seconds
        return __main__.main([f"--out={tmp_path / 'out'}", "--parts=decoding", *flags])

    return run


def test_the_exit_code_says_that_something_became_slower(measured, tmp_path):
    assert measured() == 0
    (tmp_path / "out" / "benchmark.json").rename(tmp_path / "speed.json")
    assert measured("--rounds=2", seconds=1.02) == 0
    assert measured("--rounds=3", seconds=1.2) == 1


def test_peers_are_chosen_by_name_or_by_what_is_installed(monkeypatch):
    there = {"torch": True}
    monkeypatch.setattr(measurements.importlib.util, "find_spec", there.get)
    assert measurements.choose_peers(None) == ["torch", "torch_keep"]
    assert measurements.choose_peers("") == []
    named = "torch_compile", "torch_bfloat16"
    assert measurements.choose_peers(",".join(named)) == list(named)
    with pytest.raises(UserError, match="--peers=hugging_face needs transformers: pip install"):
        measurements.choose_peers("hugging_face")
    assert Setting().peers == ()


@pytest.mark.full
def test_a_signal_ends_the_standard_workloads_and_what_they_have_started(tmp_path):
    flags = [f"--out={tmp_path}", "--parts=tiny", "--peers="]
    end_with_worker(["experiments.benchmark", *flags], turns.WORKER)
