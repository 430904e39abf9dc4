"""Scores of a run on another text than its own."""

import json
import math
from pathlib import Path

import pytest
from given_texts import content, evaluated, given, held_out, written

from tiny_run import command, refused
from transformer import load
from transformer.tasks.pair_scores import given_segmenter


def without_evaluations(folder: Path) -> dict[str, bytes]:
    return {k: v for k, v in content(folder).items() if not k.startswith("evaluations/")}


# -- the run's own test set as another text


def own_test_set(folder: Path, place: Path, task: str) -> tuple[str, ...]:
    """Flags that name the test set of a run, as files."""
    items = held_out(folder)
    if task == "translation":
        sides = [[item[side] for item in items] for side in ("source", "target")]
        source, target = written(place / "own.en", sides[0]), written(place / "own.de", sides[1])
        return f"--input={source}", f"--references={target}"
    if task == "language_model":
        return (f"--input={written(place / 'own.txt', [item['text'] for item in items])}",)
    rows = ["label\ttext", *(f"{item['label']}\t{item['text']}" for item in items)]
    return (f"--input={written(place / 'own.tsv', rows)}",)


FURTHER = {
    "translation": {"loss_ci", "nll_ci", "perplexity_ci", "perplexity_signature"},
    "language_model": {"loss_ci", "nll_ci", "perplexity_ci", "bits_per_byte_ci"},
    "classification": set(),
}


@pytest.mark.parametrize("task", FURTHER)
def test_the_own_test_set_as_a_file_has_the_run_s_own_scores(task, folders, tmp_path):
    folder = folders[task]
    before = without_evaluations(folder)
    results = evaluated(folder, "own", *own_test_set(folder, tmp_path, task))
    assert without_evaluations(folder) == before
    own, given = json.loads(before["results.json"]), results["test"]
    assert {*given} - {*own["test"]} <= FURTHER[task]
    own["test"].pop("seconds")
    assert {name: given[name] for name in own["test"]} == own["test"]
    assert "validation" not in results
    for name in ("step", "averaged_steps", "parameters", "flops_per_token"):
        assert results[name] == own[name]
    after = content(folder)
    texts = [name for name in before if Path(name).stem.split(".")[0] == "test"]
    texts = [name for name in texts if not name.startswith("held_out/")]
    assert texts
    assert {f"evaluations/own/{name}" for name in (*texts, "results.json")} == {
        name for name in after if name.startswith("evaluations/own/")
    }
    for name in texts:
        assert after[f"evaluations/own/{name}"] == before[name]


def test_two_files_and_one_of_rows_are_the_same_text(translator, tmp_path):
    files = own_test_set(translator, tmp_path, "translation")
    rows = [f"{item['source']}\t{item['target']}\tnobody" for item in held_out(translator)]
    two = evaluated(translator, "own", *files)
    one = evaluated(translator, "rows", f"--input={written(tmp_path / 'rows.tsv', rows)}")
    assert one["input"]["digest"] == two["input"]["digest"]
    assert one["test"]["bleu"] == two["test"]["bleu"]
    fields = [f"--config.data.{side}_field={side}" for side in ("source", "target")]
    lines = [json.dumps(item) for item in held_out(translator)]
    file = written(tmp_path / "lines.jsonl", lines)
    assert (
        evaluated(translator, "lines", f"--input={file}", *fields)["input"]["digest"]
        == (one["input"]["digest"])
    )


def test_a_translation_and_its_score_do_not_depend_on_the_other_sentences(translator, tmp_path):
    rows = [f"{item['source']}\t{item['target']}" for item in held_out(translator)]
    losses, texts, scores = [], [], []
    for name, order in (("there", slice(None)), ("back", slice(None, None, -1))):
        file = given(tmp_path / f"{name}.tsv", *rows[order])
        for place, flags in (
            (name, ()),
            (f"{name},batch_size=3", ["--config.decode.batch_size=3"]),
        ):
            results = evaluated(translator, place, file, *flags)
            assert results["settings"] == ({"decode.batch_size": 3} if flags else {})
            losses.append(results["test"]["loss"])
            lines = translator / "evaluations" / place / "translations"
            texts.append((lines / "test.txt").read_text().splitlines()[order])
            found = (lines / "test.scores.tsv").read_text().splitlines()[order]
            scores.append([float(line.split("\t")[0]) for line in found])
    assert len(set(texts[0])) > 1  # a control
    assert texts == texts[:1] * 4
    assert losses == pytest.approx(losses[:1] * 4, rel=1e-6)
    for own in scores:
        assert own == pytest.approx(scores[0], abs=2e-4)


# -- names


def test_a_name_keeps_the_scores_of_one_text(translator, tmp_path):
    folder = "--mode=evaluate", f"--workdir={translator}"
    file = written(tmp_path / "set.tsv", ["a b\ta b", "b c\tb c"])
    before = evaluated(translator, "set", f"--input={file}")
    written(file, ["a b\ta b", "b c\tb d"])
    says = "evaluations/set has the scores of another text", "give this one another --name"
    refused(*folder, f"--input={file}", says=says)
    after = evaluated(translator, "other", f"--input={file}", "--name=other")
    assert after["input"]["digest"] != before["input"]["digest"]
    written(file, ["a b\ta b", "b c\tb c"])
    again = evaluated(translator, "set", f"--input={file}")
    for results in (before, again):
        results["test"].pop("seconds")
        results.pop("sha256")
    assert again == before
    # Nor may the held-out text take it, nor take the name of what it is evaluated with.
    evaluated(translator, "beam_size=1", "--config.decode.beam_size=1")
    says = "has the scores of another text, that the run holds out"
    refused(*folder, f"--input={file}", "--name=beam_size=1", says=says)


