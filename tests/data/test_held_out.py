"""The held-out text in a run's folder: what is kept, and scoring by it alone."""

import json
import shutil
from pathlib import Path

import jax
import pytest

import source_settings
from configs import base
from runs import identical, toy_config
from tiny_run import command, content, refused, translators_once, unsealed, without_pictures
from transformer import tasks
from transformer.data import held_out
from transformer.data.pairs import Labelled, Pair
from transformer.errors import UserError


@pytest.fixture(scope="module", autouse=True)
def once():
    with translators_once():
        yield


SOURCES = {
    "translation": {"data.source": "grammar", "data.length_generalization_size": 2},
    "language_model": {"data.source": "quotations", "data.context": 16},
    "classification": {"data.source": "toy_reviews", "train.class_weights": "balanced"},
}


def config_of(task: str, cache: Path):
    return toy_config(cache, **SOURCES[task], **{"task": task, "data.max_oov_rate": 1.0})


# -- what is kept

ITEMS = {
    "pairs": [Pair("a b\nb", "ř ⏎ \u2028", ((0, 1), (1, 0))), Pair(" x ", '"', ()), Pair("y", "z")],
    "labelled": [Labelled("a\tb", "good", "with negation"), Labelled("c", "bad")],
    "documents": ["one\n\ntwo\r\n", "\x85 three"],
}


@pytest.mark.parametrize("kind", ITEMS)
def test_what_is_kept_is_read_as_it_was_an_object_on_each_line(tmp_path, kind):
    held_out.save(tmp_path, {"test": ITEMS[kind]})
    read = {
        "pairs": held_out.read_pairs,
        "labelled": lambda *place: held_out.read_labelled(*place, ("good", "bad")),
        "documents": held_out.read_documents,
    }
    assert read[kind](tmp_path, "test") == ITEMS[kind]
    lines = (tmp_path / "held_out" / "test.jsonl").read_bytes().split(b"\n")
    assert [type(json.loads(line)) for line in lines[:-1]] == [dict] * len(ITEMS[kind])
    assert lines[-1] == b""


@pytest.mark.full
def test_a_document_may_be_as_long_as_an_encyclopedia(tmp_path):
    text = "a line\n" * 10_000_000
    held_out.save(tmp_path, {"test": [text]})
    assert held_out.read_documents(tmp_path, "test") == [text]


def test_text_is_kept_once_and_other_text_is_refused(tmp_path):
    held_out.save(tmp_path, {"test": ["a", "b"]})
    file = tmp_path / "held_out" / "test.jsonl"
    before = file.stat()
    held_out.save(tmp_path, {"test": ["a", "b"]})
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    with pytest.raises(UserError, match=r"test.jsonl is not the text of this config"):
        held_out.save(tmp_path, {"test": ["a", "c"]})
    assert held_out.read_documents(tmp_path, "test") == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is empty"),
        (b'{"source": "a"}\n', "line 1, cannot be read (target is missing)"),
        (b'{"source": "x", "target": "b"}\n', "is not what was written"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path, text, says):
    held_out.save(tmp_path, {"test": [Pair("a", "b")]})
    assert held_out.read_pairs(tmp_path, "test") == [Pair("a", "b")]  # a control
    (tmp_path / "held_out" / "test.jsonl").write_bytes(text)
    with source_settings.refused("test.jsonl", says, "restore the original"):
        held_out.read_pairs(tmp_path, "test")


def test_a_label_that_the_classifier_lacks_is_named(tmp_path):
    held_out.save(tmp_path, {"test": ITEMS["labelled"]})
    with pytest.raises(UserError, match=r"the label 'bad', which is not in labels\.json"):
        held_out.read_labelled(tmp_path, "test", ("good", "fair"))


# -- scoring by it alone


@pytest.mark.full
@pytest.mark.parametrize("name", SOURCES)
def test_a_task_of_a_folder_scores_as_the_one_that_trained_and_opens_no_source(name, tmp_path):
    config = config_of(name, tmp_path / "cache")
    trains = tasks.REGISTRY[name](config)
    folder = tmp_path / "run"
    folder.mkdir()
    trains.save_assets(folder)
    shutil.rmtree(tmp_path / "cache")
    config.data.source = "there is no such source"
    with pytest.raises(UserError, match="there is no such source"):  # a control
        tasks.REGISTRY[name](config)
    scores = tasks.REGISTRY[name].from_folder(folder, config)
    assert not (tmp_path / "cache").exists()
    assert (scores.splits, scores.fingerprint()) == (trains.splits, trains.fingerprint())
    params = trains.draw_params(jax.random.key(0))
    for split in trains.splits:
        assert identical(*(task.evaluate(params, split, True) for task in (scores, trains)))
        batches = [list(task.held_out_batches(split)) for task in (scores, trains)]
        assert identical(*batches)


def test_a_folder_without_held_out_text_is_told_so_in_one_line(copy):
    shutil.rmtree(copy / "held_out")
    says = ("held_out", ".jsonl is missing", "restore the original")
    refused("--mode=evaluate", f"--workdir={copy}", says=says)


# -- other settings


@pytest.mark.full
def test_an_evaluation_with_other_settings_leaves_the_run_s_own_as_they_are(copy):
    before = content(copy)
    ended = command(
        "--mode=evaluate",
        f"--workdir={copy}",
        "--config.decode.beam_size=1",
        "--config.evaluate.bootstrap=0",
    )
    assert ended.code == 0, ended.err
    after = content(copy)
    assert before.items() <= after.items()
    place = "evaluations/beam_size=1,bootstrap=0"
    texts = [name for name in before if name.startswith("translations/")]
    assert {*after} - {*before} == {
        f"{place}/{name}" for name in (*texts, "results.json", "scores.npz")
    }
    assert (
        f"wrote {copy / place / 'results.json'}; the results of {copy} are unchanged" in ended.out
    )
    results = json.loads(after[f"{place}/results.json"])
    assert results["settings"] == {"decode.beam_size": 1, "evaluate.bootstrap": 0}
    assert results["decode"]["beam_size"] == 1
    own = json.loads(before["results.json"])
    assert results["test"]["nll"] == pytest.approx(own["test"]["nll"], rel=1e-6)
    assert "bleu_ci" in own["test"]
    assert "bleu_ci" not in results["test"]


@pytest.mark.full
def test_an_evaluation_with_the_run_s_settings_writes_the_same_numbers_in_place(copy):
    before = unsealed(copy / "results.json")
    (copy / "results.json").unlink()
    beam = f"--config.decode.beam_size={base.get_config().decode.beam_size}"
    with without_pictures():
        assert command("--mode=evaluate", f"--workdir={copy}", beam).code == 0
    after = unsealed(copy / "results.json")
    for split in ("validation", "test"):
        before[split].pop("seconds"), after[split].pop("seconds")
    assert after == before
    assert not (copy / "evaluations").exists()
