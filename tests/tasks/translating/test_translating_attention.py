"""The attention of a translation is that of the model over the right tokens, drawn and kept."""

from pathlib import Path

import numpy as np

from tiny_run import command, refused


def test_attention_draws_and_keeps_the_arrays_of_the_model(tiny, loaded, tmp_path):
    folder = tiny.copy(tmp_path / "run")
    flags = "--sentence=a b c", "--translation=d e", "--hide_eos"
    ended = command("--mode=attention", f"--workdir={folder}", *flags)
    assert ended.code == 0, ended.err
    *pictures, page = ended.out.splitlines()
    assert len(pictures) == 3
    assert '"end":"hidden"' in Path(page).read_text(encoding="utf-8")
    saved = np.load(Path(page).parent / "attention.npz")
    weights, _, source, target, *_ = loaded[0].attention(loaded[1], "a b c", "d e")
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
