"""The load measurement counts what clients see, and what is wrong of it."""

import asyncio
from pathlib import Path

from serving import serving

from experiments.serving.works import Served
from experiments.studies.command import exit_code
from experiments.studies.serving import Load, load, run, table


def test_each_text_is_asked_for_once_and_a_wrong_answer_is_counted(loaded):
    run = loaded["translation"]
    texts = ["a b", "c", "d e f"] * 5
    wanted = dict(zip(texts[:2], run.translate(texts[:2]), strict=True))
    with serving([Served("own", run)]) as running:
        found = asyncio.run(load(running.port, texts, wanted, 4))
        assert (found.clients, len(found.seconds), found.wrong) == (4, 15, 0)
        assert wanted["d e f"] == run.translate(["d e f"])[0]
        other = asyncio.run(load(running.port, texts, {"c": "another one"}, 1))
        assert other.wrong == 5  # the control


def test_a_total_that_leaves_no_request_for_the_last_load_is_refused_first(monkeypatch, capsys):
    measured = []

    def measure(*arguments):
        measured.append(arguments)
        return [], {}

    monkeypatch.setattr("experiments.studies.serving.measure", measure)
    flags = ["--workdir=x", "--requests=3000"]  # 3 x (600 + 3000) before the last load
    assert exit_code(run, flags) == exit_code(run, [*flags, "--total=10800"]) == 2
    first, _ = capsys.readouterr().err.splitlines()
    assert "--total=10000 leaves no request after the first 10,800" in first
    assert measured == []
    assert exit_code(run, [*flags, "--total=10801"]) == 0  # the control
    assert measured == [(Path("x"), 3000, 10801)]


def test_rates_are_those_of_the_whole_time():
    loads = [Load(1, [0.1, 0.1, 0.3], 0.5, 0), Load(8, [0.25] * 12, 0.5, 2)]
    assert table(loads)[2:] == [
        "| 1 | 6 | 1.00 | 100 | 296 | 0 |",
        "| 8 | 24 | 4.00 | 250 | 250 | 2 |",
    ]
