"""The pictures of attention show the arrays and tokens they were given, whatever these are."""

import warnings

import attention_examples
import numpy as np
import pytest
from matplotlib.image import imread

from experiments.attention.draw import draw_attention, hide_end_of_sentence
from experiments.attention.explorer import kinds_to_draw
from experiments.attention.heat_maps import build_figure
from experiments.process.options import Options
from transformer.analysis.attention import KINDS, Attention

SOURCE = ["▁He", "▁admir", "ed", "▁her", "</s>"]
TARGET = ["<s>", "▁Он", "▁восхищ", "ался", "▁ею", "▁.", "!"]
WRITTEN = [*TARGET[1:], "</s>"]
HOSTILE = ("$x_1$", "", "🙂🤖", "▁مرحبا", "中文", "{\\bf", "a\nb", " ", "\u0301", "x" * 300, "</s>")


def make_maps(source=SOURCE, target=TARGET, heads=3, layers=2, kinds=KINDS) -> Attention:
    rng = np.random.default_rng(7)

    def rows(queries, keys):
        scores = rng.random((layers, heads, queries, keys)).astype(np.float32)
        return scores / scores.sum(-1, keepdims=True)

    m, n = len(source), len(target)
    shapes = {"encoder_self": (m, m), "decoder_self": (n, n), "cross": (n, m)}
    weights = {kind: rows(*shapes[kind]) for kind in kinds}
    return Attention(weights, {}, list(source), list(target))


def draw(seen, place, **options):
    """The names of the pictures, without the explorer."""
    *paths, explorer = draw_attention(seen, [20], place, place, Options(**options))
    assert explorer == place / "explorer.html"
    assert {path.parent for path in paths} == {place}
    return [path.name for path in paths]


def panels(figure):
    return figure.axes[:-1]  # the last is the colour bar


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
        assert saved["target_tokens"].tolist() == maps.target_tokens == TARGET
        assert saved["written_tokens"].tolist() == maps.written_tokens == WRITTEN


@pytest.mark.parametrize("kind", KINDS)
def test_each_head_has_a_panel_that_shows_its_weights_on_the_scale_0_to_1(kind):
    maps = make_maps()
    figure = build_figure(maps, kind, layer=2)
    assert len(panels(figure)) == 3
    for head, axes in enumerate(panels(figure)):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), maps.weights[kind][1, head])
        assert image.get_clim() == (0, 1)
        assert axes.get_title() == f"head {head + 1}"
    assert "layer 2 of 2" in figure.get_suptitle()
    # The control: the other layer is another picture.
    assert not np.array_equal(image.get_array(), maps.weights[kind][0, 2])


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "titles"),
    [
        ("encoder_self", SOURCE, SOURCE, ["token read (keys)", "token (queries)"]),
        ("decoder_self", WRITTEN, TARGET, ["token read (keys)", "token written (queries)"]),
        ("cross", WRITTEN, SOURCE, ["source token read (keys)", "token written (queries)"]),
    ],
)
def test_rows_are_named_by_what_is_written_and_columns_by_what_is_read(kind, rows, columns, titles):
    figure = build_figure(make_maps(), kind, layer=1)
    first = panels(figure)[0]
    assert labels(first.yaxis) == rows
    assert labels(first.xaxis) == columns
    assert [text.get_text() for text in figure.texts if text is not figure._suptitle] == titles
    # The first query is on top, where the image has its first row.
    assert first.get_ylim()[0] > first.get_ylim()[1]


@pytest.mark.parametrize(("source", "heads"), [(HOSTILE, 5), (["▁long"] * 83, 1), (["</s>"], 1)])
def test_no_text_leaves_the_figure_or_overlaps_another(source, heads):
    figure = build_figure(make_maps(source, heads=heads, layers=1), "cross", layer=1)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [*figure.texts, *(axes.title for axes in panels(figure))]
    for axes in figure.axes:
        texts += [*axes.get_xticklabels(), *axes.get_yticklabels()]
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
    shown = labels(panels(figure)[0].yaxis)
    assert shown[:2] == ["$x_1$", "∅"]
    assert shown[3] == "▁مرحبا"
    assert shown[5:8] == ["{\\bf", "a⟨000A⟩b", "␣"]
    assert shown[9] == "x" * 19 + "…"
    assert len(shown) == len(HOSTILE)
    assert not any(label.get_parse_math() for label in panels(figure)[0].get_yticklabels())


