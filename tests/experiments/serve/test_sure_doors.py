"""Confidence is fitted by one command, and the same in the shell, in Python and over HTTP."""

import itertools

import pytest
from serving import is_one_line, serving

import transformer
from experiments.process import text_io
from experiments.serve.routes import Served
from runs import count_programs
from tiny_run import command, refused, shared_run
from transformer.errors import UserError
from transformer.files import read_json
from transformer.inference.confidence import predict
from transformer.inference.translator import Translator
from transformer.operations import Operation
from transformer.runs.run import Run

TEXTS = ["a b c", "", "d e f", "i j", "k"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A copy of the shared run, which is fitted."""
    folder = shared_run(tmp_path_factory).copy(tmp_path_factory.mktemp("sure") / "run")
    ended = command("--mode=confidence", f"--workdir={folder}", "--least_chrf=20")
    error = read_json(folder / "confidence.json", {}, "")["test"]["lines"]["calibration error"]
    assert f"{error:.1%}" in ended.out
    assert (folder / "figures" / "confidence.png").stat().st_size > 1000
    (folder.parent / "in").write_text("".join(f"{text}\n" for text in TEXTS))
    return folder


def translate(folder, *flags):
    source = f"--input={folder.parent / 'in'}"
    return command("--mode=translate", f"--workdir={folder}", source, *flags)


def test_probabilities_are_those_of_the_tokens_of_all_segments(fitted):
    run, weights = transformer.load(fitted), read_json(fitted / "confidence.json", {}, "")
    segments = ["a b c", "g h"]
    tokens = run.next_tokens(segments, run.translate(segments), num_best=1)
    log_probs = [[token.log_prob for token in each] for each in tokens]
    [sure] = run.confidence(["\n".join(segments)])
    assert [sure.text] == run.translate(["\n".join(segments)])
    line = predict(weights["lines"], [log_probs[0] + log_probs[1]])
    assert sure.probability == pytest.approx(line[0], abs=1e-4)
    words = predict(weights["words"], [[x] for each in log_probs for x in each[:-1]])
    assert sure.words == [
        (word, pytest.approx(x, abs=1e-4)) for word, x in zip(sure.text.split(), words, strict=True)
    ]


def test_shell_python_and_http_are_equally_sure(fitted, monkeypatch):
    monkeypatch.setattr(Operation, "programs", lambda self, rows: iter(()))  # compiles no others
    run = transformer.load(fitted)
    answers = run.confidence(TEXTS)
    assert answers[1].words == []
    assert answers[1].probability == max(each.probability for each in answers)  # nothing to do
    rows = [f"{each.text}\t{each.probability:.4f}" for each in answers]
    assert translate(fitted, "--confidence").out.splitlines() == rows
    [again, other] = run.confidence(["a b c"] * 2, [answers[0].text, "p o n"])
    assert again.probability == pytest.approx(answers[0].probability, abs=1e-4)
    assert abs(other.probability - again.probability) > 0.01
    with serving([Served("run", run)]) as site:
        fields = {"texts": TEXTS}
        sure = site.post("translate", {**fields, "confidence": True}).json()["translations"]
        plain = site.post("translate", fields).json()["translations"]
    for [first, *_], each in zip(sure, answers, strict=True):
        assert first.pop("confidence") == pytest.approx(each.probability, abs=1e-4)
        assert [word for word, _ in first.pop("words")] == [word for word, _ in each.words]
    assert sure == plain


@pytest.mark.full
def test_nothing_is_compiled_for_a_request_to_a_calibrated_run(fitted):
    run = Served("run", transformer.load(fitted, {"decode.batch_size": 6}))  # fewer than ROWS
    for _, compile_program in [
        *run.routes["translate"].programs(),
        *run.routes["confidence"].programs(),
    ]:
        compile_program()
    for count in (8, 3, 1):
        plan = run.routes["confidence"].plan({"texts": ["a b"] * count})
        with count_programs() as programs:
            run.routes["confidence"].compute(plan.groups[0], plan.items)
        assert programs == []


def test_the_least_sure_lines_come_first_even_after_an_interruption(fitted, monkeypatch):
    translate(fitted, "--sort=confidence", f"--output={fitted.parent / 'first'}")
    table = (fitted.parent / "first").read_text()
    rows = [row.split("\t") for row in table.splitlines()]
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    assert sorted((row[0], row[2]) for row in rows) == [*zip("12345", TEXTS, strict=True)]
    monkeypatch.setattr(text_io, "LINES_AT_ONCE", 2)
    output, usual, calls = fitted.parent / "out", Translator.translate, itertools.count()

    def stop(self, *arguments, **options):
        if next(calls) == 1:
            raise OSError(28, "No space left on device")
        return usual(self, *arguments, **options)

    monkeypatch.setattr(Translator, "translate", stop)
    flags = "--sort=confidence", f"--output={output}"
    assert (translate(fitted, *flags).code, output.exists()) == (2, False)
    assert "going on after 2 lines" in translate(fitted, *flags).err
    assert output.read_text() == table


def test_what_does_not_fit_together_is_refused(fitted, tmp_path):
    run = "--mode=translate", f"--workdir={fitted}"
    refused(
        *run,
        "--sort=confidence",
        stdin=b"a\n",
        says="use --sort=confidence with --input and --output",
    )
    refused(*run, "--confidence", "--config.decode.num_best=2", says="decode.num_best=2")
    transformer.load("quickstart").export("bundle", tmp_path / "bundle")
    refused("--mode=confidence", f"--workdir={tmp_path / 'bundle'}", says="no held-out text")
    bare, missing = transformer.load(tmp_path / "bundle"), "confidence.json is missing: the mode"
    with pytest.raises(UserError, match=missing):
        bare.confidence(["We sleep."])
    with serving([Served("bundle", bare)]) as site:
        answer = site.post("translate", {"texts": ["We sleep."], "confidence": True})
    is_one_line(answer, 400, missing)
    Run(fitted).delete_results()  # as further training does
    assert not (fitted / "confidence.json").exists()
