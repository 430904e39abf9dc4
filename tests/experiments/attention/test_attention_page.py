"""The attention explorer holds the arrays bit for bit, and stays small whatever it is given."""

import base64
import json
import re

import numpy as np
import pytest
from attention_examples import SOURCE, TARGET, make_maps

from experiments.attention import draw, heat_maps
from experiments.attention.draw import Example, draw_attention, fit, text_folder, write_explorer
from experiments.process.modes import Options
from experiments.results.outputs import cross_attention
from log_lines import heard
from tiny_run import refused
from transformer.analysis.attention import Attention
from transformer.runs.run import Run, TrainedRun


def page_data(path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def decoded(array: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(array["float32"]), "<f4").reshape(array["shape"])


def example(*maps: Attention) -> Example:
    return Example(tuple(f"step {i + 1}" for i in range(len(maps))), maps)


def write(path, given, tracked=(), **options) -> tuple[dict, list[str]]:
    with heard() as said:
        assert write_explorer(path, given, tracked, Options(**options)) == path
    return page_data(path), said


def characters(examples) -> int:
    return sum(
        len(x["float32"])
        for each in examples
        for frame in draw._encode(each)["frames"]
        for arrays in (frame["weights"], frame["norms"])
        for x in arrays.values()
    )


def test_the_page_holds_the_arrays_bit_for_bit_and_the_tokens(tmp_path):
    first, last = make_maps(), make_maps(seed=8)
    page = tmp_path / "new" / "explorer.html"
    data, said = write(page, example(last), [example(first, last)])
    assert said == data["notes"] == []
    for frame, maps in [
        (data["examples"][0]["frames"][0], last),
        *zip(data["examples"][1]["frames"], (first, last), strict=True),
    ]:
        for name, arrays in (("weights", maps.weights), ("norms", maps.value_norms)):
            assert list(frame[name]) == ["encoder_self", "decoder_self", "cross"]
            for kind, array in arrays.items():
                np.testing.assert_array_equal(decoded(frame[name][kind]), array)
    assert data["examples"][0]["source"] == list(SOURCE)
    assert data["examples"][0]["target"] == list(TARGET)
    assert data["examples"][0]["written"] == [*TARGET[1:], "</s>"]
    assert data["examples"][0]["title"] == "He admired her."
    assert [frame["label"] for frame in data["examples"][1]["frames"]] == ["step 1", "step 2"]
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg", "", page.read_text("utf-8"))


def test_a_text_of_five_hundred_tokens_is_cut_with_a_message(tmp_path):
    source = (*(f"▁w{i}" for i in range(499)), "</s>")
    maps = make_maps(source, ("<s>", "▁a"), layers=(1, 1), heads=3)
    path = tmp_path / "explorer.html"
    data, said = write(path, example(maps))
    assert 1_700_000 < path.stat().st_size < 2_000_000
    shown = data["examples"][0]
    kept = len(shown["source"])
    assert 300 < kept < 499
    assert shown["omitted"] == {"source": 500 - kept, "target": 0}
    assert shown["source"] == [*source[:kept]]
    assert said == data["notes"]
    assert f"leaves out the last {500 - kept} source tokens that the model reads," in said[0]
    frame = shown["frames"][0]
    [w, norms] = [decoded(frame[name]["encoder_self"]) for name in ("weights", "norms")]
    np.testing.assert_array_equal(w, maps.weights["encoder_self"][:, :, :kept, :kept])
    np.testing.assert_array_equal(norms, maps.value_norms["encoder_self"][..., :kept])
    cross = decoded(frame["weights"]["cross"])
    np.testing.assert_array_equal(cross, maps.weights["cross"][..., :kept])


def test_checkpoints_are_thinned_evenly_between_the_first_and_the_last(monkeypatch):
    frames = [make_maps(seed=i) for i in range(11)]
    one = characters([example(frames[0])])
    for room, wanted in [(12, [*range(11)]), (6, [0, 2, 5, 8, 10]), (3, [0, 10]), (1, None)]:
        monkeypatch.setattr(draw, "MAX_CHARACTERS", room * one)
        shown, said = fit(example(frames[0]), [example(*frames)])
        assert characters(shown) <= room * one
        assert len(shown) == (1 if wanted is None else 2)
        assert len(said) == (room < 12)
        if wanted is not None:
            assert list(shown[1].labels) == [f"step {i + 1}" for i in wanted]
            assert all(a is frames[i] for a, i in zip(shown[1].frames, wanted, strict=True))


@pytest.mark.parametrize(
    ("options", "opens"),
    [
        ({"layer": 3}, ("cross", 3, 1, "matrix", "shown")),
        ({"head": 4, "hide_eos": True}, ("cross", 1, 4, "matrix", "hidden")),
    ],
)
def test_the_page_opens_where_it_is_asked_to(options, opens, tmp_path):
    data, _ = write(tmp_path / "explorer.html", example(make_maps()), **options)
    assert tuple(data["open"].values()) == opens


# -- the command


def test_every_picture_of_a_translation_names_the_same_row_by_the_same_token(tiny, tmp_path):
    """Its rows are compared with those that the model computes step by step as it writes."""
    run = Run(tiny.workdir).load_trained()
    translator, variables = run.predictor, run.variables
    seen = translator.attention(variables, "a b c", "d e f")
    rows = ["▁d", "▁e", "▁f", "</s>"]
    data, _ = write(tmp_path / "explorer.html", example(seen))
    [reported] = cross_attention(TrainedRun(translator, variables), ["a b c"], ["d e f"])
    figure = heat_maps.build_figure(seen, "cross", layer=1)
    assert data["kinds"]["cross"]["queries"] == "written"
    assert data["examples"][0]["written"] == rows
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()][:4] == rows
    assert reported.rows == rows
    mean = seen.weights["cross"][-1].mean(axis=0)
    np.testing.assert_allclose(reported.weights, mean, atol=0.011)
    # A row is that of its token: it does not change with the token, which is not yet read.
    other = translator.attention(variables, "a b c", "d e g").weights["cross"]
    np.testing.assert_allclose(other[:, :, 2], seen.weights["cross"][:, :, 2], atol=1e-6)
    assert not np.allclose(other[:, :, 3], seen.weights["cross"][:, :, 3], atol=1e-6)


