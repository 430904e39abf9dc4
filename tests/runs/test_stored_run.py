"""The trained run in the package opens anywhere, and still translates as when it was stored."""

from pathlib import Path

import pytest

import transformer
from places import ROOT
from tiny_run import command, refused
from transformer.errors import UserError
from transformer.runs.workdir import STORED

STORED_TEXTS = {
    "My letter lay on this chair two days ago.": (
        "Mein Brief hat vor zwei Tagen auf diesem Stuhl gelegen."
    ),
    "The old teacher sees two birds.": "Der alte Lehrer sieht zwei Vögel.",
    "The girl may not listen to an aunt, because she is tired.": (
        "Das Mädchen darf keiner Tante zuhören, weil sie müde ist."
    ),
}
CAPTION = (
    "a small yellow circle , a small cyan square , a large purple circle , a large red triangle "
    "and a small blue circle"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_stored_run_translates_as_it_did_and_has_its_heads(elsewhere):
    run = transformer.load("quickstart")
    assert run.translate([*STORED_TEXTS]) == [*STORED_TEXTS.values()]
    assert run.attention("We sleep.").weights["cross"].shape == (2, 4, 4, 4)
    assert run.results["test"]["bleu"] > 97
    assert [*elsewhere.iterdir()] == []


def test_the_command_copies_the_stored_run_to_a_folder_of_the_user(elsewhere):
    text = "\n".join(STORED_TEXTS)
    for _ in range(2):  # then from the copy
        ended = command("--workdir=quickstart", "--mode=translate", stdin=text.encode())
        assert ended.out.splitlines() == [*STORED_TEXTS.values()]
    names = {path.name for path in (STORED / "quickstart").iterdir()}
    assert {path.name for path in (elsewhere / "quickstart").iterdir()} >= names


def test_a_folder_of_the_user_comes_first_and_a_training_needs_its_config(elsewhere):
    refused("--workdir=quickstart", says="--config is missing")
    (elsewhere / "quickstart").mkdir()
    with pytest.raises(UserError, match="quickstart"):
        transformer.load("quickstart")


@pytest.mark.full
def test_the_stored_run_is_scored_again_as_it_was(elsewhere):
    ended = command("--workdir=quickstart", "--mode=evaluate")
    assert ended.code == 0, ended
    before, after = (
        transformer.load(name).results for name in (STORED / "quickstart", "quickstart")
    )
    assert after["test"]["bleu"] == pytest.approx(before["test"]["bleu"], abs=0.5)  # 16 bits


def test_the_beam_is_drawn_and_a_second_column_begins_a_translation(elsewhere):
    ended = command("--workdir=quickstart", "--mode=beam", "--sentence=We sleep.", "--prefix=Ihr")
    drawing = Path(ended.out.strip()).read_text("utf-8")
    assert all(f"<!-- \u2581{word}" in drawing for word in ("Ihr", "schlafen"))
    lines = b"We sleep.\tIhr\nWe sleep.\n"
    ended = command("--workdir=quickstart", "--mode=translate", "--prefix_column", stdin=lines)
    first, second = ended.out.splitlines()
    assert first.startswith("Ihr")
    assert second == "Wir schlafen."


def test_the_stored_models_of_scenes_describe_one_and_answer_a_question():
    scene = ROOT / "docs" / "site" / "scenes" / "scene_1.png"
    assert transformer.load("captions").caption([str(scene)]) == [CAPTION]
    question = f"{scene}\twhat shape is the red thing ?"
    assert transformer.load("scenes").classify([question]) == ["triangle"]


def test_stored_files_are_small_and_say_how_they_were_made():
    sizes = {run: sum(f.stat().st_size for f in run.rglob("*.*")) for run in STORED.iterdir()}
    assert max(sizes.values()) < 2.5e6
    for run in sizes:
        assert "` at commit " in (run / "README.md").read_text()
