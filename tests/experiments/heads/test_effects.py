"""The effect of a change is the difference of the scores with it and without it."""

import json

import numpy as np
import pytest

import transformer
from tiny_run import command, refused
from transformer.data.held_out import read_pairs

FIRST, SECOND = "decoder.1.cross.head.1.output", "decoder.1.cross.head.2.output"
CHANGES = {
    "zero": lambda pairs: {SECOND: "zero"},
    "alone": lambda pairs: {FIRST: "zero"},
    "mean": lambda pairs: {SECOND: ("mean", [pair[:2] for pair in pairs])},
    "0.5": lambda pairs: {SECOND: 0.5},
}


@pytest.mark.parametrize(
    "change", [pytest.param(x, marks=[pytest.mark.full] * (x != "alone")) for x in CHANGES]
)
def test_effects_are_those_of_the_run_with_the_change(tiny, tmp_path, change):
    folder = tiny.copy(tmp_path / "run")
    mode = "--mode=intervene", f"--workdir={folder}", f"--change={change}"
    ended = command(*mode, f"--places=encoder.1.self,{SECOND}")
    assert ended.code == 0, ended.err
    stem = change.replace(".", "_")
    written = json.loads((folder / "figures" / "interventions" / f"{stem}.json").read_text())
    run, pairs = transformer.load(folder), read_pairs(folder, "test")
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]

    def loss():
        scores = run.score(*sides)
        return -sum(x.log_prob for x in scores) / sum(x.tokens for x in scores)

    np.testing.assert_allclose(written["base"]["loss"], loss(), rtol=1e-5)
    with run.intervene(CHANGES[change](pairs)):
        np.testing.assert_allclose(
            written["base"]["loss"] + written["changes"][SECOND]["loss"], loss(), rtol=1e-5
        )
        assert abs(loss() - written["base"]["loss"]) > 1e-4  # control
    assert f"{written['changes'][SECOND]['loss']:+.4f}" in ended.out


def test_a_place_that_is_not_there_is_refused(tiny):
    mode = "--mode=intervene", f"--workdir={tiny.workdir}"
    refused(*mode, "--places=encoder.9.self", says="no place is named 'encoder.9.self'")
