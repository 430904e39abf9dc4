"""Modes that answer lines refuse bad ones in time, and write a line for each."""

import shutil

from tiny_run import command, refused
from transformer.inference.generator import Continuation, Generator
from transformer.inference.hypotheses import Translation
from transformer.inference.translator import Translator

# -- bad lines


def test_a_bad_line_of_a_file_is_refused_before_any_line_is_answered(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.process.text_io.LINES_AT_ONCE", 2)
    monkeypatch.delattr(Generator, "write")
    path, output = tmp_path / "in", tmp_path / "out"
    path.write_bytes(b"one\n" * 5 + b"zebra\none\n")
    folder = loaded["language_model"].folder
    arguments = f"--workdir={folder}", f"--input={path}", f"--output={output}"
    refused("--mode=generate", *arguments, says="line 6 has zebra")
    assert not output.exists()


def test_a_run_that_is_still_in_training_answers_several_chunks(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.process.text_io.LINES_AT_ONCE", 1)
    run = shutil.copytree(loaded["translation"].folder, tmp_path / "run")
    (run / "weights.json").unlink()  # which the end of the training writes
    (tmp_path / "in").write_text("a\nb\nc\n")
    files = f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}"
    assert command(f"--workdir={run}", "--mode=translate", *files).code == 0


# -- a line for each line


def test_a_translation_with_ends_of_lines_is_one_line(loaded, monkeypatch):
    def translate(self, variables, lines, **options):
        return [[Translation("x\r\ny\u2028\r" if line == "a" else line, -1.5, 3)] for line in lines]

    monkeypatch.setattr(Translator, "translate", translate)
    arguments = "--mode=translate", f"--workdir={loaded['translation'].folder}"
    ended = command(*arguments, stdin=b"a\nb\nc\n")
    assert ended.code == 0, ended
    assert ended.out.split("\n") == ["x y\u2028 ", "b", "c", ""]


def test_a_continuation_with_ends_of_lines_is_one_line(loaded, monkeypatch):
    def write(self, variables, prompts, num_best, numbers):
        return [[Continuation("a\\\r\nb", None)] for _ in prompts]

    monkeypatch.setattr(Generator, "write", write)
    arguments = "--mode=generate", f"--workdir={loaded['language_model'].folder}"
    ended = command(*arguments, stdin=b"one\ntwo\n")
    assert ended.code == 0, ended
    assert ended.out == "a\\\\\\r\\nb\n" * 2
