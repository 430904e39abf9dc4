"""Text that cannot be trained on is refused before anything is written, and good text is not."""

from pathlib import Path

import pytest

from tiny_run import refused
from transformer.errors import UserError


@pytest.fixture
def texts(tmp_path):
    """Arguments that train on two good files of 40 lines."""
    for side, word in (("en", "cat"), ("de", "Katze")):
        lines = [f"{word} {chr(97 + i % 26)} {i}" for i in range(40)]
        (tmp_path / f"train.{side}").write_text("\n".join(lines) + "\n")
    return [
        "--config.data.source=files",
        f"--config.data.path={tmp_path}",
        "--config.data.validation_size=2",
        "--config.data.test_size=2",
        "--config.tokenizer.kind=bpe",
        "--config.tokenizer.vocab_size=60",
        "--config.data.max_oov_rate=0.5",
    ]


def without_line(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))


@pytest.mark.parametrize(
    ("spoil", "arguments", "says"),
    [
        (Path.unlink, [], ("train.de", "train.en")),
        (without_line, [], ("train.de ends after 39 lines", "train.en")),
        (lambda path: path.write_bytes(b"a\n\xff\n" * 20), [], ("train.de, line 2", "UTF-8")),
        (
            lambda path: path.write_text("\n" * 40),
            [],
            ("too few different", "config.data.test_size=2"),
        ),
        (
            None,
            ["data.max_tokens=2"],
            ("no training text is left", "over config.data.max_tokens"),
        ),
        (
            None,
            ["tokenizer.vocab_size=9999"],
            ("tokenizer.vocab_size=9999", "at most", "set config.tokenizer"),
        ),
        (
            None,
            ["tokenizer.joint=False"],
            ("tied_embeddings='all'", "set config.tokenizer.joint=True"),
        ),
        (None, ["data.path=/nowhere"], ("/nowhere", "check config.data.path")),
    ],
)
def test_text_that_cannot_be_trained_on_is_refused_before_anything_is_written(
    refuse, texts, tmp_path, spoil, arguments, says
):
    if spoil:
        spoil(tmp_path / "train.de")
    refuse(*texts, *(f"--config.{argument}" for argument in arguments), says=says)


@pytest.fixture
def begin(tiny, tmp_path, monkeypatch):
    """Starts a training with these arguments that ends where its first step would be."""

    def reached(trainer):
        raise UserError("training has begun")

    monkeypatch.setattr("transformer.training.loop.Trainer.run", reached)

    def train(*arguments):
        workdir = f"--workdir={tmp_path / f'workdir_{len(arguments)}'}"
        return refused(f"--config={tiny.config}", workdir, *arguments, says="training has begun")

    return train


def test_good_text_passes_all_checks_up_to_the_training(begin, texts):
    # The control of the tests above: nothing but what they spoil is wrong.
    begin(*texts)
    begin(*texts, "--config.tokenizer.joint=False", "--config.model.tied_embeddings=decoder")


def test_pairs_that_were_held_out_are_counted_apart_from_those_kept(begin, texts, tmp_path):
    kept = "kept 36 of 36 sentence pairs"
    assert f"{kept}; held out before: 2 for validation, 2 for test\n" in begin(*texts).out
    for side in ("en", "de"):
        (tmp_path / f"test.{side}").write_text("a\n")
    files = ["--config.data.test_source=test.en", "--config.data.test_target=test.de"]
    ended = begin(*texts, *files)
    assert "kept 38 of 38 sentence pairs; held out before: 2 for validation\n" in ended.out
    assert "kept 200 of 200 sentence pairs\n" in begin().out  # of a synthetic corpus
