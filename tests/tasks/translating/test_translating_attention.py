"""The attention of a translation is that of the model over the right tokens, drawn and kept."""

from pathlib import Path

import numpy as np
import pytest

from tiny_run import command, refused


def test_attention_weights_are_distributions_over_the_right_tokens(loaded):
    translator, params = loaded
    weights, norms, source, target, *_ = translator.attention(params, "a b c", "d e")
    assert source == ["▁a", "▁b", "▁c", "</s>"]
    assert target == ["<s>", "▁d", "▁e"]
    shapes = {"encoder_self": (1, 2, 4, 4), "decoder_self": (1, 2, 3, 3), "cross": (1, 2, 3, 4)}
    assert {kind: array.shape for kind, array in weights.items()} == shapes
    for array in weights.values():
        np.testing.assert_allclose(array.sum(-1), 1, rtol=1e-5)
        assert (array >= 0).all()
    assert {kind: array.shape for kind, array in norms.items()} == {
        kind: (*shape[:2], shape[3]) for kind, shape in shapes.items()
    }
    assert (np.triu(weights["decoder_self"][0, 0], 1) == 0).all()
    assert (np.triu(weights["encoder_self"][0, 0], 1) > 0).any()  # the control: it looks ahead


@pytest.mark.parametrize("arguments", [["--translation=d e"], ["--hide_eos"]])
def test_attention_draws_and_keeps_the_arrays_of_the_model(tiny, loaded, arguments, tmp_path):
    folder = tiny.copy(tmp_path / "run")
    ended = command("--mode=attention", f"--workdir={folder}", "--sentence=a b c", *arguments)
    assert ended.code == 0, ended.err
    *pictures, page = ended.out.splitlines()
    assert len(pictures) == 3
    opens_hidden = '"end":"hidden"' in Path(page).read_text(encoding="utf-8")
    assert opens_hidden == ("--hide_eos" in arguments)
    saved = np.load(Path(page).parent / "attention.npz")
    translation = arguments[0].partition("=")[2]
    weights, _, source, target, *_ = loaded[0].attention(loaded[1], "a b c", translation or None)
    assert list(saved["target_tokens"]) == target
    assert list(saved["written_tokens"]) == [*target[1:], "</s>"]
    np.testing.assert_allclose(saved["decoder_self"], weights["decoder_self"], atol=1e-6)
    assert list(saved["source_tokens"]) == source
    np.testing.assert_allclose(saved["cross"], weights["cross"], atol=1e-6)


def test_a_sentence_with_nothing_in_it_has_no_attention(tiny):
    arguments = ["--mode=attention", f"--workdir={tiny.workdir}"]
    refused(*arguments, says="--sentence is missing")
    for blank in ("", "  ", "\u200b"):
        refused(*arguments, f"--sentence={blank}", says="--sentence is blank")
