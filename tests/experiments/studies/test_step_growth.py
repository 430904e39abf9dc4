"""The growth study fits the slopes of curves, measures what is missing, and draws all of it."""

import math

import pytest
from matplotlib.image import imread

from experiments.studies import growth
from experiments.studies.command import exit_code
from experiments.studies.growth import AXES, BASE, Curve, Point, points

FOUND = {"step_ms": 3.0, "program_bytes": 5_000_000}


def test_a_slope_is_the_exponent_at_the_largest_values_that_were_measured():
    values = [2**n for n in range(2, 10)]
    cubes = [7.0 * value**3 if value > 16 else 1.0 for value in values]
    assert Curve(values, cubes).slope == pytest.approx(3.0)
    assert Curve(values, [*cubes[:-1], math.nan]).slope == pytest.approx(3.0)
    # Control: a fit to all points is another one.
    assert abs(Curve(values[1:6], cubes[1:6]).slope - 3.0) > 0.5


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_changes_its_own_size_alone(axis):
    value = AXES[axis][2]
    rows = {"batch": 1} if axis == "length" else {}
    assert Point(axis, value, "plain").sizes == {**BASE, **rows, axis: value}


def test_a_point_is_a_model_and_a_batch_of_its_sizes():
    config = Point("width", 96, "chunked").config()
    model = config.model
    assert (model.d_model, model.d_ff, model.num_heads) == (96, 384, 3)
    assert model.attention_implementation == "chunked"
    assert config.data.batch_tokens == 64 * 16
    assert Point("depth", 4, "plain").config().model.num_encoder_layers == 4


def test_only_missing_points_are_measured_and_the_last_one_is_followed_by_the_figure(
    tmp_path, monkeypatch, capsys
):
    measured = []

    def measure(point):
        measured.append(point)
        return FOUND if point.value < 16_384 else {"program_bytes": 5_000_000}

    monkeypatch.setattr(Point, "measure", measure)
    assert exit_code(growth.run, [f"--out={tmp_path}", "--axes=depth"]) == 0
    assert measured == points(["depth"])
    assert not (tmp_path / "growth.png").exists()
    assert f"{len(points(AXES)) - len(measured)} points are missing" in capsys.readouterr().out
    assert exit_code(growth.run, [f"--out={tmp_path}"]) == 0
    assert sorted(measured) == sorted(points(AXES))  # each once
    assert imread(tmp_path / "growth.png").std() > 0.05
    assert "chunked" in capsys.readouterr().out


def test_a_range_ends_with_the_largest_value_that_was_measured_and_names_it():
    assert growth._range(Curve([1, 2, 3], [1e6, 2.5e6, 4e6]), 1e6) == "1.0 … 4"
    assert growth._range(Curve([1, 2048, 4096], [1, 2, math.nan]), 1.0) == "1.0 … 2 (at 2,048)"


def test_an_unknown_axis_is_refused_with_the_choices(tmp_path, capsys):
    assert exit_code(growth.run, [f"--out={tmp_path}", "--axes=length,beam"]) == 2
    said = capsys.readouterr().err
    assert "'beam': choose from length,width" in said


@pytest.mark.slow
def test_a_program_that_is_too_large_has_memory_but_no_times(monkeypatch):
    monkeypatch.setattr(growth, "MAX_BYTES", 1)
    monkeypatch.setattr(growth, "BASE", {**BASE, "length": 8, "batch": 2, "vocabulary": 50})
    found = Point("width", 32, "plain").measure()
    assert found["program_bytes"] > 1
    assert not {"step_ms", "tokens_per_second", "flops_per_second"} & found.keys()
    monkeypatch.setattr(growth, "MAX_BYTES", 1e9)
    monkeypatch.setattr(growth, "MIN_SECONDS", 0.0)
    assert Point("width", 32, "plain").measure()["step_ms"] > 0  # control
