"""A Marian model becomes a run that does all that a run does, or a line says why it cannot be."""

import io
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

import transformer
from tiny_run import command, refused, without_pictures
from transformer.bridges import marian_import
from transformer.data.tokenizer import SPECIAL
from transformer.runs import weights

TEXTS = ["a b c", "d e", "f"]


@pytest.fixture(scope="module")
def given(tiny, tmp_path_factory):
    """The shared run, and its folder as a Marian model."""
    run = transformer.load(tiny.workdir)
    return run, run.export("marian", tmp_path_factory.mktemp("import") / "marian")


@pytest.fixture(scope="module")
def imported(given):
    output = given[1].parent / "run"
    ended = command("--mode=import", f"--input={given[1]}", f"--output={output}")
    assert (ended.code, ended.out) == (0, f"{output}\n")
    return output


def as_in(run):
    """The settings of its search: a model of theirs has others."""
    return {f"decode.{key}": value for key, value in run.config.decode.items()}


def test_an_exported_run_comes_back_and_is_exported_the_same(given, imported, tmp_path):
    run, folder = given
    back = transformer.load(imported, as_in(run))
    assert back.translate(TEXTS) == run.translate(TEXTS)
    assert back.config.model.positions == "split"
    again = back.export("marian", tmp_path / "again")
    names = {path.name for path in folder.iterdir()} - {"README.md"}
    assert names > {"model.safetensors", "vocab.json", "source.spm"}
    for name in names:
        assert (again / name).read_bytes() == (folder / name).read_bytes()
    shutil.copytree(imported, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "marian")  # as of a run that was trained from it
    other = transformer.load(tmp_path / "run").export("marian", tmp_path / "other")
    assert (other / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


@pytest.mark.full
def test_other_ids_and_another_start_are_put_in_our_order(given, tmp_path):
    run, folder = given
    moved = shutil.copytree(folder, tmp_path / "moved")
    names = json.loads((moved / "vocab.json").read_text())
    config = json.loads((moved / "config.json").read_text())
    # As theirs: no <s>, and <pad>, the last one, begins what is written.
    theirs = ["</s>", *(name for name in reversed(names) if name not in ("</s>", "<pad>", "<s>"))]
    rows = [names[name] for name in theirs] + [names["<s>"]]
    ids = {"vocab_size": len(rows), "decoder_vocab_size": len(rows), "eos_token_id": 0}
    ids |= {"pad_token_id": len(theirs), "decoder_start_token_id": len(theirs)}
    (moved / "config.json").write_text(json.dumps(config | ids))
    (moved / "vocab.json").write_text(json.dumps({n: i for i, n in enumerate([*theirs, "<pad>"])}))
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    for name in arrays:
        if "embed_tokens" in name or name in ("model.shared.weight", "lm_head.weight"):
            arrays[name] = arrays[name][rows]
    arrays["final_logits_bias"] = arrays["final_logits_bias"][:, rows]
    safetensors.numpy.save_file(arrays, moved / "model.safetensors", {"format": "pt"})
    back = transformer.load(transformer.import_marian(moved, tmp_path / "run"), as_in(run))
    assert back.config.model.output_bias
    assert back.translate(TEXTS) == run.translate(TEXTS)
    for ours, before in zip(*(each.score(TEXTS, TEXTS) for each in (back, run)), strict=True):
        np.testing.assert_allclose(ours.log_prob, before.log_prob, atol=0.2)  # one token is gone
    again = back.export("marian", tmp_path / "again") / "model.safetensors"
    for name, array in safetensors.numpy.load_file(again).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_an_export_has_of_an_imported_model_the_files_that_were_imported(given, imported, tmp_path):
    run = shutil.copytree(imported, tmp_path / "run")
    for name in ("model.safetensors", "pytorch_model.bin", "modeling.py", "README.md"):
        (run / "marian" / name).write_bytes(b"planted")
    out = transformer.load(run).export("marian", tmp_path / "out")
    assert {path.name for path in out.iterdir()} == {path.name for path in given[1].iterdir()}
    assert all(path.read_bytes() != b"planted" for path in out.iterdir())
    changed(run / "marian", pad_token_id=1)
    flags = f"--workdir={run}", "--mode=export", "--format=marian", f"--output={tmp_path / 'new'}"
    refused(*flags, says="marian/config.json is not what was written: import the model again")
    (run / "marian" / "digests.json").unlink()
    refused(*flags, says="marian/digests.json is missing: import the model again, or delete")
    assert not (tmp_path / "new").exists()


def test_characters_that_only_the_vocabulary_has_are_read_as_there(tmp_path):
    letters = [*"abcdefg", *(f"{x}{y}" for x in "abc" for y in "defg")]
    arguments = {"model_writer": (model := io.BytesIO()), "vocab_size": 20, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(letters)] * 20), hard_vocab_limit=False, **arguments
    )
    (tmp_path / "source.spm").write_bytes(model.getvalue())
    pieces = [piece.piece for piece in ModelProto.FromString(model.getvalue()).pieces][3:]
    names = [*SPECIAL.values(), *pieces, "ü", "字字", "aü"]
    vocabulary = marian_import.Vocabulary(names, [*range(len(names))])
    tokenizer = marian_import._make_tokenizer(tmp_path / "source.spm", vocabulary)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    for text in ("ad ü", "büg", "字字 a", "aü ae", "ö 字 be", "üü"):
        expected = [
            names.index(name) if name in names else 1 for name in theirs.encode_as_pieces(text)
        ]
        assert tokenizer.encode([text]) == [expected]


