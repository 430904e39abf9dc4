"""Text that cannot be trained on is refused before anything is written, and good text is not."""

from tiny_run import refused
from transformer.errors import UserError


def test_text_that_cannot_be_trained_on_is_refused_before_anything_is_written(
    refuse, tiny, tmp_path, monkeypatch
):
    for side, word in (("en", "cat"), ("de", "Katze")):
        lines = [f"{word} {chr(97 + i % 26)} {i}\n" for i in range(40)]
        (tmp_path / f"train.{side}").write_text("".join(lines))
    keys = {"data.source": "files", "data.path": tmp_path, "data.max_oov_rate": 0.5}
    keys |= {"data.validation_size": 2, "data.test_size": 2}
    keys |= {"tokenizer.kind": "bpe", "tokenizer.vocab_size": 60}
    texts = [f"--config.{key}={value}" for key, value in keys.items()]
    says = ("no training text is left", "over config.data.max_tokens")
    refuse(*texts, "--config.data.max_tokens=2", says=says)
    says = ("tokenizer.vocab_size=9999", "Please set it to a value <= ")
    refuse(*texts, "--config.tokenizer.vocab_size=9999", says=says)

    def reached(trainer):
        raise UserError("training has begun")

    # The control: nothing else is wrong.
    monkeypatch.setattr("transformer.training.loop.Trainer.run", reached)
    workdir = f"--workdir={tmp_path / 'workdir'}"
    refused(f"--config={tiny.config}", workdir, *texts, says="training has begun")
    (tmp_path / "train.de").write_text("\n" * 40)
    says = ("too few different", "config.data.test_size=2")
    refused(f"--config={tiny.config}", workdir + "2", *texts, says=says)
