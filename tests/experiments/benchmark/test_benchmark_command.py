"""The command of the benchmark: its flags, and what it leaves."""

import json

import pytest
from systems import ENVIRONMENT

from experiments.benchmark import __main__, measurements
from experiments.benchmark import benchmark as command
from experiments.benchmark.summary import training_numbers
from tiny_run import CONFIG, refused
from transformer.errors import UserError


def test_a_misspelt_part_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "config.py").write_text(CONFIG.replace("CACHE", str(tmp_path / "cache")))
    flags = ("--mode=benchmark", f"--config={tmp_path / 'config.py'}")
    refused(*flags, "--peers=tensorflow", says="'tensorflow': choose from torch,")
    assert __main__.main([f"--out={tmp_path / 'out'}", "--parts=tine"]) == 2
    assert "--parts has 'tine': choose from base,big,tiny" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert command.choose("text,base", ["base", "big", "text"]) == ["base", "text"]


def test_the_command_writes_and_prints_what_it_measured(tmp_path, monkeypatch, capsys):
    step = {"seconds": 1.5, "steps": 2, "tokens": 30.0, "flops": 1e12}
    records = {
        "matmul": {"rounds": [{"flops_per_second": 1e12}]},
        "step": {"rounds": [step], "peak_bytes": 7e6, "compile_seconds": 3.0},
    }
    part = {"parameters": 5, "shapes": [], "target_padding_fraction": 0.1}
    part |= {"flops_per_step": 5e11, "program_bytes": 11, "device_bytes": None}
    part["numbers"] = training_numbers(records)
    monkeypatch.setattr(measurements, "measure_training", lambda workload, setting: part)
    monkeypatch.setattr(measurements.environment, "describe", lambda: ENVIRONMENT)
    assert __main__.main([f"--out={tmp_path / 'out'}", "--parts=tiny", "--rounds=2"]) == 0
    written = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert written["parts"]["tiny"]["numbers"]["step"]["cost"]["median"] == 1.5
    printed = capsys.readouterr().out
    assert "750 (750 to 750)" in printed  # ms of a step
    assert "500 GFLOP" in printed


def test_peers_are_chosen_by_name_or_by_what_is_installed(monkeypatch):
    there = {"torch": True}
    monkeypatch.setattr(measurements.importlib.util, "find_spec", there.get)
    assert measurements.choose_peers(None) == ["torch", "torch_keep"]
    assert measurements.choose_peers("") == []
    named = "torch_compile", "torch_bfloat16"
    assert measurements.choose_peers(",".join(named)) == list(named)
    with pytest.raises(UserError, match="--peers=hugging_face needs transformers: pip install"):
        measurements.choose_peers("hugging_face")
