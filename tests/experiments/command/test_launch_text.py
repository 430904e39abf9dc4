"""Text that cannot be trained on is refused before anything is written, and good text is not."""

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
        (without_line, [], ("train.de ends after 39 lines", "train.en")),
        (
            lambda path: path.write_text("\n" * 40),
            [],
            ("too few different", "config.data.test_size=2"),
        ),
        (None, ["data.max_tokens=2"], ("no training text is left", "over config.data.max_tokens")),
        (
            None,
            ["tokenizer.vocab_size=9999"],
            ("tokenizer.vocab_size=9999", "Please set it to a value <= "),
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


def test_good_text_passes_all_checks_up_to_the_training(tiny, texts, tmp_path, monkeypatch):
    # The control: nothing but what the tests above spoil is wrong.
    def reached(trainer):
        raise UserError("training has begun")

    monkeypatch.setattr("transformer.training.loop.Trainer.run", reached)
    workdir = f"--workdir={tmp_path / 'workdir'}"
    refused(f"--config={tiny.config}", workdir, *texts, says="training has begun")
