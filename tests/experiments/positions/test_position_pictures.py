"""The pictures of positions show the model's own encodings, and what they claim of them holds."""

import base64
import dataclasses
import functools
import json
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from configs import base
from experiments.positions import phasors, plots, values
from experiments.positions.pictures import model_config
from experiments.positions.rotation import (
    EPSILON,
    describe,
    errors_of,
    offset_errors,
    offset_rotation,
    split_rotation,
)
from experiments.positions.values import AS_INITIALISED, encodings
from places import ROOT
from reference_positions import WRITTEN
from tiny_models import tiny_config
from tiny_run import command, refused, shared_run
from transformer.model.positions import registry
from transformer.model.positions.base import NoPositions
from transformer.model.positions.registry import REGISTRY
from transformer.model.transformer import Transformer
from transformer.workdir import load_config, load_trained

# 7 positions, 3 heads of 10 and a width of 26, of which 13 pairs turn.
COUNT = 7
SIZES = tiny_config(d_model=26, num_heads=3, head_size=10)
WITH_PARAMETERS = {"learned", "relative_bias", "relative_shaw"}


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are built, but their files are empty: drawing takes most of the time."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: file.write(b""))


@functools.cache
def drawn():
    return phasors.phasors_of(SIZES)


def keep_only(monkeypatch, names):
    """Makes the registry one of these and none alone: work on others would only take time."""
    kept = {name: REGISTRY[name] for name in REGISTRY if name in (*names, "none")}
    for module in (registry, values, phasors):
        monkeypatch.setattr(module, "REGISTRY", kept)


def encoding(name, config=SIZES):
    """An encoding as it starts."""
    return next(one for one in all_of(config) if one.name == name)


@functools.cache
def all_of(config):
    return list(encodings(config, 0, None))


def sinusoids(count, width):
    """[count, width] in float64, by the formula of section 3.5."""
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(count, width)


# -- what is drawn


class Everything(NoPositions):
    """Acts in every place. Nobody needs to know of it."""

    def add(self, embeddings, positions):
        return embeddings + positions[:, None]

    def bias(self, query_positions, key_positions):
        shape = (self.config.num_heads, len(query_positions), len(key_positions))
        return jnp.broadcast_to(key_positions - query_positions[:, None], shape)

    def rotate(self, heads, positions):
        return heads * (1 + positions[:, None, None])

    def score(self, queries, query_positions, key_positions):
        return jnp.einsum("BLHK,M->BHLM", queries, key_positions)

    def value_bias(self, weights, query_positions, key_positions):
        read = jnp.einsum("BHLM,M->BLH", weights, key_positions)
        return jnp.repeat(read[..., None], self.config.head_width, axis=-1)


def test_every_encoding_of_the_registry_has_its_pictures(tmp_path, undrawn):
    files = list(plots.draw(all_of(SIZES), COUNT, tmp_path / "new" / "folder"))
    assert all(path.exists() for path in files)
    written = [
        "sinusoidal_add",
        "split_add",
        "learned_add",
        "rotary_rotate",
        "relative_bias_bias_encoder",
        "relative_bias_bias_decoder",
        "relative_shaw_score",
        "relative_shaw_value_bias",
        "alibi_bias_encoder",
        "alibi_bias_decoder",
        "none",
    ]
    assert [path.stem for path in files if path.stem in written] == written
    added = tuple(set(REGISTRY) - set(WRITTEN))
    assert all(path.stem.startswith(added) for path in files if path.stem not in written)
    assert {name for name in REGISTRY if any(name in path.stem for path in files)} == set(REGISTRY)


def test_an_encoding_that_someone_adds_has_a_picture_of_each_hook(tmp_path, undrawn, monkeypatch):
    monkeypatch.setitem(REGISTRY, "everything", Everything)
    keep_only(monkeypatch, ["everything"])
    found = list(encodings(SIZES, 0, None))[-2:]  # after none
    assert found[0].summary == "Acts in every place"
    files = list(plots.draw(found[:1], COUNT, tmp_path))
    hooks = ("add", "bias", "rotate", "score", "value_bias")
    assert [path.stem for path in files] == [f"everything_{hook}_encoder" for hook in hooks]
    distances, vectors = found[0].vectors("score", COUNT)
    assert distances.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    expected = np.broadcast_to(np.arange(COUNT)[:, None], (3, COUNT, 10))
    np.testing.assert_allclose(vectors, expected)
    np.testing.assert_allclose(found[0].vectors("value_bias", COUNT)[1], expected)


