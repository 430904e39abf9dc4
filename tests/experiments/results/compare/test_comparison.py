"""`--mode=compare` joins seeds and writes its tables."""

import json
import math
import shutil

from scipy import stats

from experiments.results.compare import find_changes, mark
from experiments.results.runs import read_systems
from experiments.results.tasks import read_likelihoods
from sweeps import classifier, compare, language_model, refuse, sentences, write_counts
from tiny_run import unsealed
from transformer.metrics.text import corpus_scores
from transformer.runs.run import SCORES

REFERENCES = sentences(60)


def table(folder):
    """Cells of the tables of comparison.md by caption and system; of a measure also its `score`."""
    cells = {}
    for part in (folder / "comparison.md").read_text().split("\n\n"):
        if part[:1] != "|":
            caption = part.removesuffix(":")
            continue
        head, _, *rows = [
            [cell.strip("* ") for cell in line.strip("|").split("|")] for line in part.splitlines()
        ]
        for row in rows:
            named = dict(zip(head, row, strict=True))
            cells[caption, row[0]] = {**named, "score": row[2]}
    return cells


def test_runs_are_compared_with_the_first_and_the_tables_say_the_same(runs, tmp_path):
    name = "a_<b>|*c*`^"
    systems = [runs["base_s0"], runs["same_s0"], f"{name}={runs['good_s0']}"]
    ended = compare(*systems, output=tmp_path / "out")
    assert ended.code == 0, ended.err
    paths = ended.out.splitlines()[-2:]
    assert paths == [str(tmp_path / f"out/comparison.{end}") for end in ("md", "html")]
    shown = r"a\_\<b>\|\*c\*\`\^"  # as it is
    text = (tmp_path / "out/comparison.md").read_text().replace(shown, "good")
    (tmp_path / "out/comparison.md").write_text(text)
    rows = table(tmp_path / "out")
    base, same = str(runs["base_s0"]), str(runs["same_s0"])
    assert list(rows)[:3] == [("BLEU", name) for name in (base, same, "good")]
    assert {measure for measure, _ in rows} == {"BLEU", "chrF", "exact matches (%)"}
    scores = json.loads((runs["good_s0"] / "results.json").read_text())["test"]
    good = rows["BLEU", "good"]
    assert good["score"] == f"{scores['bleu']:.2f}"
    assert rows["chrF", "good"]["score"] == f"{scores['chrf']:.2f}"
    assert good["p"] == "<0.001"
    assert rows["BLEU", base]["difference"] == "baseline"
    assert rows["BLEU", same]["p"] != "<0.001"
    page = (tmp_path / "out/comparison.html").read_text().replace("&#39;", "'")
    for part in (good["score"], good["its 95% interval"], "Holm's method", "2 comparisons"):
        assert part in text
        assert part in page
    assert page.count("<svg") == 2
    assert "<mark>wrong</mark>" in page
    assert "two seeds of one setting may differ as much" in ended.out
    assert f"BLEU: {scores['bleu_signature']}\n" in ended.out


def test_seeds_of_a_system_are_joined_and_a_sweep_over_seeds_stands_for_them(runs, tmp_path):
    joined = "+".join(str(runs[f"base_s{n}"]) for n in (0, 1))
    sweep = tmp_path / "good"
    for n in (0, 1):
        shutil.copytree(runs[f"good_s{n}"], sweep / f"trials/00{n}")
    (sweep / "sweep.json").write_text('{"command": "c"}')
    ended = compare(f"base={joined}", f"good={sweep}", output=tmp_path / "out")
    assert ended.code == 0, ended.err
    rows = table(tmp_path / "out")
    assert [name for measure, name in rows if measure == "BLEU"] == ["base", "good"]
    assert rows["BLEU", "good"]["n"] == "2"
    assert " ± " in rows["BLEU", "base"]["score"]
    assert float(rows["BLEU", "good"]["p"]) < 0.1
    assert "of new seeds of these settings, on other sentences" in ended.out
    assert "two seeds of one setting may differ" not in ended.out
    # Files may be at other places.
    config = json.loads((sweep / "trials/001/config.json").read_text())
    config["data"]["cache_dir"] = "other"
    (sweep / "trials/001/config.json").write_text(json.dumps(config))
    [_, system] = read_systems(f"{joined},{sweep}", None).systems
    assert (system.name, len(system.runs)) == (str(sweep), 2)


def test_a_set_that_both_were_scored_on_takes_the_place_of_their_own(runs, copies, tmp_path):
    for folder, other in zip(copies, ("good_s0", "base_s0"), strict=True):
        place = folder / "evaluations/news"
        shutil.copytree(runs[other] / "translations", place / "translations")
        results = json.loads((runs[other] / "results.json").read_text())
        shutil.copy(runs[other] / SCORES, place)
        of_test = {key: results[key] for key in ("test", "files")}
        (place / "results.json").write_text(json.dumps(of_test))
    own, news = (tmp_path / name for name in ("own", "news"))
    assert compare(*copies, output=own).code == 0
    assert compare(*copies, output=news, set="news").code == 0
    # The two were exchanged.
    assert table(own)["BLEU", str(copies[1])]["difference"][0] == "+"
    assert table(news)["BLEU", str(copies[1])]["difference"][0] == "-"
    refuse(*copies, set="talks", says=("has no evaluation 'talks'", "it has news"))
    # Of a trial it is the sweep that is evaluated.
    trial = shutil.copytree(runs["base_s0"], tmp_path / "sweep/trials/000")
    refuse(trial, copies[0], set="news", says=f"--mode=evaluate --workdir={tmp_path}/sweep --input")


