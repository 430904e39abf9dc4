"""The study of comparisons draws systems that are equal, and systems that are not."""

import numpy as np
import pytest

from experiments.comparison.outputs import TASKS
from experiments.comparison.systems import read_systems
from experiments.studies.command import exit_code
from experiments.studies.comparisons import (
    exchanged,
    fraction_below,
    joined,
    p_values,
    run,
    same_setting,
    settings,
    two_settings,
)
from sweeps import translator

[BLEU, *_] = TASKS["translation"].measures


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Four seeds of a setting and two of a worse one, as flags."""
    root = tmp_path_factory.mktemp("study")
    errors = [0.2, 0.2, 0.2, 0.2, 0.4, 0.4]
    folders = [str(translator(root, n, share)) for n, share in enumerate(errors)]
    return [f"--runs={'+'.join(folders[:4])}", f"--others={'+'.join(folders[4:])}"]


@pytest.fixture(scope="module")
def systems(flags):
    return read_systems(",".join(flag.partition("=")[2] for flag in flags), None)[1]


def test_exchanged_systems_have_the_outputs_of_two_runs_each_once(systems):
    runs = systems[0].runs
    [first], [second] = exchanged(runs, np.random.default_rng(1))
    whole = first.outputs.counts["bleu"] + second.outputs.counts["bleu"]
    sums = [
        ours.outputs.counts["bleu"] + theirs.outputs.counts["bleu"]
        for n, ours in enumerate(runs)
        for theirs in runs[:n]
    ]
    assert sum(np.array_equal(whole, pair) for pair in sums) == 1
    assert not any(
        np.array_equal(first.outputs.counts["bleu"], r.outputs.counts["bleu"]) for r in runs
    )


def test_no_run_is_in_both_systems_of_one_setting(systems):
    first, other = systems
    rng = np.random.default_rng(0)
    for _ in range(20):
        ours, theirs = same_setting(first.runs, 2, rng)
        assert len({each.folder for each in (*ours, *theirs)}) == 4
        ours, theirs = two_settings(first.runs, other.runs, 2, rng)
        assert {each.folder for each in theirs} == {each.folder for each in other.runs}
        assert {each.folder for each in ours} <= {each.folder for each in first.runs}


def test_joined_runs_have_the_mean_of_the_counts(systems):
    runs = systems[0].runs[:3]
    expected = sum(each.outputs.counts["bleu"] for each in runs) / 3
    np.testing.assert_allclose(joined(runs, BLEU).outputs.counts["bleu"], expected)


def test_one_model_rarely_differs_from_itself_and_two_settings_do(systems):
    first, other = systems
    kinds = {(name, seeds): draw for name, seeds, draw in settings(first.runs, other.runs)}
    assert list(kinds) == [
        *(("the same model", 1), ("the same setting", 1), ("the same setting", 2)),
        *(("two settings", 1), ("two settings", 2)),
    ]
    same = p_values(BLEU, kinds["the same model", 1], 60, 200)
    different = p_values(BLEU, kinds["two settings", 1], 20, 200)
    for kind in ("bootstrap", "randomisation"):
        assert fraction_below(same[kind])[0] < 0.15
        assert fraction_below(different[kind])[0] > 0.8


def test_a_fraction_has_its_exact_binomial_interval():
    # The limits are the values at which 2 or fewer, and 2 or more, of 20 have a chance of 2.5%.
    fraction, low, high = fraction_below(np.array([0.01, 0.049, *[0.05] * 18]))
    assert (fraction, low, high) == pytest.approx((0.1, 0.01235, 0.31698), abs=1e-5)


def test_the_study_prints_its_table_and_refuses_one_seed(flags, capsys):
    assert exit_code(run, [*flags, "--pairs=2"]) == 0
    assert "the same setting" in capsys.readouterr().out
    assert exit_code(run, [flags[0].split("+")[0], flags[1], "--pairs=2"]) == 2
    assert "name two seeds or more" in capsys.readouterr().err


@pytest.mark.parametrize("place", [0, 1])
def test_the_study_refuses_seeds_that_are_joined_by_commas(flags, capsys, place):
    flags = [flag.replace("+", ",", n == place) for n, flag in enumerate(flags)]
    assert exit_code(run, flags) == 2
    error = capsys.readouterr().err
    assert f"{flags[place]} names several systems: join seeds by +" in error
    assert error.count("\n") == 1