class Tuned(NoPositions):
    """Adds a trained number times the distance."""

    def setup(self):
        self.slopes = self.param("slopes", nn.initializers.ones_init(), (self.config.num_heads,))

    def bias(self, query_positions, key_positions):
        return self.slopes[:, None, None] * (key_positions - query_positions[:, None])


class Compact(NoPositions):
    """Adds a trained number times the key's position and the query's sum."""

    @nn.compact
    def score(self, queries, query_positions, key_positions):
        slopes = self.param("slopes", nn.initializers.ones_init(), (self.config.num_heads,))
        sums = jnp.einsum("BLHK,H->BHL", queries, slopes)
        return sums[..., None] * key_positions


@pytest.mark.parametrize("scan_layers", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "pictures"), [(Tuned, 2), (Compact, 4)])
def test_parameters_that_someone_s_encoding_has_are_drawn(
    kind, pictures, scan_layers, trained, tmp_path, undrawn, monkeypatch
):
    monkeypatch.setitem(REGISTRY, "someones", kind)
    keep_only(monkeypatch, ["someones"])
    new = [one for one in encodings(SIZES, 0, None) if one.name == "someones"]
    assert {one.origin for one in new} == {AS_INITIALISED}
    assert all(path.exists() for path in plots.draw(new, COUNT, tmp_path))
    own = dataclasses.replace(SIZES, positions="someones", scan_layers=scan_layers)
    tokens, mask = jnp.ones((1, 2), int), jnp.ones((1, 2), bool)
    params = Transformer(own).init(jax.random.key(0), tokens, tokens, mask, mask)["params"]
    params = jax.tree.map(lambda x: 3 * x, params)
    found = list(encodings(own, 0, trained(params, 20)))
    used = [one for one in found if one.name == "someones"]
    assert len(used) == pictures
    for one in used:
        np.testing.assert_array_equal(one.params["slopes"], 3 * np.ones(3))
    assert all(path.exists() for path in plots.draw(used, COUNT, tmp_path / "trained"))


def test_the_mode_draws_what_someone_adds(tiny, tmp_path, undrawn, monkeypatch):
    monkeypatch.setitem(REGISTRY, "tuned", Tuned)
    monkeypatch.setitem(REGISTRY, "compact", Compact)
    keep_only(monkeypatch, ["sinusoidal", "tuned", "compact"])
    monkeypatch.setattr(phasors, "POSITIONS", 3)
    ended = command("--mode=positions", f"--workdir={tiny.copy(tmp_path / 'run')}")
    assert ended.code == 0, ended.err
    for name in ("tuned_bias_encoder.png", "tuned_bias_decoder.png", "compact_score.png"):
        assert name in ended.out


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


def test_rotary_pairs_and_angles_are_read_off_what_it_does():
    angles, pairs = plots.turning_angles(encoding("rotary"), COUNT)
    assert pairs == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    expected = np.arange(COUNT)[:, None] / 10000 ** (np.arange(0, 10, 2) / 10)
    np.testing.assert_allclose(np.exp(1j * angles), np.exp(1j * expected), atol=1e-6)


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


# -- trained parameters