def test_of_five_hundred_tokens_a_cell_is_the_largest_of_a_square_and_stands_on_its_tokens():
    weights = np.full((1, 1, 7, 503), 0.001, np.float32)
    weights[0, 0, 5, 402], weights[0, 0, 6, 502] = 0.9, 0.7
    source = [*(f"▁w{i}" for i in range(502)), "</s>"]
    figure = build_figure(Attention({"cross": weights}, {}, source, TARGET), "cross", layer=1)
    [axes] = panels(figure)
    assert figure.get_suptitle().endswith("(a cell: the largest of 4 × 4 weights)")
    image = axes.images[0]
    found = image.get_array()
    assert found.shape == (2, 126)
    assert (found[1, 100], found[1, 125]) == (np.float32(0.9), np.float32(0.7))
    assert (found > 0.5).sum() == 2
    # In the axes' units, tokens, the cell spans those of its square, and none is beyond the last.
    left, right, bottom, top = image.get_extent()
    assert left + 100 * (right - left) / 126 <= 402 <= left + 101 * (right - left) / 126
    assert top + (bottom - top) / 2 <= 5
    assert axes.get_xlim() == (-0.5, 502.5)
    assert axes.get_ylim() == (6.5, -0.5)
    assert labels(axes.xaxis)[1] == source[int(axes.get_xticks()[1])]
    # The control: with as many cells as tokens, nothing is taken together.
    assert "largest" not in build_figure(make_maps(), "cross", layer=1).get_suptitle()


def test_rows_sum_to_one_after_hiding_and_keep_their_proportions():
    maps = make_maps()
    before = {kind: weights.copy() for kind, weights in maps.weights.items()}
    hidden = hide_end_of_sentence(maps)
    assert hidden.source_tokens == SOURCE[:-1]
    assert (hidden.target_tokens, hidden.written_tokens) == (TARGET, WRITTEN)
    for kind, weights in hidden.weights.items():
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
        assert weights.dtype == np.float32
        np.testing.assert_array_equal(maps.weights[kind], before[kind])
    assert hidden.weights["encoder_self"].shape == (2, 3, 4, 4)
    cross = before["cross"]
    ratio = hidden.weights["cross"][..., 0] / hidden.weights["cross"][..., 1]
    np.testing.assert_allclose(ratio, cross[..., 0] / cross[..., 1], rtol=1e-5)
    np.testing.assert_array_equal(hidden.weights["decoder_self"], before["decoder_self"])
    # The control: without renormalising, the rows fall short of one.
    assert (cross[..., :-1].sum(-1) < 0.999).all()


def test_one_layer_and_one_head_are_drawn_alone_by_the_kinds_that_have_them(tmp_path):
    maps = attention_examples.make_maps(layers=(2, 3))
    names = ["decoder_self_layer_3_head_4.png", "cross_layer_3_head_4.png"]
    assert draw(maps, tmp_path, layer=3, head=4) == names
    [axes] = panels(build_figure(maps, "cross", 3, 4))
    np.testing.assert_array_equal(axes.images[0].get_array(), maps.weights["cross"][2, 3])
    assert axes.get_title() == "head 4"
    assert kinds_to_draw(maps, Options(layer=3)) == ["decoder_self", "cross"]


def test_a_row_wholly_on_the_end_of_sentence_becomes_zeros():
    maps = make_maps()
    maps.weights["cross"][0, 1, 2] = [0, 0, 0, 0, 1]
    hidden = hide_end_of_sentence(maps).weights["cross"]
    np.testing.assert_array_equal(hidden[0, 1, 2], np.zeros(4))
    np.testing.assert_allclose(hidden[0, 1, 3].sum(), 1, rtol=1e-6)
