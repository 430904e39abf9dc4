"""The pictures of attention show the arrays and tokens they were given, whatever these are."""

import warnings

import attention_examples
import numpy as np
from attention_examples import SOURCE, TARGET
from matplotlib.image import imread

from experiments.attention.draw import draw_attention, hide_end_of_sentence, kinds_to_draw
from experiments.attention.heat_maps import build_figure
from experiments.process.modes import Options
from transformer.analysis.attention import Attention

WRITTEN = [*TARGET[1:], "</s>"]
HOSTILE = ("$x_1$", "", "🙂🤖", "▁مرحبا", "中文", "{\\bf", "a\nb", " ", "\u0301", "x" * 300, "</s>")


def make_maps(source=SOURCE, heads=3, layers=2) -> Attention:
    return attention_examples.make_maps(source, TARGET, (layers, layers), heads)


def draw(seen, place, **options):
    """The names of the pictures, without the explorer."""
    *paths, explorer = draw_attention(seen, [20], place, place, Options(**options))
    assert explorer == place / "explorer.html"
    assert {path.parent for path in paths} == {place}
    return [path.name for path in paths]


def image_of(figure):
    """The one image of all maps."""
    return np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)


def titles(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


def test_a_picture_is_written_for_every_kind_and_layer_and_the_arrays_as_they_are(tmp_path):
    place, maps = tmp_path / "new" / "folder", make_maps(source=("", "$", "🤖", "</s>"))
    names = draw(maps, place)
    assert names == [
        "encoder_self_layer_1.png",
        "encoder_self_layer_2.png",
        "decoder_self_layer_1.png",
        "decoder_self_layer_2.png",
        "cross_layer_1.png",
        "cross_layer_2.png",
    ]
    # Not blank: some pixel is dark and some is light.
    assert all(np.ptp(imread(place / name)[..., :3]) > 0.5 for name in names)
    with np.load(place / "attention.npz", allow_pickle=False) as saved:
        for kind, weights in maps.weights.items():
            np.testing.assert_array_equal(saved[kind], weights)
        for side in ("source_tokens", "target_tokens", "written_tokens"):
            assert saved[side].tolist() == getattr(maps, side)


def test_each_head_has_a_map_of_its_weights_on_the_scale_0_to_1():
    maps = make_maps()
    figure = build_figure(maps, "cross", layer=2)
    image, (rows, columns) = image_of(figure), maps.weights["cross"].shape[2:]
    assert image.shape[0] == rows
    for head, weights in enumerate(maps.weights["cross"][1]):
        left = (image.shape[1] - columns) // 2 * head
        np.testing.assert_array_equal(image[:, left : left + columns], weights)
        if head:
            assert np.isnan(image[:, left - 1]).all()  # between two maps
    assert figure.axes[0].images[0].get_clim() == (0, 1)
    assert titles(figure) == ["head 1", "head 2", "head 3"]
    assert "layer 2 of 2" in figure.get_suptitle()
    # The control: the other layer is another picture.
    assert not np.array_equal(image[:, :columns], maps.weights["cross"][0, 0])


def test_hostile_tokens_are_drawn_as_text_without_warnings(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = build_figure(make_maps(source=HOSTILE, layers=1), "encoder_self", layer=1)
        figure.savefig(tmp_path / "hostile.png")
    shown = labels(figure.axes[0].yaxis)
    assert shown[:2] == ["$x_1$", "∅"]
    assert shown[3] == "▁مرحبا"
    assert shown[5:8] == ["{\\bf", "a⟨000A⟩b", "␣"]
    assert shown[9] == "x" * 19 + "…"
    assert len(shown) == len(HOSTILE)
    assert not any(label.get_parse_math() for label in figure.axes[0].get_yticklabels())


def test_rows_sum_to_one_after_hiding_and_keep_their_proportions():
    maps = make_maps()
    before = {kind: weights.copy() for kind, weights in maps.weights.items()}
    hidden = hide_end_of_sentence(maps)
    assert hidden.source_tokens == [*SOURCE[:-1]]
    assert hidden.written_tokens == WRITTEN
    for kind, weights in hidden.weights.items():
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
        assert weights.dtype == np.float32
        np.testing.assert_array_equal(maps.weights[kind], before[kind])
    assert hidden.weights["encoder_self"].shape == (2, 3, 5, 5)
    cross = before["cross"]
    ratio = hidden.weights["cross"][..., 0] / hidden.weights["cross"][..., 1]
    np.testing.assert_allclose(ratio, cross[..., 0] / cross[..., 1], rtol=1e-5)
    np.testing.assert_array_equal(hidden.weights["decoder_self"], before["decoder_self"])
    # The control: without renormalising, the rows fall short of one.
    assert cross[..., :-1].sum(-1).mean() < 0.9


def test_one_layer_and_one_head_are_drawn_alone_by_the_kinds_that_have_them(tmp_path):
    maps = attention_examples.make_maps(layers=(2, 3))
    names = ["decoder_self_layer_3_head_4.png", "cross_layer_3_head_4.png"]
    assert draw(maps, tmp_path, layer=3, head=4) == names
    figure = build_figure(maps, "cross", 3, 4)
    np.testing.assert_array_equal(image_of(figure), maps.weights["cross"][2, 3])
    assert titles(figure) == ["head 4"]
    assert kinds_to_draw(maps, Options(layer=3)) == ["decoder_self", "cross"]


def test_a_row_wholly_on_the_end_of_sentence_becomes_zeros():
    maps = make_maps()
    maps.weights["cross"][0, 1, 2] = [0, 0, 0, 0, 0, 1]
    maps.weights["cross"][0, 1, 4] = [0.1, 0, 0.2, 0, 0.1, 0.5]  # and 0.1 on a sink
    hidden = hide_end_of_sentence(maps).weights["cross"]
    np.testing.assert_array_equal(hidden[0, 1, 2], np.zeros(5))
    np.testing.assert_allclose(hidden[0, 1, 4], [0.2, 0, 0.4, 0, 0.2], rtol=1e-6)
    np.testing.assert_allclose(hidden[0, 1, 3].sum(), 1, rtol=1e-6)
