"""The command of the benchmark: its flags, and what it leaves."""

import json

import pytest
from systems import ENVIRONMENT

from experiments.benchmark import __main__, measurements
from experiments.benchmark import benchmark as command
from experiments.benchmark.summary import decoding_numbers
from tiny_run import CONFIG, refused
from transformer.errors import UserError


def test_a_misspelt_part_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "config.py").write_text(CONFIG.replace("CACHE", str(tmp_path / "cache")))
    flags = ("--mode=benchmark", f"--config={tmp_path / 'config.py'}")
    refused(*flags, "--parts=decoding,trianing", says="'trianing': choose from training,decoding")
    refused(*flags, "--peers=tensorflow", says="'tensorflow': choose from torch,")
    assert __main__.main([f"--out={tmp_path / 'out'}", "--parts=tine"]) == 2
    assert "--parts has 'tine': choose from base,big,tiny" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    names = ["training", "decoding", "other"]
    assert command.choose("other,training", names) == ["training", "other"]


def test_the_command_writes_and_prints_what_it_measured(tmp_path, monkeypatch, capsys):
    def measure(workload, setting):
        part = {"workload": "w", "sentences_per_second": 1.0, "first_seconds": 2.0}
        systems = {"matmul": {"flops_per_second": 1e12}, "decoding": {"seconds": 1.5}}
        records = {name: {"rounds": [row]} for name, row in systems.items()}
        return part | {"numbers": decoding_numbers(records)}

    monkeypatch.setitem(measurements.KINDS, "decoding", measure)
    monkeypatch.setattr(measurements.environment, "describe", lambda: ENVIRONMENT)
    assert __main__.main([f"--out={tmp_path / 'out'}", "--parts=decoding", "--rounds=2"]) == 0
    written = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert written["parts"]["decoding"]["numbers"]["decoding"]["cost"]["median"] == 1.5
    assert "sentences/s" in capsys.readouterr().out


def test_peers_are_chosen_by_name_or_by_what_is_installed(monkeypatch):
    there = {"torch": True}
    monkeypatch.setattr(measurements.importlib.util, "find_spec", there.get)
    assert measurements.choose_peers(None) == ["torch", "torch_keep"]
    assert measurements.choose_peers("") == []
    named = "torch_compile", "torch_bfloat16"
    assert measurements.choose_peers(",".join(named)) == list(named)
    with pytest.raises(UserError, match="--peers=hugging_face needs transformers: pip install"):
        measurements.choose_peers("hugging_face")