@pytest.mark.parametrize("name", ["..", "a/b", "", ".a", "a,b", "a" * 121])
def test_a_name_stays_within_the_folder(name, translator, tmp_path):
    flags = given(tmp_path / "set.tsv", "a\tb"), f"--name={name}"
    refused("--mode=evaluate", f"--workdir={translator}", *flags, says="--name=")


def test_results_that_were_cut_off_leave_no_references(translator, tmp_path):
    lines = translator / "evaluations/cut/translations"
    lines.mkdir(parents=True)
    (lines / "test.reference.1.txt").write_text("of another text\n")
    evaluated(translator, "cut", given(tmp_path / "cut.tsv", "a b\ta b"))
    assert not (lines / "test.reference.1.txt").exists()


# -- long sentences


@pytest.mark.slow
def test_a_sentence_that_is_too_long_to_read_is_translated_in_parts(translator, tmp_path):
    long, short = " ".join("abc"[i % 3] for i in range(47)), "a b"
    pairs = [f"{short}\t{short}", f"{long}\t{long}", f"{short}\t{short}"]
    flags = "--mode=evaluate", f"--workdir={translator}"
    file = f"--input={written(tmp_path / 'long.tsv', pairs)}"
    ended = command(*flags, file)
    assert ended.code == 0, ended.err
    assert "line 2 has a sentence of more than 31 tokens, translated in parts" in ended.out
    assert (
        "1 of 3 pairs have a side of more than 31 tokens, of which the loss counts the first"
        in (ended.out)
    )
    lines = translator / "evaluations/long/translations"
    texts = (lines / "test.txt").read_text().splitlines()
    assert texts == load(translator).translate([short, long, short])
    assert len((lines / "test.source.txt").read_text().splitlines()) == 3
    scores = [line.split("\t") for line in (lines / "test.scores.tsv").read_text().splitlines()]
    assert scores[0] == scores[2]
    run = load(translator)
    parts = given_segmenter(run.config, translator, run.trained.predictor)(long, 2)
    assert [" ".join(parts), len(parts) > 1] == [long, True]
    log_probs, tokens = zip(*run.score(parts, run.translate(parts)), strict=True)
    assert float(scores[1][0]) == pytest.approx(sum(log_probs), abs=1e-3)
    assert int(scores[1][1]) == sum(tokens)
    # A control: cut, as the user asks for.
    ended = command(*flags, file, "--config.decode.split_sentences=never")
    assert "line 2 has 47 tokens: only the first 31 are read" in ended.out
    place = translator / "evaluations/long,split_sentences=never/translations/test.txt"
    assert place.read_text().splitlines()[1] != texts[1]


# -- language models and classifiers


def test_the_signature_of_perplexity_says_what_it_is_of(folders, tmp_path):
    folder = folders["language_model"]
    lines = ["one red cat", "two blue dog", "one one", "red", "two red cat dog"]
    file = given(tmp_path / "text.txt", lines[0], "", *lines[1:])
    scores = evaluated(folder, "text", file)["test"]
    likelihoods = folder / "evaluations/text/likelihoods/test.tsv"
    assert len(likelihoods.read_text().splitlines()) == 5  # a blank line is no document
    assert scores["tokens"] == 3 + 3 + 2 + 1 + 4 + 5  # and the end of each document
    parts = dict(part.split(":") for part in scores["perplexity_signature"].split("|"))
    assert {"per": "token", "eos": "yes", "context": "12", "stride": "12"}.items() <= parts.items()
    assert len(parts["vocabulary"]) >= 8
    for unit in ("word", "byte"):
        name = {"word": "word_perplexity", "byte": "bits_per_byte"}[unit]
        assert f"|per:{unit}|eos:yes|" in scores[f"{name}_signature"]
    nll = -sum(score.log_prob for score in load(folder).score(lines))
    assert scores["nll"] == pytest.approx(nll / scores["tokens"], rel=1e-4)
    size = sum(len(line) + 1 for line in lines)
    assert scores["bits_per_byte"] == pytest.approx(nll / math.log(2) / size, rel=1e-4)
    ratio = scores["nll_ci"] / scores["nll"]
    assert scores["bits_per_byte_ci"] == pytest.approx(scores["bits_per_byte"] * ratio)


def test_a_classifier_is_scored_on_other_texts(folders, tmp_path):
    folder = folders["classification"]
    rows = ["label\ttext", "good\tthe plot is superb .", "bad\tthe cast is fine !"]
    scores = evaluated(folder, "reviews", f"--input={written(tmp_path / 'reviews.tsv', rows)}")
    lines = (folder / "evaluations/reviews/predictions/test.tsv").read_text().splitlines()
    right = [line.split("\t")[0] == line.split("\t")[1] for line in lines]
    assert scores["test"]["accuracy"] == sum(right) / 2
    assert 0 <= scores["test"]["macro_f1"] <= 1
    assert scores["test"]["accuracy_signature"].startswith("classes:2|texts:2|")
