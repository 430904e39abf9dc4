"""The pictures of attention show the arrays and tokens they were given, whatever these are."""

import warnings

import attention_examples
import numpy as np
import pytest
from attention_examples import SOURCE, TARGET
from matplotlib.image import imread

from experiments.attention.draw import draw_attention, hide_end_of_sentence
from experiments.attention.explorer import kinds_to_draw
from experiments.attention.heat_maps import build_figure
from experiments.process.modes import Options
from transformer.analysis.attention import KINDS, Attention

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


def test_a_picture_is_written_for_every_kind_and_layer_in_order(tmp_path):
    place = tmp_path / "new" / "folder"
    names = draw(make_maps(), place)
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


def test_the_saved_arrays_and_tokens_equal_those_given(tmp_path):
    maps = make_maps(source=("", "$", "🤖", "</s>"))
    draw(maps, tmp_path / "new" / "folder")
    with np.load(tmp_path / "new/folder/attention.npz", allow_pickle=False) as saved:
        for kind, weights in maps.weights.items():
            np.testing.assert_array_equal(saved[kind], weights)
        assert saved["source_tokens"].tolist() == maps.source_tokens
        assert saved["target_tokens"].tolist() == maps.target_tokens
        assert saved["written_tokens"].tolist() == maps.written_tokens == WRITTEN


@pytest.mark.parametrize("kind", KINDS)
def test_each_head_has_a_map_of_its_weights_on_the_scale_0_to_1(kind):
    maps = make_maps()
    figure = build_figure(maps, kind, layer=2)
    image, (rows, columns) = image_of(figure), maps.weights[kind].shape[2:]
    assert image.shape[0] == rows
    for head, weights in enumerate(maps.weights[kind][1]):
        left = (image.shape[1] - columns) // 2 * head
        np.testing.assert_array_equal(image[:, left : left + columns], weights)
        if head:
            assert np.isnan(image[:, left - 1]).all()  # between two maps
    assert figure.axes[0].images[0].get_clim() == (0, 1)
    assert titles(figure) == ["head 1", "head 2", "head 3"]
    assert "layer 2 of 2" in figure.get_suptitle()
    # The control: the other layer is another picture.
    assert not np.array_equal(image[:, :columns], maps.weights[kind][0, 0])


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "titles"),
    [
        ("encoder_self", [*SOURCE], [*SOURCE], ["token read (keys)", "token (queries)"]),
        ("decoder_self", WRITTEN, [*TARGET], ["token read (keys)", "token written (queries)"]),
        ("cross", WRITTEN, [*SOURCE], ["source token read (keys)", "token written (queries)"]),
    ],
)
def test_rows_are_named_by_what_is_written_and_columns_by_what_is_read(kind, rows, columns, titles):
    first = build_figure(make_maps(), kind, layer=1).axes[0]
    assert labels(first.yaxis) == rows
    assert labels(first.xaxis) == 3 * columns
    assert [first.get_xlabel(), first.get_ylabel()] == titles
    # The first query is on top, where the image has its first row.
    assert first.get_ylim()[0] > first.get_ylim()[1]


@pytest.mark.parametrize(("source", "heads"), [(HOSTILE, 5), (["▁long"] * 83, 1), (["</s>"], 1)])
def test_no_text_leaves_the_figure_or_overlaps_another(source, heads):
    figure = build_figure(make_maps(source, heads=heads, layers=1), "cross", layer=1)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [*figure.texts]
    for axes in (figure.axes[0], *figure.axes[0].child_axes):
        texts += [*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()]
        texts += [axes.xaxis.label, axes.yaxis.label]
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
    for i, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        # Boxes include the leading of a line, hence a little less than the whole.
        inner = box.shrunk(0.85, 0.85)
        assert not any(inner.overlaps(other.shrunk(0.85, 0.85)) for other in boxes[:i])


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
    hidden = hide_end_of_sentence(maps).weights["cross"]
    np.testing.assert_array_equal(hidden[0, 1, 2], np.zeros(5))
    np.testing.assert_allclose(hidden[0, 1, 3].sum(), 1, rtol=1e-6)