@pytest.mark.full
def test_an_import_is_scored_ranked_and_trained_on(imported, tmp_path):
    folder = shutil.copytree(imported, tmp_path / "run")
    pairs = [f"{'abcdefg'[i % 7]} {'hijkl'[i % 5]} {'mnop'[i // 35 % 4]}\n" for i in range(140)]
    text = tmp_path / "text.en"
    text.write_text("".join(pairs))
    shutil.copyfile(text, tmp_path / "text.de")
    files = f"--input={text}", f"--references={tmp_path / 'text.de'}"
    for mode in ("evaluate", "intervene"):
        ended = command(f"--workdir={folder}", f"--mode={mode}", *files)
        assert ended.code == 0, (mode, ended.err)
    assert list(folder.glob("figures/interventions/*"))
    arguments = (
        *("--config=configs/own_text.py", f"--config.train.init_from={folder}"),
        *(f"--workdir={tmp_path / 'next'}", f"--config.data.path={tmp_path}"),
        *("--config.data.train_source=text.en", "--config.data.train_target=text.de"),
        *("--config.train.steps=2", "--config.train.epochs=0.0"),
        *("--config.data.remove_copies=False", f"--config.data.cache_dir={tmp_path / 'cache'}"),
        "--config.evaluate.perturbed_sentences=0",
    )
    with without_pictures():
        ended = command(*arguments)
    assert ended.code == 0, ended.err
    before, after = (
        safetensors.numpy.load_file(path / weights.WEIGHTS) for path in (folder, tmp_path / "next")
    )
    assert before.keys() == after.keys()
    assert all(not np.array_equal(before[name], after[name]) for name in before if "norm" in name)


def changed(folder, **keys):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def only_a_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def another_vocabulary(folder):
    path = folder / "vocab.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"more": 1000}))


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def bpe_of_one_side(folder):
    model = ModelProto.FromString((folder / "source.spm").read_bytes())
    model.trainer_spec.model_type = model.trainer_spec.BPE
    del model.pieces[-1]
    (folder / "source.spm").write_bytes(model.SerializeToString())


def not_a_number(folder):
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    arrays["model.encoder.layers.0.fc1.bias"] *= np.nan
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")


BAD = {
    "has scale_embedding=false, which is not computed here: choose a model with true": (
        lambda folder: changed(folder, scale_embedding=False)
    ),
    "q_proj.weight of shape (16, 16), and config.json says (18, 18): copy both from one model": (
        lambda folder: changed(folder, d_model=18)
    ),
    "pad_token_id=99, which is 'no token' in vocab.json instead of <pad>, and not computed": (
        lambda folder: changed(folder, pad_token_id=99)
    ),
    "has NaN or infinite numbers in model.encoder.layers.0.fc1.bias": not_a_number,
    "tokens, and config.json says": another_vocabulary,
    "pytorch_model.bin alone, which may run any code: where you trust it": only_a_pickle,
    "model.safetensors is damaged": cut,
    "is of kind bpe and lacks": bpe_of_one_side,
}


@pytest.mark.parametrize("says", BAD)
def test_what_cannot_be_imported_is_said_in_a_line(given, tmp_path, says):
    folder, output = shutil.copytree(given[1], tmp_path / "model"), tmp_path / "runs" / "new"
    BAD[says](folder)
    refused("--mode=import", f"--input={folder}", f"--output={output}", says=says)
    assert not output.exists()


def test_nothing_is_written_over(given, tmp_path):
    flags = "--mode=import", f"--input={given[1]}"
    refused(*flags, says="needs --input, the folder of a model, and --output, the run to write")
    refused(*flags, f"--output={tmp_path}", says=f"{tmp_path} is there already: name a new folder")