@pytest.mark.parametrize("layers", ["each its own", "scanned", "shared"])
def test_parameters_of_a_run_are_drawn_at_each_of_their_places(layers, trained, monkeypatch):
    keep_only(monkeypatch, WITH_PARAMETERS)
    fields = {"scan_layers": layers == "scanned", "share_layers": layers == "shared"}
    names = "learned+relative_bias+relative_shaw"
    sizes = {"d_model": 26, "num_heads": 3, "head_size": 10, **fields}
    own = tiny_config(positions=names, cross_positions="relative_shaw", **sizes)
    model = Transformer(own)
    tokens, mask = jnp.ones((1, 2), int), jnp.ones((1, 2), bool)
    shapes = jax.eval_shape(model.init, jax.random.key(0), tokens, tokens, mask, mask)
    rng = np.random.default_rng(5)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), shapes["params"])
    found = list(encodings(own, 0, trained(params, 20, 1040)))
    found.pop()  # none
    assert {one.origin for one in found} == {"trained, mean of steps 20, 1,040"}
    at = {(one.name, one.place): one for one in found}
    numbers = [", all layers"] if layers == "shared" else [" layer 1", " layer 2"]
    stacks = [f"{stack}{n}" for stack in ("encoder", "decoder") for n in numbers]
    cross = [f"decoder{n}, cross-attention" for n in numbers]
    expected = {("relative_shaw", place) for place in (*stacks, *cross)}
    expected |= {(name, s) for name in ("learned", "relative_bias") for s in ("encoder", "decoder")}
    assert set(at) == expected
    assert {p for (_, p), one in at.items() if one.past_only} == {
        "decoder", *(place for place in stacks if "decoder" in place)
    }  # fmt: skip
    for stack in ("encoder", "decoder"):
        table = params[f"{stack}_positions"]["learned"]["table"]
        np.testing.assert_array_equal(at["learned", stack].table(COUNT), table[:COUNT])
    last = at["relative_shaw", stacks[-1]].vectors("score", COUNT)
    module = {"scanned": "decoder_layers", "shared": "decoder_layers_0"}
    layer = params[module.get(layers, "decoder_layers_1")]
    kept = layer["self_attention"]["positions"]["relative_shaw"]["keys"]
    kept = kept[-1] if layers == "scanned" else kept
    # Distances 0 to 3 back; those of 4 to 6 are clipped.
    np.testing.assert_allclose(last[1][0], kept[[0, 0, 0, 0, 1, 2, 3]], atol=1e-6)
    assert last[0].tolist() == [-6, -5, -4, -3, -2, -1, 0]


def test_without_a_run_parameters_are_as_initialised():
    found = all_of(SIZES)
    assert {one.name for one in found if one.params} & set(WRITTEN) == WITH_PARAMETERS
    for one in found:
        assert one.origin == (AS_INITIALISED if one.params else "")


@pytest.mark.parametrize(
    ("kind", "width", "head"),
    [("bag_of_embeddings", 512, 64), ("recurrent", 78, 39), ("transformer", 512, 64)],
)
def test_a_model_of_any_kind_has_sizes_to_draw_with(kind, width, head):
    config = base.get_config()
    config.model.architecture = kind
    config.model.d_model = width  # of a recurrent one, 8 heads need not divide it
    assert model_config(config).head_width == head


# -- the rotation by an offset


def test_the_rotation_of_one_pair_is_that_of_a_table():
    # sin 1 = .841471, cos 1 = .540302.
    expected = [[0.540302, 0.841471], [-0.841471, 0.540302]]
    np.testing.assert_allclose(offset_rotation(2, 1), expected, atol=1e-6)
    apart = split_rotation(6, 5)
    assert [(i, j) for i, j in np.argwhere(apart) if i != j] == [
        *((0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2))
    ]


@pytest.mark.parametrize("offset", [1, 5])
def test_the_offset_is_a_rotation_to_float_precision_in_each_encodings_own_pairs(offset):
    count = 32
    tables = {name: encoding(name).table(count) for name in ("sinusoidal", "split", "learned")}
    rotations = (offset_rotation(26, offset), split_rotation(26, offset))
    # Rounding moves an angle of a radians by eps a / 2 at most, on either side of the equation.
    allowed = 2 * EPSILON * (1 + np.arange(offset, count))
    for name, own in (("sinusoidal", 0), ("split", 1)):
        assert (offset_errors(tables[name], rotations[own], offset) < allowed).all()
        # Controls: the other encoding's pairs, another offset, and what is no sinusoid.
        assert (offset_errors(tables[name], rotations[1 - own], offset) > 0.1).all()
        other = (offset_rotation, split_rotation)[own](26, offset + 1)
        assert (offset_errors(tables[name], other, offset) > 0.1).all()
        assert (offset_errors(tables["learned"], rotations[own], offset) > 0.1).all()
    lines = list(describe(errors_of(tables, offset), offset))
    assert "eps" in lines[2]
    assert "sinusoidal" in lines[2]


