"""Captions of scenes, through the command line and in Python."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import transformer
from tiny_captions import train_captions
from tiny_run import command, refused
from transformer.data.pairs import LabelledPicture
from transformer.data.pictures.patches import store_pictures
from transformer.errors import UserError
from transformer.model.vision.inputs import from_patches
from transformer.runs import workdir
from transformer.tasks.captioning import CaptionTask


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    train_captions(folder)
    return folder


@pytest.fixture(scope="module")
def photos(folder):
    """The first scenes of the test set as files."""
    config = workdir.load_config(folder / "run")
    reader = CaptionTask.from_folder(folder / "run", config).predictor.source_tokenizer
    paths = []
    for number in range(2):
        patches = reader.encode([f"scene-test-{number}"])[0]
        # The digits are a repetition, which a caption may have if its source is a text.
        paths.append(folder / f"photo 111{number}.png")
        Image.fromarray(from_patches(patches, reader.size)).save(paths[-1])
    return paths


def lines_of(folder, name):
    return (folder / "run/translations" / name).read_text().splitlines()


def test_a_picture_file_is_described_as_the_scene_that_was_scored(folder, photos):
    stdin = f"{photos[0]}\n\n{photos[1]}\n".encode()
    ended = command(f"--workdir={folder / 'run'}", "--mode=caption", stdin=stdin)
    first, second = lines_of(folder, "test.txt")[:2]
    assert ended.out.split("\n")[:3] == [first, "", second]
    run = transformer.load(folder / "run")
    assert run.caption(map(str, photos)) == [first, second]
    best = run.caption([str(photos[0])], num_best=3)[0]
    assert best[0].text == first
    assert len({each.text for each in best}) == len(best) > 1


def test_scores_are_those_of_the_texts_and_of_the_search(folder, photos):
    results = json.loads((folder / "run/results.json").read_text())["test"]
    references, captions = lines_of(folder, "test.reference.txt"), lines_of(folder, "test.txt")
    same = [a == b for a, b in zip(references, captions, strict=True)]
    assert results["exact_match"] == pytest.approx(100 * np.mean(same))
    assert all(line.startswith("a ") and " and a " in line for line in references)
    trained = transformer.load(folder / "run").trained
    sources = [str(path) for path in photos]
    [(log_prob, tokens), _] = trained.predictor.score(trained.variables, sources, captions[:2])
    found = lines_of(folder, "test.scores.tsv")[0].split("\t")
    assert float(found[0]) == pytest.approx(log_prob, abs=2e-3)
    assert int(found[1]) == tokens


def test_batches_of_training_are_those_of_the_model(folder):
    config = workdir.load_config(folder / "run")
    task = CaptionTask(config, folder=folder / "run")
    batch, corpus = task.plan[0], task.text.corpus
    _, numbers = task.plan.indices(0)
    patches = [corpus.source.patches[corpus.source.pictures[i]] for i in numbers]
    captions = [corpus.target[i].tolist() for i in numbers]
    rows, length = batch.target.shape
    expected = task.predictor.make_batch(patches, captions, rows, length)
    np.testing.assert_array_equal(batch.source.patches, expected.source.patches)
    np.testing.assert_array_equal(batch.target, expected.target)
    np.testing.assert_array_equal(batch.labels, expected.labels)


@pytest.mark.full
def test_attention_of_each_word_is_drawn_over_the_picture(folder, photos):
    ended = command(f"--workdir={folder / 'run'}", "--mode=attention", f"--picture={photos[0]}")
    assert ended.code == 0, ended.err
    files = {Path(line).name: Path(line) for line in ended.out.splitlines()}
    assert {"words_over_picture.png", "cross_layer_1.png", "explorer.html"} <= files.keys()
    assert "data:image/png;base64," in files["explorer.html"].read_text()
    arrays = np.load(files["explorer.html"].with_name("attention.npz"))
    assert arrays["cross"].shape[-1] == len(arrays["source_tokens"]) == 17
    np.testing.assert_allclose(arrays["cross"].sum(axis=-1), 1, atol=1e-5)


def test_two_held_out_pictures_of_one_name_are_refused(folder):
    reader = transformer.load(folder / "run").trained.predictor.source_tokenizer
    look, size = reader.look, reader.size
    black, white = (np.full((1, look.side, look.side, look.channels), x, "u1") for x in (0, 255))
    item = LabelledPicture(0, "1.png", "", "a thing")
    reader.know(["1.png", "1.png"], store_pictures([item, item], black, size))  # two captions
    with pytest.raises(UserError, match=r"two held-out pictures have the name '1\.png': rename"):
        reader.know(["1.png"], store_pictures([item], white, size))


@pytest.mark.full
def test_a_table_of_other_pictures_is_scored(folder, photos):
    captions = lines_of(folder, "test.reference.txt")[:2]
    rows = [f'{path.name},"{text}"\n' for path, text in zip(photos, captions, strict=True)]
    (folder / "other.csv").write_text("picture,text\n" + "".join(rows))
    ended = command(
        f"--workdir={folder / 'run'}", "--mode=evaluate", f"--input={folder / 'other.csv'}"
    )
    assert ended.code == 0, ended.err
    scores = json.loads((folder / "run/evaluations/other/results.json").read_text())["test"]
    assert scores["sentences"] == 2
    written = (folder / "run/evaluations/other/translations/test.txt").read_text().splitlines()
    assert written == lines_of(folder, "test.txt")[:2]
    same = [a == b for a, b in zip(written, captions, strict=True)]
    assert scores["exact_match"] == 100 * np.mean(same)


def test_what_cannot_be_described_is_refused(folder):
    run = f"--workdir={folder / 'run'}"
    refused(run, "--mode=caption", says="nowhere.png is missing", stdin=b"nowhere.png\n")
    other = f"--config={folder / 'config.py'}", f"--workdir={folder / 'other'}"
    refused(*other, "--config.model.architecture=recurrent", says="architecture=transformer")
    refused(*other, "--config.model.max_length=16", says="set config.model.max_length=17")