def test_the_tags_of_a_run_of_several_corpora_are_no_part_of_the_test_set(copies):
    one, tagged = copies
    corpora = [{"name": "a", "source_tag": "<2de>"}, {"name": "b", "source_tag": "<2de> <x>"}]
    config = json.loads((tagged / "config.json").read_text("utf-8"))
    config["data"]["corpora"] = corpora
    (tagged / "config.json").write_text(json.dumps(config), encoding="utf-8")
    source = tagged / "translations/test.source.txt"
    lines = source.read_text("utf-8").splitlines()
    marked = [f"{corpora[i % 2]['source_tag']} {line}\n" for i, line in enumerate(lines)]
    source.write_text("".join(marked), encoding="utf-8")
    assert compare(one, tagged).code == 0
    marked[1] = f"<2fr> {lines[1]}\n"  # control: no tag of the run
    source.write_text("".join(marked), encoding="utf-8")
    refuse(one, tagged, says="test.source.txt, line 2")


# -- what changed


def test_marked_parts_are_what_the_other_text_lacks():
    before, after = mark("I was here, today.", "I am here today!")
    assert "".join(text for text, _ in before) == "I was here, today."
    assert [text for text, differs in before if differs] == ["was", ",", "."]
    assert [text for text, differs in after if differs] == ["am", "!"]


def test_the_texts_that_changed_most_are_listed_in_both_directions(copies):
    outputs = [(folder / "translations/test.txt").read_text().splitlines() for folder in copies]
    base, good = map(str, copies)
    [changes] = find_changes(read_systems(f"{base},{good}", None))
    assert changes["system"] == good
    assert len(changes["better"]) == 10
    amounts = [float(change["difference"].split()[0]) for change in changes["better"]]
    assert amounts == sorted(amounts, reverse=True)
    first = changes["better"][0]
    texts = {name: "".join(text for text, _ in parts) for name, parts in first["lines"]}
    number = first["number"] - 1
    assert [texts[name] for name in (base, good)] == [lines[number] for lines in outputs]
    assert texts["reference"] == REFERENCES[number]
    assert changes["worse"]
    assert all(float(change["difference"].split()[0]) < 0 for change in changes["worse"])


def test_several_references_are_compared(copies, tmp_path):
    further = (copies[0] / "translations/test.txt").read_text()
    for folder in copies:
        (folder / "translations/test.reference.1.txt").write_text(further)
        texts = (folder / "translations/test.txt").read_text().splitlines()
        results = unsealed(path := folder / "results.json")
        more = [further.splitlines()]
        results["test"] |= corpus_scores(texts, REFERENCES, further=more, final=True)
        counts = results["test"].pop("counts")
        path.write_text(json.dumps(results))
        write_counts(folder, counts)
    compare(*copies, output=tmp_path / "out")
    assert "reference 2" in (tmp_path / "out/comparison.html").read_text()
    (copies[1] / "translations/test.reference.1.txt").unlink()
    refuse(*copies, says="test.reference.1.txt, line 1")


# -- other tasks


def test_classifiers_are_compared_over_texts(tmp_path):
    folders = [classifier(tmp_path, n, wrong) for n, wrong in enumerate((range(12), [0, 39]))]
    ended = compare(*folders, output=tmp_path / "out")
    assert ended.code == 0, ended.err
    row = table(tmp_path / "out")["accuracy (%)", str(folders[1])]
    assert (row["score"], row["difference"]) == ("95.00", "+25.00")
    # 11 right for the one alone, 1 for the other, of 40: t = 0.25 / sqrt((0.3 - 0.0625) / 39).
    assert row["p"] == f"{2 * stats.t.sf(0.25 / math.sqrt(0.2375 / 39), 39):.3f}"


def test_language_models_are_compared_on_the_segments_that_they_keep(tmp_path):
    folders = [language_model(tmp_path, n, nats) for n, nats in enumerate((2.0, 1.9))]
    for folder in folders:  # texts may have tabs
        path = folder / "likelihoods/test.tsv"
        path.write_text(path.read_text().replace(" ", "\t"))
    ended = compare(*folders, output=tmp_path / "out")
    assert ended.code == 0, ended.err
    rows = table(tmp_path / "out")
    bits, nll = "bits/byte (lower is better)", "nll (nats) (lower is better)"
    assert {measure for measure, _ in rows} == {bits, nll}
    assert rows[nll, str(folders[1])]["difference"].startswith("-")
    assert "of some segments" in ended.out
    # With other tokens only the bits per byte are compared.
    others = [language_model(tmp_path / "words", n, 4.0, words=n + 1) for n in (0, 1)]
    assert compare(*others, output=tmp_path / "bytes").code == 0
    assert {measure for measure, _ in table(tmp_path / "bytes")} == {bits}
    path.write_text("-3.0\t3\t7\tthé a\n", encoding="utf-8")
    texts = read_likelihoods(folders[1], None)
    assert (texts.shown["text"], texts.outputs) == (["thé a"], ["3.00 nats, 3 tokens"])
