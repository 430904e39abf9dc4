"""Scores of a run on another text than its own."""

import json
import math
import shutil
from pathlib import Path

import pytest
import sacrebleu

from task_runs import train_runs
from tiny_run import command, refused, translators_once
from transformer import load
from transformer.data.held_out import path_of
from transformer.errors import UserError
from transformer.tasks.pair_scores import given_segmenter

REFERENCES = "x y"  # of every sentence, as a reference that is never right


@pytest.fixture(scope="module", autouse=True)
def once():
    with translators_once():
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A copy of the run of each task, which is evaluated, by its task."""
    place = tmp_path_factory.mktemp("runs")
    return {
        task: Path(shutil.copytree(folder, place / task))
        for task, folder in train_runs(tmp_path_factory).items()
    }


@pytest.fixture(scope="module")
def translator(folders):
    return folders["translation"]


def held_out(folder: Path) -> list[dict]:
    return [json.loads(line) for line in path_of(folder, "test").read_text().splitlines()]


def written(path: Path, lines) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def given(path: Path, *lines) -> str:
    """The flag that names a file of these lines."""
    return f"--input={written(path, lines)}"


def evaluated(folder: Path, name: str, *flags) -> dict:
    """The results of an evaluation, which must be in a folder of this name."""
    ended = command("--mode=evaluate", f"--workdir={folder}", *flags)
    assert ended.code == 0, ended.err
    return json.loads((folder / "evaluations" / name / "results.json").read_text())


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


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


# -- several references


def test_scores_of_several_references_are_those_of_sacrebleu(translator, tmp_path):
    items = held_out(translator)
    sources, first = ([item[side] for item in items] for side in ("source", "target"))
    found = load(translator).translate(sources)
    lists = [first, [REFERENCES] * len(items), [*found[:3], *first[3:]]]
    files = [written(tmp_path / f"reference{i}", own) for i, own in enumerate(lists)]
    results = evaluated(
        translator,
        "news",
        f"--input={written(tmp_path / 'news.en', sources)}",
        f"--references={','.join(map(str, files))}",
        "--name=news",
    )
    scores = results["test"]
    for name, metric in (("bleu", "BLEU"), ("chrf", "CHRF"), ("ter", "TER")):
        one, several = (
            getattr(sacrebleu, metric)().corpus_score(found, own) for own in ([first], lists)
        )
        assert scores[name] == several.score
        assert scores[name] != one.score  # a control
        assert "nrefs:3|" in scores[f"{name}_signature"]
        assert scores[f"{name}_ci"] >= 0
    matches = sum(map(lambda text, *right: text in right, found, *lists))
    assert scores["exact_match"] == pytest.approx(100 * matches / len(items))
    assert matches >= 3
    lines = translator / "evaluations/news/translations"
    for name, own in zip(("", ".1", ".2"), lists, strict=True):
        assert (lines / f"test.reference{name}.txt").read_text().splitlines() == own
    # The loss is of the first alone.
    own = json.loads((translator / "results.json").read_text())["test"]
    assert scores["loss"] == own["loss"]
    assert "|reference:first|" in scores["perplexity_signature"]
    assert scores["perplexity_ci"] > 0


def test_python_has_the_same_scores(translator, tmp_path):
    items = held_out(translator)
    sources, first = ([item[side] for item in items] for side in ("source", "target"))
    second = [REFERENCES] * len(items)
    files = [written(tmp_path / f"reference{i}", own) for i, own in enumerate((first, second))]
    flags = given(tmp_path / "python.en", *sources), f"--references={files[0]},{files[1]}"
    expected = evaluated(translator, "python", *flags)["test"]
    expected.pop("seconds")
    run, before = load(translator), content(translator)
    assert run.evaluate(sources, first, second) == expected
    assert run.evaluate(sources, first)["bleu"] == run.results["test"]["bleu"]
    assert content(translator) == before
    for wrong in ([], [first[1:]], [first, second[1:]]):
        with pytest.raises(UserError, match=f"evaluate has {len(items)} texts and "):
            run.evaluate(sources, *wrong)


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


# -- what is refused


def bad_input(place: Path, name: str, text: str | bytes) -> Path:
    path = place / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


BAD = {
    "other number": (("a", "a\nb\n"), ("b", "a\n"), ("a: 2 and", "b: 1")),
    "empty": (("a", ""), ("b", ""), "is empty"),
    "empty rows": (("a.tsv", ""), None, "is empty"),
    "one column": (("a.tsv", "a\nb\n"), None, ("no tab in its first line", "--references")),
    "sources alone": (("a.txt", "a\nb\n"), None, ("no tab in its first line", "--references")),
    "broken row": (("a.tsv", "a\tb\nc\n"), None, ("line 2", "1 column(s)")),
    "not UTF-8": (("a", b"a\xff\n"), ("b", "a\n"), ("line 1", "not UTF-8")),
    "blank source": (("a", "a\n \n"), ("b", "a\nb\n"), "sentence 2 is blank"),
    "blank reference": (("a", "a\nb\n"), ("b", "a\n\n"), "sentence 2, its reference is blank"),
    "rows": (("a", "a\n"), ("b.jsonl", "{}\n"), "b.jsonl is a file of rows"),
    "rows and references": (("a.jsonl", "{}\n"), ("b", "a\n"), "a.jsonl is a file of rows"),
    "no such field": (("a.jsonl", '{"x": 1}\n'), None, ("no field '0'", "data.source_field")),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_scored_is_named_in_one_line(case, translator, tmp_path):
    source, reference, says = BAD[case]
    flags = [f"--input={bad_input(tmp_path, *source)}"]
    flags += [f"--references={bad_input(tmp_path, *reference)}"] if reference else []
    before = content(translator)
    refused("--mode=evaluate", f"--workdir={translator}", *flags, says=says)
    assert content(translator) == before


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--input=none.tsv"], "--input=none.tsv: there is no such file"),
        (["--input="], "--input=: there is no such file"),
        (["--input=FILE", "--references=none,FILE"], "--references=none: there is no such file"),
        (["--references=FILE"], ("--references=", "name it with --input")),
        (["--name=x"], ("--name=x is for another text", "--input")),
        (["--input=FILE", "--source_tag=<2de>"], "source_tag=<2de> is for runs with tags"),
        (["--input=FILE", "--config.model.d_model=8"], "another config: model.d_model"),
        (["--input=sacrebleu:wmt14/full"], ("names no languages", "sacrebleu:wmt14/full,en-de")),
        (["--input=sacrebleu:wmt41,en-de"], ("no test set 'wmt41'", "did you mean wmt")),
        (["--input=sacrebleu:wmt14/full,en-xx"], ("languages of wmt14/full are", "en-de")),
        (["--input=sacrebleu:wmt14/full,en-de", "--references=FILE"], "leave out --references"),
    ],
)
def test_flags_that_do_not_fit_are_refused_in_one_line(flags, says, translator, tmp_path):
    file = str(written(tmp_path / "set.tsv", ["a\tb"]))
    flags = [flag.replace("FILE", file) for flag in flags]
    refused("--mode=evaluate", f"--workdir={translator}", *flags, says=says)


def test_the_third_reference_is_checked_as_the_first_is(translator, tmp_path):
    lists = ["a", "b"], ["a", "b"], ["a", ""]
    files = [written(tmp_path / f"r{i}", own) for i, own in enumerate(lists)]
    flags = f"--input={files[0]}", f"--references={','.join(map(str, files))}"
    run = "--mode=evaluate", f"--workdir={translator}"
    refused(*run, *flags, says=("r2, sentence 2 is blank", "on all sides"))
    written(files[2], ["a", "b", "c"])
    refused(*run, *flags, says=("r0: 2 and", "r2: 3"))


@pytest.mark.parametrize("task", ["language_model", "classification"])
def test_flags_of_translators_are_refused_for_other_tasks(task, folders, tmp_path):
    run = "--mode=evaluate", f"--workdir={folders[task]}"
    empty = f"--input={written(tmp_path / 'empty.tsv', [])}"
    refused(*run, empty, "--references=x", says=("--references=x is for config.task=translation",))
    refused(*run, empty, says="is empty")


def test_a_label_that_the_classifier_never_saw_is_named(folders, tmp_path):
    rows = ["label\ttext", "good\tthe plot", "mixed\tthe cast", "mixed\tthe film"]
    file = written(tmp_path / "reviews.tsv", rows)
    says = "the classifier never saw: 'mixed' of 2 texts", "its classes are 'bad', 'good'"
    run = "--mode=evaluate", f"--workdir={folders['classification']}"
    refused(*run, f"--input={file}", says=says)


def test_a_run_that_is_not_finished_is_not_scored(translator, tmp_path):
    folder = Path(shutil.copytree(translator, tmp_path / "copy"))
    file = given(tmp_path / "unfinished.tsv", "a b\ta b")
    run = "--mode=evaluate", f"--workdir={folder}", file
    results = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps(results | {"step": 20}))  # trained further
    refused(*run, says=("is not finished", "resume its training"))
    (folder / "results.json").unlink()
    refused(*run, says="is not finished")
    refused(run[0], f"--workdir={tmp_path / 'none'}", file, says="has no run")
    # Checkpoints are not needed.
    (folder / "results.json").write_text(json.dumps(results))
    shutil.rmtree(folder / "checkpoints")
    assert evaluated(folder, "unfinished", file)["step"] == results["step"]
