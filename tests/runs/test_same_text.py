"""A run goes on only with the text and the tokenizer that it began with."""

import re

import pytest

from configs import base
from tiny_run import content, refused
from transformer import tasks
from transformer.errors import UserError
from transformer.runs import workdir
from transformer.tasks.translation import TranslationTask


def test_another_tokenizer_or_another_text_is_refused_and_replaces_nothing(tiny, copy):
    config = workdir.load_config(copy)
    config.data.seed = 1
    other = TranslationTask(config)
    assert other.fingerprint() != TranslationTask(workdir.load_config(copy)).fingerprint()
    before = content(copy)
    # As if the files of the text had been edited: the config is the same, the text is not.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            TranslationTask, "__init__", lambda self, *_, **__: vars(self).update(vars(other))
        )
        says = ("were trained with the tokenizer", "restore the original text")
        refused(f"--config={tiny.config}", f"--workdir={copy}", says=says)
    assert content(copy) == before
    with pytest.raises(UserError, match=r"validation.jsonl is not the text of this"):
        other.save_assets(copy)
    refused("--mode=translate", f"--workdir={copy}", says="restore the original text or tokenizer")


SOURCES = {"translation": "copy", "language_model": "copy", "classification": "toy_reviews"}
SMALL = {
    "tokenizer.kind": "word",
    "tokenizer.vocab_size": 60,
    "data.max_oov_rate": 1.0,
    "data.context": 16,
    "model.d_model": 8,
    "model.num_heads": 2,
}


@pytest.mark.parametrize("task", ["translation", "language_model", "classification"])
def test_the_digest_of_a_text_is_that_of_its_tokens(tmp_path, task):
    def digest(changes, cache="cache"):
        config = base.get_config()
        config.task, config.data.source = task, SOURCES[task]
        config.data.cache_dir = str(tmp_path / cache)
        config.data.train_size, config.data.validation_size, config.data.test_size = 300, 20, 20
        config.update_from_flattened_dict({**SMALL, **changes})
        return tasks.REGISTRY[task](config).text_digest()

    own = digest({})
    assert re.fullmatch("[0-9a-f]{24}", own)
    assert digest({}) == digest({}, "another cache") == own
    assert digest({"seed": 5, "data.batch_tokens": 512}) == own
    assert digest({"data.seed": 7}) != own
