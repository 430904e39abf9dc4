"""The sentences of a search are shared among the cores of a CPU."""

import pytest

from transformer.inference.base import share


@pytest.mark.parametrize(
    ("cores", "most", "expected"),
    [
        (1, 64, (1, 32)),
        (2, 31, (2, 15)),
        (8, 64, (8, 8)),
        (96, 64, (16, 4)),
        (8, 1, (1, 1)),
        (2, 1000, (2, 32)),
    ],
)
def test_a_cpu_shares_the_sentences_among_its_cores(monkeypatch, cores, most, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    assert share(most) == expected


def test_programs_of_accelerators_run_one_after_another(monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert share(64) == (1, 64)
