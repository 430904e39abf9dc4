"""Both directions of the grammar in one model, from training to translation."""

import json
import shutil

import pytest

from task_runs import train_tagged
from tiny_run import command, refused
from transformer.runs.workdir import load_config
from transformer.tasks.translation import TranslationTask

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_tagged(tmp_path_factory)


def test_each_direction_has_its_scores_and_texts(run):
    folder = run / "workdir"
    results = json.loads((folder / "results.json").read_text())
    assert [name for name in results if name.startswith("test")] == [
        "test",
        "test_en_de",
        "test_de_en",
    ]
    counts = [results[f"test{part}"]["sentences"] for part in ("", "_en_de", "_de_en")]
    assert counts == [8, 4, 4]
    parts = [results[f"test_{name}"]["loss"] for name in ("en_de", "de_en")]
    assert min(parts) <= results["test"]["loss"] <= max(parts)
    texts = [
        (folder / "translations" / f"test{part}.txt").read_text()
        for part in ("", "_en_de", "_de_en")
    ]
    assert texts[0] == texts[1] + texts[2]
    sources = (folder / "translations" / "test_de_en.source.txt").read_text().splitlines()
    assert len(sources) == 4
    assert all(line.startswith("<2en> ") for line in sources)
    assert sorted(path.name for path in (folder / "held_out").glob("*.jsonl")) == [
        f"{split}_{name}.jsonl" for split in ("test", "validation") for name in ("de_en", "en_de")
    ]
    assert "Pairs of each corpus" in (folder / "report.html").read_text()


def test_a_folder_keeps_the_held_out_text_of_each_corpus(run):
    folder = run / "workdir"
    pairs = TranslationTask.from_folder(folder, load_config(folder)).text.pairs
    for split in ("validation", "test"):
        assert pairs[split] == [*pairs[f"{split}_en_de"], *pairs[f"{split}_de_en"]]
    first, back = pairs["test_en_de"][0], pairs["test_de_en"][0]
    assert back.source == f"<2en> {first.target}"
    assert first.source == f"<2de> {back.target}"
    words = first.source.split(), first.target.split()
    assert {(words[0][i], words[1][j]) for i, j in first.alignment} == {
        (back.target.split()[j], back.source.split()[i]) for i, j in back.alignment
    }


def test_another_text_is_scored_in_the_direction_of_its_tag(run, tmp_path):
    folder, place = run / "workdir", tmp_path / "copy"
    shutil.copytree(folder, place)
    lines = (folder / "held_out" / "test_en_de.jsonl").read_text().splitlines()
    pairs = [json.loads(line) for line in lines]
    rows = [f"{own['source'].removeprefix('<2de> ')}\t{own['target']}\n" for own in pairs]
    (tmp_path / "set.tsv").write_text("".join(rows))
    evaluate = "--mode=evaluate", f"--workdir={place}", f"--input={tmp_path / 'set.tsv'}"
    refused(*evaluate, says=("sentence 1 has no tag", "give source_tag"))
    refused(*evaluate, "--source_tag=<2fr>", says="source_tag=<2fr> is unknown")
    ended = command(*evaluate, "--source_tag=<2de>")
    assert ended.code == 0, ended.err
    own = json.loads((place / "results.json").read_text())["test_en_de"]
    results = json.loads((place / "evaluations" / "set" / "results.json").read_text())
    assert [name for name in results if name.startswith("test")] == ["test"]
    for name in ("loss", "bleu", "chrf", "ter", "sentences"):
        assert results["test"][name] == own[name]
    says = "scores of another text"  # with the other tag it is
    refused(*evaluate, "--source_tag=<2en>", says=says)


def test_links_of_sentences_are_those_without_the_tag_that_is_put_before_them(run, tmp_path):
    (tmp_path / "plain.tsv").write_text("the cat\tdie Katze\n\nthe dog\tder Hund\n")
    (tmp_path / "plain.txt").write_text("0-0 1-1\n\n0-0 1-1\n")
    (tmp_path / "tagged.tsv").write_text("<2de> the cat\tdie Katze\n\n<2de> the dog\tder Hund\n")
    (tmp_path / "tagged.txt").write_text("1-0 2-1\n\n1-0 2-1\n")
    scores, links = {}, {}
    for name, flags in (("plain", ["--source_tag=<2de>"]), ("tagged", [])):
        folder = shutil.copytree(run / "workdir", tmp_path / f"run_{name}")
        flags = [*flags, f"--workdir={folder}", f"--input={tmp_path / f'{name}.tsv'}"]
        out = f"--output={tmp_path / f'{name}.out'}"
        ended = command("--mode=align", *flags, f"--links={tmp_path / f'{name}.txt'}", out)
        assert ended.code == 0, ended
        scores[name] = (folder / "figures/alignment/alignment.csv").read_text()
        links[name] = [
            [tuple(map(int, link.split("-"))) for link in line.split()]
            for line in (tmp_path / f"{name}.out").read_text().splitlines()
        ]
        # The head that was best aligns other text in the same way.
        assert command("--mode=align", *flags, f"--output={tmp_path / 'again'}").code == 0
        assert (tmp_path / "again").read_text() == (tmp_path / f"{name}.out").read_text()
    assert scores["plain"] == scores["tagged"]
    assert links["plain"] == [[(i - 1, j) for i, j in line if i] for line in links["tagged"]]
