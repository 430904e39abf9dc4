"""Modes that answer lines refuse bad ones in time, and write a line for each; flags have effect."""

import shutil

import pytest

from task_runs import train_runs
from tiny_run import command, refused
from transformer.inference.classifier import TextClassifier
from transformer.inference.generator import Continuation, Generator
from transformer.inference.hypotheses import Translation
from transformer.inference.translator import Translator


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of a run of each task; nothing may be written there."""
    return train_runs(tmp_path_factory)


# -- bad lines


@pytest.mark.parametrize(
    ("mode", "predictor", "method", "good", "bad", "says"),
    [
        ("translate", Translator, "translate", b"a", b"\xff", "line 6: byte 0xFF is not UTF-8"),
        ("score", Translator, "score", b"a\tb", b"a", "line 6 has 1 column"),
        ("generate", Generator, "write", b"one", b"zebra", "line 6 has zebra"),
    ],
)
def test_a_bad_line_of_a_file_is_refused_before_any_line_is_answered(
    runs, tmp_path, monkeypatch, mode, predictor, method, good, bad, says
):
    def answer(*arguments, **options):
        raise AssertionError("a line is answered")

    monkeypatch.setattr("experiments.process.text_io.LINES_AT_ONCE", 2)
    monkeypatch.setattr(predictor, method, answer)
    run = runs["language_model" if mode == "generate" else "translation"]
    path, output = tmp_path / "in", tmp_path / "out"
    arguments = f"--mode={mode}", f"--workdir={run}", f"--input={path}", f"--output={output}"
    path.write_bytes(b"\n".join([good] * 5 + [bad, good]))
    refused(*arguments, says=says)
    assert not output.exists()
    path.write_bytes(b"\n".join([good] * 7))  # the control
    with pytest.raises(AssertionError, match="a line is answered"):
        command(*arguments)


# -- a line for each line


@pytest.mark.parametrize("num_best", [1, 2])
def test_a_translation_with_ends_of_lines_is_one_line(runs, monkeypatch, num_best):
    def translate(self, variables, lines, **options):
        return [[Translation("x\r\ny" if line == "a" else line, -1.5, 3)] for line in lines]

    monkeypatch.setattr(Translator, "translate", translate)
    arguments = "--mode=translate", f"--workdir={runs['translation']}"
    ended = command(*arguments, f"--config.decode.num_best={num_best}", stdin=b"a\nb\nc\n")
    assert ended.code == 0, ended
    assert [row.split("\t")[-1] for row in ended.out.split("\n")] == ["x y", "b", "c", ""]


def test_a_continuation_with_ends_of_lines_is_one_line(runs, monkeypatch):
    def write(self, variables, prompts, num_best, numbers):
        return [[Continuation("a\\\r\nb", None)] for _ in prompts]

    monkeypatch.setattr(Generator, "write", write)
    arguments = "--mode=generate", f"--workdir={runs['language_model']}"
    ended = command(*arguments, stdin=b"one\ntwo\n")
    assert ended.code == 0, ended
    assert ended.out == "a\\\\\\r\\nb\n" * 2


# -- flags of attention


def test_a_layer_and_a_head_are_refused_by_a_classifier_without_heads(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(TextClassifier, "batch_attention", lambda *arguments: {})
    folder = shutil.copytree(runs["classification"], tmp_path / "run")
    arguments = "--mode=attention", f"--workdir={folder}", "--sentence=the plot is dull"
    for flag in ("--layer=1", "--head=2"):
        refused(*arguments, flag, says="--layer and --head are for models with attention heads")
    ended = command(*arguments)  # the control
    assert ended.code == 0, ended
    assert ended.out.endswith("reading.png\n")