def test_every_text_and_translation_has_a_folder_of_its_own_and_always_the_same(tmp_path):
    texts = ("▁wörd " * 20 + "one", "▁wörd " * 20 + "two", "?!", "", "\ud800", "a.b", "a b")
    asked = [(text, given) for text in texts for given in (None, "", "x")]
    places = [text_folder(tmp_path, *each) for each in asked]
    assert len(set(places)) == len(asked)
    assert places == [text_folder(tmp_path, *each) for each in asked]
    assert re.fullmatch(r"figures/attention_a_b_[0-9a-f]{6}", str(places[-1].relative_to(tmp_path)))


def test_a_layer_or_head_that_does_not_exist_is_answered_with_the_range(tiny):
    arguments = ["--mode=attention", f"--workdir={tiny.workdir}", "--sentence=a b"]
    says = "--layer=2 --head=1 does not exist: this model has layers 1 to 1 and heads 1 to 2"
    refused(*arguments, "--translation=b", "--layer=2", says=says)
    refused(*arguments, "--head=two", says="--head=two")


def test_the_page_names_the_checkpoints_that_the_model_is_the_mean_of(tmp_path):
    seen = make_maps(("▁a", "</s>"), ("<s>",))
    labels = {(20,): "step 20", (1000, 20): "mean of the checkpoints of steps 20, 1,000"}
    for steps, label in labels.items():
        options = Options(layer=3, head=1)
        *_, page = draw_attention(seen, steps, tmp_path, tmp_path, options)
        assert page_data(page)["examples"][0]["frames"][0]["label"] == label
