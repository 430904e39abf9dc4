"""Models of pictures: questions about scenes, and digits, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from configs import photos
from tiny_run import command, refused
from tiny_scenes import CONFIG, train_scenes
from transformer.checks import check
from transformer.data.tokenizer import UNK_ID
from transformer.errors import UserError
from transformer.runs import workdir
from transformer.tasks.pictures import QuestionTask, train_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    train_scenes(folder)
    return folder


@pytest.fixture(scope="module")
def photo(folder):
    """A scene of the test set as a file, its question and the answer that was predicted."""
    task = QuestionTask.from_folder(folder / "run", workdir.load_config(folder / "run"))
    item = task.text.held_out["test"][0]
    path = folder / "photo.png"
    Image.fromarray(task.text.pixels["test"][item.picture]).save(path)
    row = (folder / "run/predictions/test.tsv").read_text().splitlines()[0]
    return path, item.question, row.split("\t")[1:3]


@pytest.mark.full
def test_a_run_has_scores_by_kind_and_of_its_heads(folder):
    scores = json.loads((folder / "run/results.json").read_text())["test"]
    rows = (folder / "run/predictions/test.tsv").read_text().splitlines()
    right = [row.split("\t")[0] == row.split("\t")[1] for row in rows]
    assert scores["accuracy"] == pytest.approx(np.mean(right))
    assert scores["accuracy_signature"].endswith("questions:30|side:48|channels:3")
    layer, head = scores["pointing_head"]
    points = np.array(scores["pointing"])
    assert points.shape == (1, 2)
    assert scores["pointing_accuracy"] == points[layer - 1, head - 1]
    pictures = {path.name for path in (folder / "run/figures").glob("*.png")}
    assert {"examples.png", "over_picture.png", "confusion.png", "map.png"} <= pictures


def test_a_picture_file_is_answered_as_the_scene_that_was_scored(folder, photo):
    path, question, (label, probability) = photo
    ended = command(
        f"--workdir={folder / 'run'}", "--mode=classify", stdin=f"{path}\t{question}\n\n".encode()
    )
    first, blank = ended.out.split("\n")[:2]
    assert first.split("\t")[0] == label
    assert float(first.split("\t")[1]) == pytest.approx(float(probability), abs=1e-5)
    assert blank == ""


def test_attention_is_drawn_over_the_picture(folder, photo):
    path, question, _ = photo
    ended = command(
        f"--workdir={folder / 'run'}",
        "--mode=attention",
        f"--picture={path}",
        f"--sentence={question}",
    )
    assert ended.code == 0, ended.err
    files = {Path(line).name: Path(line) for line in ended.out.splitlines()}
    assert {"over_picture.png", "words_over_picture.png", "explorer.html"} <= files.keys()
    arrays = np.load(files["explorer.html"].with_name("attention.npz"))
    assert list(arrays["source_tokens"][:3]) == ["<class>", "1,1", "1,2"]
    assert "data:image/png;base64," in files["explorer.html"].read_text()


def test_a_table_of_other_pictures_is_scored(folder, photo):
    path, question, (label, _) = photo
    (folder / "other.csv").write_text(f"picture,text,label\n{path.name},{question},{label}\n")
    ended = command(
        f"--workdir={folder / 'run'}", "--mode=evaluate", f"--input={folder / 'other.csv'}"
    )
    assert ended.code == 0, ended.err
    scores = json.loads((folder / "run/evaluations/other/results.json").read_text())["test"]
    assert scores["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("PHOTO", "line 1 has no question: this model reads picture<TAB>question"),
        ("nowhere.png\twhat is it ?", "nowhere.png is missing"),
    ],
)
def test_a_line_that_cannot_be_answered_is_refused(folder, photo, line, message):
    stdin = line.replace("PHOTO", str(photo[0])).encode()
    refused(f"--workdir={folder / 'run'}", "--mode=classify", says=message, stdin=stdin)


def test_a_task_of_pictures_needs_patches_and_one_of_texts_has_none(folder):
    run = f"--config={folder / 'config.py'}", f"--workdir={folder / 'other'}"
    refused(*run, "--config.model.patch_size=0", says="set it to the pixels of a patch's side")
    refused(*run, "--config.task=classification", says="config.task=classification: leave it out")


@pytest.mark.full
@pytest.mark.parametrize("model", ["text_only", "bag_of_patches", "cnn_lstm"])
def test_baselines_train_and_score(folder, model, tmp_path):
    text = CONFIG.replace("scenes_vqa.get_config()", f"scenes_vqa.get_config({model!r})")
    file, run = tmp_path / "config.py", tmp_path / "run"
    file.write_text(text.replace("PATH", str(folder)))
    ended = command(f"--config={file}", f"--workdir={run}", "--config.train.steps=6")
    assert ended.code == 0, ended.err
    assert ("blind" in (run / "results.json").read_text()) == (model == "text_only")


@pytest.mark.full
def test_digits_are_classified_and_a_picture_without_ink_is_refused(tmp_path):
    changes = ("steps=6", "evaluate_every=6", "log_every=6", "keep_last=1")
    flags = [f"--config.train.{change}" for change in changes]
    flags += ["--config.model.d_model=16", "--config.model.num_encoder_layers=1"]
    flags += ["--config=configs/mnist.py:digits"]
    ended = command(*flags, f"--workdir={tmp_path / 'a'}")
    assert ended.code == 0, ended.err
    results = json.loads((tmp_path / "a/results.json").read_text())["test"]
    assert "|pictures:" in results["accuracy_signature"]
    Image.new("L", (30, 30), 255).save(tmp_path / "blank.png")
    refused(
        f"--workdir={tmp_path / 'a'}",
        "--mode=classify",
        says="has no ink",
        stdin=f"{tmp_path / 'blank.png'}\n".encode(),
    )


@pytest.mark.parametrize("mark", ["?", " ?"])
def test_questions_are_read_with_or_without_a_blank_before_marks_and_a_capital(tmp_path, mark):
    rows = ["picture,text,label"]
    for i in range(20):
        Image.new("L", (9, 9), i).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,what is on the {'table' if i % 2 else 'chair'}{mark},{i % 2}")
    (tmp_path / "questions.csv").write_text("\n".join(rows) + "\n")
    config = photos.get_config("questions")
    config.data.path = config.data.cache_dir = str(tmp_path)
    config.data.validation_size = config.data.test_size = 2
    tokenizer = QuestionTask(config).text.tokenizer
    typed, spaced, within = tokenizer.encode(
        ["What is on the table?", "what is on the table ?", "what is the table on?"]
    )
    assert typed == spaced
    assert sorted(typed) == sorted(within)  # a word is the same before a mark
    assert UNK_ID not in typed


@pytest.mark.parametrize(("caption", "other"), [("A cup.", "A cup ."), ("A cup .", "A cup.")])
def test_captions_are_read_as_those_of_the_training_are_written(tmp_path, caption, other):
    config = photos.get_config("captions")
    config.data.cache_dir = str(tmp_path)
    writer = train_tokenizer([caption, "A cat"], config, None).writer().typed()
    assert writer.encode([other]) == writer.encode([caption])
    assert writer.decode(writer.encode([other])[0]) == caption


@pytest.mark.parametrize("change", ["flip", "crop+colour"])
def test_questions_are_not_trained_on_pictures_whose_answers_change(change):
    config = photos.get_config("questions")
    check(config, "training")
    config.data.augment = change
    check(config)  # a run that was trained so is opened
    with pytest.raises(UserError, match=f"leave {change.split('+')[-1]} out"):
        check(config, "training")
