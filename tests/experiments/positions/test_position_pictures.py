"""The pictures of positions show the model's own encodings, and what they claim of them holds."""

import numpy as np
import pytest
from position_examples import COUNT, SIZES, all_of, encoding, keep_only

from experiments.positions import plots
from experiments.positions.values import encodings
from tiny_models import tiny_config
from tiny_run import command, refused
from transformer.model.positions.registry import REGISTRY, fitting_names


def sinusoids(count, width):
    """[count, width] in float64, by the formula of section 3.5."""
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(count, width)


# -- what is drawn


def test_every_encoding_of_the_registry_has_its_pictures(tmp_path, undrawn):
    files = list(plots.draw(all_of(SIZES), COUNT, tmp_path / "new" / "folder"))
    assert all(path.exists() for path in files)
    names = {path.stem for path in files}
    assert {"sinusoidal_add", "relative_shaw_value_bias", "alibi_bias_decoder"} < names
    drawn = {name for name in REGISTRY if any(name in path.stem for path in files)}
    assert drawn == set(fitting_names(SIZES)) - {"none"}


def test_the_heat_map_is_the_papers_table_on_a_scale_of_one():
    figure = plots.added_figure(encoding("sinusoidal"), COUNT)
    image = figure.axes[0].images[0]
    np.testing.assert_allclose(image.get_array(), sinusoids(COUNT, 26), atol=1e-6)
    assert image.get_clim() == (-1, 1)


def test_products_by_distance_are_means_of_diagonals():
    matrix = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9.0]])
    distances, mean, low, high = plots.by_distance(matrix)
    assert distances.tolist() == [-2, -1, 0, 1, 2]
    assert mean.tolist() == [7, 6, 5, 4, 3]
    assert low.tolist() == [7, 4, 1, 2, 3]
    assert high.tolist() == [7, 8, 9, 6, 3]


def test_a_decoder_is_drawn_with_its_past_alone():
    encoder, decoder = (one for one in all_of(SIZES) if one.name == "alibi")
    assert [encoder.past_only, decoder.past_only] == [False, True]
    curves = [plots.bias_figure(one, COUNT).axes[0].lines for one in (encoder, decoder)]
    assert [line.get_xdata()[-1] for lines in curves for line in lines[:1]] == [COUNT - 1, 0]
    # Of 3 heads: slopes 1/16, 1/256 and, between those of twice as many, 1/4.
    assert [-line.get_ydata()[-2] for line in curves[1]] == [1 / 16, 1 / 256, 1 / 4]


def test_sizes_that_rule_an_encoding_out_cost_no_other_picture(monkeypatch, said):
    keep_only(monkeypatch, ["rotary", "alibi"])
    odd = tiny_config(positions="none")  # heads of 11
    names = {one.name for one in encodings(odd, 0, None)}
    assert names == {"alibi", "none"}
    assert len(said) == 1
    assert "rotary is not drawn" in said[0]
    assert "model.head_size" in said[0]


# -- the mode


@pytest.fixture
def two_encodings(monkeypatch, undrawn):
    """A registry of two, for a mode that would take seconds over all."""
    keep_only(monkeypatch, ["sinusoidal"])
    monkeypatch.setattr(plots, "PHASOR_POSITIONS", 3)


def test_the_mode_draws_with_and_without_a_trained_run(tiny, tmp_path, two_encodings):
    new = tmp_path / "new"
    ended = command("--mode=positions", f"--config={tiny.config}", f"--workdir={new}")
    assert ended.code == 0, ended.err
    names = ("sinusoidal_add.png", "rotation_by_offset.png", "positions.html")  # fmt: skip
    paths = [str(new / "figures" / "positions" / name) for name in names]
    assert [line for line in ended.out.splitlines() if line.startswith(str(new))] == paths
    trained = tiny.copy(tmp_path / "trained")
    ended = command("--mode=positions", f"--workdir={trained}")
    assert ended.code == 0, ended.err
    assert (trained / "figures" / "positions" / "positions.html").exists()
    # The folder of another run is left alone.
    refused(
        *("--mode=positions", f"--config={tiny.config}", f"--workdir={trained}"),
        "--config.model.d_model=32",
        says="holds a run of another config",
    )


def test_a_folder_without_run_or_config_is_refused(tmp_path):
    refused("--mode=positions", f"--workdir={tmp_path}", says="has no run")
