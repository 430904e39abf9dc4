"""What is exported does what the run does, or a line says why it cannot be."""

import errno
import json
import os
import re
import shutil
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import safetensors.numpy
import sentencepiece

import transformer
from configs import base
from places import ROOT
from tiny_run import command, refused
from transformer.bridges import browser, ctranslate2, layers, marian, onnx
from transformer.bridges.formats import Export, _write_card
from transformer.data.characters import canonicalize

TEXTS = ["a b c", "d e", "f"]


def export(folder, *flags):
    return command(f"--workdir={folder}", "--mode=export", *flags)


@pytest.mark.full
def test_a_bundle_does_what_the_run_does_without_what_only_a_training_needs(tiny, tmp_path):
    bundle = tmp_path / "given" / "bundle"
    ended = export(tiny.workdir, f"--output={bundle}")
    assert (ended.code, ended.out) == (0, f"{bundle}\n")
    names = {path.name for path in bundle.iterdir()}
    assert {"README.md", "config.json", "tokenizer.model", "weights.safetensors"} <= names
    assert not names & {"checkpoints", "trained_on.npz", "metrics.jsonl", "held_out"}
    run, given = transformer.load(tiny.workdir), transformer.load(bundle)
    assert given.translate(TEXTS, num_best=2) == run.translate(TEXTS, num_best=2)
    assert given.results == run.results
    card = (bundle / "README.md").read_text()
    assert "pipeline_tag: translation" in card
    assert "| BLEU |" in card
    start = f"--config.train.init_from={bundle}", f"--workdir={tmp_path / 'next'}"
    ended = command(f"--config={tiny.config}", *start, "--config.train.steps=1")
    assert ended.code == 0, ended.err


def test_a_bundle_in_float16_has_half_the_bytes_and_rounded_weights(tiny, tmp_path):
    run = transformer.load(tiny.workdir)
    bundles = [run.export(name, tmp_path / name) for name in ("bundle", "bundle_float16")]
    whole, half = (folder / "weights.safetensors" for folder in bundles)
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    exact, rounded = (transformer.load(folder).trained.variables for folder in bundles)
    for a, b in zip(*map(jax.tree.leaves, (exact, rounded)), strict=True):
        assert b.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=2**-11, atol=2**-24)


@pytest.mark.parametrize("name", ["bundle", "marian", "onnx"])
def test_a_card_names_the_tags_the_length_and_what_is_left_out_of_a_text(name, tmp_path):
    config = base.get_config()
    config.data.corpora = ({"name": "en_de", "source_tag": "<2de>"}, {"name": "en_en"})
    config.model.max_length = 77
    model = SimpleNamespace(config=config.model)
    _write_card(Export(tmp_path, [1], config, model, None, {}, "translations"), name, tmp_path)
    card = " ".join((tmp_path / "README.md").read_text().split())
    assert "begins with a tag: `<2de>` for en_de." in card
    assert "at most 77 tokens" in card
    for pattern in re.findall(r're\.sub\(r"(.*?)", "", text\)', card):
        text = "a\u200b b\ufeff\x00\xadc\u2060"
        assert re.sub(pattern, "", text) == canonicalize(text) == "a bc"
    assert ("re.sub" in card) is (name != "bundle")


def test_a_full_disk_is_that_of_the_export_and_nothing_is_left(tiny, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    ended = export(tiny.workdir, f"--output={tmp_path / 'out'}")
    assert (ended.code, os.listdir(tmp_path)) == (2, [])
    assert ended.err.splitlines()[-1].startswith(f"error: {tmp_path / 'out/weights.safetensors'}: ")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("weights.json", "weights.json is not what was written: evaluate it, then export it"),
        ("tokenizer.json", "tokenizer.json cannot be read"),
        ("weights.safetensors", "weights.safetensors is missing or not what was written"),
    ],
)
def test_a_damaged_file_of_a_run_is_in_no_bundle(tiny, tmp_path, name, says):
    run = tiny.copy(tmp_path / "run")
    data = bytearray((run / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run / name).write_bytes(data)
    refused(f"--workdir={run}", "--mode=export", f"--output={tmp_path / 'new'}", says=says)
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_exported_is_said_in_a_line(tiny, tmp_path, monkeypatch):
    flags = f"--workdir={tiny.workdir}", "--mode=export"
    refused(*flags, says="--mode=export needs --output, the folder to write")
    refused(*flags, f"--output={tmp_path}", says=f"{tmp_path} is there already: name a new folder")
    output = f"--output={tmp_path / 'new'}"
    beam = "--config.decode.beam_size=3"
    refused(*flags, output, beam, says="config.decode.beam_size is another than the run's")
    refused(*flags, output, "--format=onxn", says="format='onxn' is unknown: choose one of bundle")
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    says = "this format needs a package: pip install flatbuffers"
    refused(*flags, output, "--format=stablehlo", says=says)
    assert list(tmp_path.iterdir()) == []  # nothing is left of what failed


def test_a_marian_folder_has_the_tokens_and_the_tables_of_the_run(tiny, tmp_path):
    run = transformer.load(tiny.workdir)
    folder = run.export("marian", tmp_path / "marian")
    vocabulary = json.loads((folder / "vocab.json").read_text())
    reader = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    for text in TEXTS:
        ids = [vocabulary[piece] for piece in reader.encode(text, out_type=str)]
        assert [ids] == run.trained.predictor.source_tokenizer.encode([text])
    config = json.loads((folder / "config.json").read_text())
    assert (config["decoder_start_token_id"], config["vocab_size"]) == (2, len(vocabulary))
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    [(_, ours)] = run.embeddings.items()
    width = ours.vectors.shape[1]
    order = [*range(0, width, 2), *range(1, width, 2)]  # sines first
    for name in ("model.shared", "lm_head"):
        np.testing.assert_array_equal(arrays[f"{name}.weight"], ours.vectors[:, order])


def test_the_documentation_lists_what_the_formats_compute():
    # Of ctranslate2, marian, onnx and html.
    formats = ctranslate2.EXPRESSIBLE, marian.EXPRESSIBLE, onnx.EXPRESSIBLE, layers.EXPRESSIBLE

    def values(expressible, key):
        return ", ".join(f"`{value}`" for value in expressible.get(key, ())) or "any"

    keys = dict.fromkeys(key for each in formats for key in each)
    rows = [[f"`model.{key}`", *(values(each, key) for each in formats)] for key in keys]
    added, alone, order, summed, drawn = (
        ", ".join(f"`{name}`" for name in names)
        for names in (
            *(ctranslate2.ADDED, ctranslate2.ALONE),
            *(marian.POSITIONS, onnx.POSITIONS, browser.POSITIONS),
        )
    )
    of_ctranslate2 = f"{added} and their sums; {alone}"
    sums = of_ctranslate2, order, *(f"{names} and their sums" for names in (summed, drawn))
    lines = [f"| {' | '.join(row)} |" for row in [*rows, ["`model.positions`", *sums]]]
    assert "\n".join(lines) in (ROOT / "docs/export.md").read_text()
