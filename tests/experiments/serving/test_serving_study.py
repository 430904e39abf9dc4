"""The load measurement counts what clients see, and what is wrong of it."""

import asyncio

from serving import serving

from experiments.serving.works import Served
from experiments.studies.serving import Load, load, table


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


def test_rates_are_those_of_the_whole_time():
    loads = [Load(1, [0.1, 0.1, 0.3], 0.5, 0), Load(8, [0.25] * 12, 0.5, 2)]
    assert table(loads)[2:] == [
        "| 1 | 6 | 1.00 | 100 | 296 | 0 |",
        "| 8 | 24 | 4.00 | 250 | 250 | 2 |",
    ]
