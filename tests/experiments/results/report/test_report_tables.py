"""The tables of a report: scores, the config as flags, what cleaning dropped, and the commit."""

import json
import re
import subprocess

from configs import base
from experiments.process import environment
from experiments.process.config import override
from experiments.results import run_tables as tables
from transformer.config import flatten
from transformer.data.cleaning import CleaningReport
from transformer.runs.workdir import load_config


def test_the_command_makes_the_same_config_from_the_defaults(tiny):
    config = load_config(tiny.workdir)
    config.data.path, config.data.tfds_fields = "my 'own' texts", ("a", "b c")
    flags = subprocess.run(
        ["sh", "-c", "printf '%s\\n' " + tables.command(tables.differing(config))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    again = base.get_config()
    for flag in flags:
        if flag.startswith("--config."):
            override(again, *flag.removeprefix("--config.").split("=", 1))
    assert flatten(again) == flatten(config)
    assert flatten(again) != flatten(base.get_config())


def test_the_commit_is_told_with_whether_the_code_was_changed(tmp_path):
    assert environment._commit_of_code(tmp_path) is None

    def git(*arguments):
        own = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *own, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "a.py").write_text("1\n")
    git("add", "a.py")
    git("commit", "-m", "one")
    found = environment._commit_of_code(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    assert not found["changed"]
    (tmp_path / "a.py").write_text("2\n")
    assert environment._commit_of_code(tmp_path) == {**found, "changed": True}


def test_the_table_of_cleaning_says_why_pairs_were_dropped(tiny):
    data = json.loads((tiny.workdir / "run.json").read_text())["data"]
    assert data["splits"]["train"] == {"sentence pairs": data["cleaning"]["kept"]}
    report = CleaningReport({"": 5, "empty": 2, "duplicate": 1})
    data["cleaning"] = {"read": report.total, "kept": report.kept, "dropped": report.dropped}
    assert tables.data_tables(data)[0].rows == [
        ["read", "8", "100.00%"],
        ["with an empty side", "2", "25.00%"],
        ["repeated", "1", "12.50%"],
        ["kept", "5", "62.50%"],
    ]


def test_the_search_that_is_shown_is_the_one_of_the_scores():
    decode = tables.decode_of(base.get_config().decode, {"decode": {"beam_size": 7}})
    rows = dict(tables.decode_table(decode, "translation").rows)
    assert (rows["decode.beam_size"], rows["decode.alpha"]) == ("7", "0.6")
