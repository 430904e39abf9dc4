"""`--mode=clean` writes what is kept and what is dropped, with the reason, and trains nothing."""

import gzip

import pytest

from configs import base
from experiments.modes.clean import clean
from experiments.process.modes import Options
from experiments.process.process import logging_to
from source_settings import refused
from tiny_run import command
from transformer.runs.run import Run

KEPT = [("Hello world, here I am.", "Hallo Welt, hier bin ich."), ("One more.", "Noch einer.")]
DROPPED = {
    "mojibake": ("Over there.", "DrÃ¼ben."),
    "copied": ("This was not\ttranslated by anyone.", "This was not translated by anyone."),
    "numbers": ("In 1999.", "Im Jahr 1998."),
    "language": ("I see you, my dear friend.", "Je te vois, mon cher ami, et toi aussi."),
    "empty": ("Nothing.", " "),
    "duplicate": KEPT[0],
}


@pytest.fixture
def text(tmp_path):
    """Two files, and the config that names them."""
    pairs = [*KEPT, *DROPPED.values()]
    for side, name in enumerate(("a.en", "a.de")):
        (tmp_path / name).write_text("".join(f" {pair[side]}\n" for pair in pairs))
    (tmp_path / "test.en").write_text(f"{KEPT[1][0]}\nIn 1999.\n")
    (tmp_path / "test.de").write_text(f"{KEPT[1][1]}\nIm Jahr 1998.\n")
    config = base.get_config()
    config.data.update(
        source="files",
        path=str(tmp_path),
        train_source="a.en",
        train_target="a.de",
        test_source="test.en",
        test_target="test.de",
        remove_mojibake=True,
        remove_copies=True,
        match_numbers=True,
        languages=("en", "de"),
    )
    return config


def test_it_writes_the_kept_pairs_and_each_dropped_one_with_its_reason_and_number(
    text, tmp_path, capsys
):
    source, target, dropped = clean(Run(tmp_path / "out", text), Options())
    kept = zip(source.read_text().splitlines(), target.read_text().splitlines(), strict=True)
    assert list(kept) == KEPT
    header, *rows = (line.split("\t") for line in dropped.read_text().splitlines())
    assert header == ["reason", "pair", "source", "target"]
    assert [(row[0], int(row[1])) for row in rows] == [
        (reason, number) for number, reason in enumerate(DROPPED, 3)
    ]
    assert rows[0][2:] == list(DROPPED["mojibake"])
    assert rows[1][2] == "This was not translated by anyone."
    said = capsys.readouterr().out
    assert "kept 2 of 8 sentence pairs" in said
    assert "DrÃ¼ben." in said
    assert "12.50%" in said
    # Own test files are reported on, and stay.
    assert "test: 1 of 2 pairs occur in the training text" in said
    assert (tmp_path / "test.de").read_text() == f"{KEPT[1][1]}\nIm Jahr 1998.\n"


def test_each_of_several_corpora_has_a_folder_and_its_own_rules(text, tmp_path, capsys):
    rows = "".join(f"{source}\t{target}\n" for source, target in [*KEPT, ("a", "b"), ("c",) * 2])
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(f"{rows}broken\n".encode()))
    other = {"train_source": "b.tsv.gz", "train_target": "", "languages": ("", "")}
    other |= {"name": "b", "max_characters": 30, "skip_broken": True}
    text.data.corpora = ({"name": "a"}, other, {**other, "name": "back", "reverse": True})
    with logging_to("stdout"):
        files = list(clean(Run(tmp_path / "out", text), Options()))
    assert [file.parent.name for file in files] == ["a"] * 3 + ["b"] * 3 + ["back"] * 3
    assert files[4].read_text().splitlines() == [*(target for _, target in KEPT), "b", "c"]
    assert files[5].read_text().splitlines()[1:] == []
    said = capsys.readouterr().out
    assert f"{tmp_path / 'b.tsv.gz'}: skipped 1 broken lines" in said
    assert "a:\nkept 2 of 8" in said
    assert "b:\n" in said
    assert "kept 4 of 4" in said


def test_a_run_is_cleaned_by_its_own_config_and_the_text_is_named(text, tmp_path):
    Run(tmp_path / "run", text).claim()
    said = command("--mode=clean", f"--workdir={tmp_path / 'run'}")
    assert said.code == 0
    assert "kept 2 of 8" in said.out
    assert f" {tmp_path / 'a.en'}, " in said.err
    assert said.err.endswith(f", named in {tmp_path / 'run' / 'config.json'}\n")
    said = command("--mode=clean", f"--workdir={tmp_path / 'nowhere'}")
    assert said.code == 2
    assert said.err.startswith("error: --config is missing: ")
    assert not (tmp_path / "nowhere").exists()


def test_a_link_out_of_the_folder_is_refused(text, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "cleaning").symlink_to(tmp_path / "elsewhere")
    with refused("cleaning is a symbolic link", tmp_path / "elsewhere"):
        list(clean(Run(tmp_path / "out", text), Options()))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_unknown_language_ends_in_one_line_and_code_2(tmp_path):
    flags = f"--workdir={tmp_path / 'out'}", "--config.data.languages=en,xx"
    ended = command("--mode=clean", "--config=configs/own_text.py", *flags)
    assert ended.code == 2
    assert "languages=('en', 'xx'): give codes" in ended.err
    assert len(ended.err.splitlines()) == 1
