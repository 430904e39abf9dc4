"""The command of the benchmark: its flags, its exit code, and what it leaves."""

import pytest
from systems import ENVIRONMENT

from experiments.benchmark import __main__, measurements
from experiments.benchmark import benchmark as command
from experiments.benchmark.summary import timed_numbers
from tiny_run import CONFIG, refused
from transformer.errors import UserError


def test_a_misspelt_part_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "config.py").write_text(CONFIG.replace("CACHE", str(tmp_path / "cache")))
    flags = ("--mode=benchmark", f"--config={tmp_path / 'config.py'}")
    refused(*flags, "--parts=start,trianing", says="'trianing': choose from training,decoding")
    refused(*flags, "--peers=tensorflow", says="'tensorflow': choose from torch,")
    refused(*flags, "--baseline=nowhere.json", says="nowhere.json is missing: give --baseline")
    assert __main__.main([f"--out={tmp_path / 'out'}", "--parts=tine"]) == 2
    assert "--parts has 'tine': choose from base,big,tiny" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    names = ["training", "decoding", "start"]
    assert command.choose("start,training", names) == ["training", "start"]


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A function that runs the command, given the seconds that it measures."""
    cost = {"step": 1.0}

    def measure(workload, setting):
        numbers = {"decoding": timed_numbers([cost["step"]], [1e12])}
        part = {"workload": "w", "sentences_per_second": 1.0, "first_seconds": 2.0}
        return part | {"numbers": numbers}

    monkeypatch.setitem(measurements.KINDS, "decoding", measure)
    monkeypatch.setattr(__main__, "BASELINE", tmp_path / "speed.json")
    monkeypatch.setattr(measurements.environment, "describe", lambda: ENVIRONMENT)

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