# -- phasors


def test_the_hands_of_each_order_are_found_in_its_numbers():
    assert {phasor.name: phasor.hands for phasor in drawn() if phasor.name in WRITTEN} == {
        "sinusoidal": [(2 * i, 2 * i + 1) for i in range(8)],
        "split": [(i, i + 8) for i in range(8)],
    }
    assert phasors.hands_of(encoding("learned").table(COUNT)) == []


def test_the_gif_has_a_frame_for_each_position(tmp_path):
    phasor = drawn()[0]
    gif = phasors.draw_gif(phasor._replace(table=phasor.table[:3]), tmp_path / "new" / "a.gif")
    with Image.open(gif) as image:
        assert image.n_frames == 3
        frames = []
        for number in range(3):
            image.seek(number)
            frames.append(np.asarray(image.convert("RGB"), int))
    assert np.abs(frames[0] - frames[1]).max() > 100
    # 48 such frames are less than a megabyte.
    assert gif.stat().st_size / 3 * phasors.POSITIONS < 1_000_000


def test_the_page_holds_the_tables_bit_for_bit(tmp_path):
    page = phasors.write_phasors(drawn(), tmp_path / "positions.html").read_text("utf-8")
    [data] = re.findall(r'<script type="application/json" id="phasors">(.*)</script>', page)
    for phasor, told in zip(drawn(), json.loads(data)["encodings"], strict=True):
        numbers = np.frombuffer(base64.b64decode(told["table"]["float32"]), "<f4")
        np.testing.assert_array_equal(numbers.reshape(told["table"]["shape"]), phasor.table)
        assert told["hands"] == [list(hand) for hand in phasor.hands]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


# -- the mode


@pytest.fixture(scope="module")  # so that it is made while pictures are drawn
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


@pytest.fixture(scope="module")
def trained(tiny):
    """Makes a trained run of parameters and the steps that they are the mean of."""
    run = load_trained(tiny.workdir, load_config(tiny.workdir))
    return lambda params, *steps: dataclasses.replace(
        run, variables={"params": params}, steps=steps
    )


@pytest.fixture
def two_encodings(monkeypatch, undrawn):
    """A registry of two, for a mode that would take seconds over all."""
    keep_only(monkeypatch, ["sinusoidal"])
    monkeypatch.setattr(phasors, "POSITIONS", 3)


def test_the_mode_draws_with_and_without_a_trained_run(tiny, tmp_path, two_encodings):
    new = tmp_path / "new"
    ended = command("--mode=positions", f"--config={tiny.config}", f"--workdir={new}")
    assert ended.code == 0, ended.err
    names = ("sinusoidal_add.png", "none.png", "rotation_by_offset.png",
             "phasors_sinusoidal.gif", "positions.html")  # fmt: skip
    paths = [str(new / "figures" / "positions" / name) for name in names]
    assert [line for line in ended.out.splitlines() if line.startswith(str(new))] == paths
    assert "sinusoidal" in ended.out
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


@pytest.mark.slow
def test_every_picture_of_a_model_shows_something(tmp_path):
    config = ROOT / "configs" / "quickstart.py"
    ended = command("--mode=positions", f"--config={config}", f"--workdir={tmp_path}")
    assert ended.code == 0, ended.err
    folder = tmp_path / "figures" / "positions"
    pictures = sorted(folder.glob("*.png"))
    assert {name for name in REGISTRY if any(name in p.stem for p in pictures)} == set(REGISTRY)
    for picture in pictures:
        with Image.open(picture) as image:
            assert np.ptp(np.asarray(image.convert("L"), int)) > 200, picture
    for gif in folder.glob("*.gif"):
        assert gif.stat().st_size < 1_000_000
        with Image.open(gif) as image:
            assert image.n_frames == phasors.POSITIONS


def test_a_folder_without_run_or_config_is_refused(tmp_path):
    refused("--mode=positions", f"--workdir={tmp_path}", says="has no run")
