"""A classifier from a file of labelled texts, through the command line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

import tiny_run
from experiments.results import outputs as report_texts
from tiny_classifier import CONFIG, ITEMS, ROWS
from tiny_run import command, loading_once, refused


def flags(changes):
    return [f"--config.{change}" for change in changes]


def train(folder: Path, *changes: str, rows=ROWS, name="run"):
    (folder / "train.tsv").write_text("".join(f"{row}\n" for row in rows))
    (folder / "config.py").write_text(CONFIG.replace("PATH", str(folder)))
    arguments = f"--config={folder / 'config.py'}", f"--workdir={folder / name}"
    return command(*arguments, *flags(changes))


@pytest.fixture(scope="module", autouse=True)
def once():
    with loading_once():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of a Transformer with attention pooling, and of a bag with bigrams."""
    folder, bag = (
        tmp_path_factory.mktemp("texts"),
        ("model.architecture=bag_of_embeddings", "model.bigram_buckets=50"),
    )
    runs = {
        "transformer": train(folder),
        "bag_of_embeddings": train(folder, *bag, name="bag_of_embeddings"),
    }
    for ended in runs.values():
        assert ended.code == 0, ended.err
    return {"transformer": folder / "run", "bag_of_embeddings": folder / "bag_of_embeddings"}


def use(folder, mode, *arguments, **options):
    return command(f"--workdir={folder}", f"--mode={mode}", *arguments, **options)


def predictions(folder, split="test"):
    lines = (folder / "predictions" / f"{split}.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines]


@pytest.mark.parametrize("name", ["transformer", "bag_of_embeddings"])
def test_the_predictions_of_a_run_are_those_that_were_scored(trained, name):
    scores = json.loads((trained[name] / "results.json").read_text())["test"]
    rows = predictions(trained[name])
    right = [truth == predicted for truth, predicted, *_ in rows]
    assert len(rows) == 24
    assert scores["accuracy"] == pytest.approx(np.mean(right))
    assert scores["accuracy"] > 0.9
    assert sum(map(sum, scores["confusion"])) == 24
    chosen = np.array([float(probability) for *_, probability, _ in rows])
    likelihoods = np.where(right, chosen, 1 - chosen)  # there are two classes
    assert scores["nll"] == pytest.approx(-np.log(likelihoods).mean(), abs=1e-4)
    assert scores["loss"] == pytest.approx(scores["nll"], abs=1e-9)
    assert scores["accuracy_signature"] == "classes:2|texts:24|max_tokens:12"
    assert {text for *_, text in rows} <= {item.text for item in ITEMS}


@pytest.mark.parametrize("name", ["transformer", "bag_of_embeddings"])
def test_texts_are_classified_as_they_were_scored_and_blank_lines_stay_blank(trained, name):
    rows = predictions(trained[name])
    stdin = "\n".join(["", *(text for *_, text in rows), " \t"]).encode()
    lines = use(trained[name], "classify", stdin=stdin).out.split("\n")
    assert (lines[0], *lines[-2:]) == ("", "", "")
    found = [line.split("\t") for line in lines[1:-2]]
    assert [label for label, _ in found] == [predicted for _, predicted, *_ in rows]
    np.testing.assert_allclose(
        [float(p) for _, p in found], [float(p) for *_, p, _ in rows], atol=2e-6
    )


def test_more_of_a_text_than_was_trained_on_is_told_of_and_not_read(trained):
    start = "well , the plot is superb indeed . the the the"
    ended = use(
        trained["bag_of_embeddings"], "classify", stdin=f"{start}\n{start} the dull dull\n".encode()
    )
    told, expected = ended.out.splitlines()[::-1]
    assert told == expected
    assert "line 2 has 14 tokens: only the first 11 are read" in ended.err


def test_what_attention_reads_of_a_text_is_drawn(trained):
    ended = use(trained["transformer"], "attention", "--sentence=the plot is dull .")
    pictures = [Path(line) for line in ended.out.splitlines()]
    assert [path.name for path in pictures] == [
        "encoder_self_layer_1.png",
        "explorer.html",
        "reading.png",
    ]
    arrays = np.load(pictures[0].parent / "attention.npz")
    assert arrays["encoder_self"].shape == (1, 2, 6, 6)
    assert arrays["source_tokens"][0] == "<s>"
    np.testing.assert_allclose(arrays["encoder_self"].sum(-1), 1.0, atol=1e-5)


def test_modes_of_other_tasks_are_refused(trained, tmp_path):
    run = f"--workdir={trained['transformer']}"
    refused(
        run,
        "--mode=translate",
        says="use plan, benchmark, fetch, evaluate, compare, attention, classify",
    )
    refused(run, "--mode=attention", "--sentence=a", "--hide_eos", says="are for translators")
    bag = f"--workdir={trained['bag_of_embeddings']}"
    refused(
        bag,
        "--mode=attention",
        "--sentence=a",
        says="architecture=bag_of_embeddings with config.model.pooling=",
    )
    (tmp_path / "config.py").write_text(tiny_run.CONFIG.replace("CACHE", str(tmp_path / "cache")))
    changes = flags(["task=language_model", "model.architecture=bag_of_embeddings"])
    says = "architecture=bag_of_embeddings is for config.task=classification"
    new = f"--config={tmp_path / 'config.py'}", f"--workdir={tmp_path / 'run'}"
    refused(*new, *changes, says=says)


def test_a_classifier_without_the_names_of_its_classes_is_refused(trained, tmp_path):
    config = (trained["bag_of_embeddings"] / "config.json").read_bytes()
    (tmp_path / "config.json").write_bytes(config)
    tokenizer = (trained["bag_of_embeddings"] / "tokenizer.model").read_bytes()
    (tmp_path / "tokenizer.model").write_bytes(tokenizer)
    run = f"--workdir={tmp_path}"
    refused(run, "--mode=classify", says=("labels.json is missing", "restore"))
    (tmp_path / "labels.json").write_text('["one"]')
    refused(run, "--mode=classify", says=("labels.json", "restore the"))
    folder = shutil.copytree(trained["bag_of_embeddings"], tmp_path / "run")
    (folder / "labels.json").write_text('["good", "bad"]')
    refused(f"--workdir={folder}", "--mode=classify", says="checkpoint")


@pytest.mark.parametrize(
    ("rows", "changes", "says"),
    [
        (["label\ttext"] + [row for row in ROWS if row.startswith("good")], (), "only the label"),
        ([], (), "has no lines"),
        (ROWS, ("data.test_source=test.tsv",), "labels 'odd', which the training text never has"),
        (ROWS, ("model.positions=learned", "model.max_length=5"), "max_tokens=12"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_texts_or_a_config_that_cannot_be_learned_are_refused(tmp_path, rows, changes, says):
    (tmp_path / "test.tsv").write_text("label\ttext\nodd\tthe plot is odd .\n")
    ended = train(tmp_path, *changes, rows=rows)
    assert ended.code == 2
    assert says in ended.err.splitlines()[-1]
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_report_shows_the_surest_mistakes_first(trained, tmp_path):
    assert "data:image/png;base64," in (trained["transformer"] / "report.html").read_text()
    rows = [f"bad\tgood\t0.{number}\ttext {number}" for number in (71, 93, 82)]
    (tmp_path / "predictions").mkdir()
    (tmp_path / "predictions/test.tsv").write_text("\n".join([*rows, "bad\tbad\t0.99\tno"]))
    _, worst = report_texts.predictions(ConfigDict(), tmp_path, "test", None, "")
    assert [each.title[-5:] for each in worst.examples] == ["0.930", "0.820", "0.710"]
