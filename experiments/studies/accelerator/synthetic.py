"""The translators of the paper with token ids in place of text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from configs import transformer_base, transformer_big
from experiments.studies.accelerator.parts import shrink
from transformer.data.parallel.batches import Batch, make_batch
from transformer.data.plan import Plan
from transformer.data.tokenizer import Tokenizer
from transformer.inference.translator import Translator
from transformer.tasks.translation import TranslationTask, TranslationText, make_translator

MODELS = {"base": transformer_base.get_config, "big": transformer_big.get_config}
FIRST_ID = 4  # after padding, unknown, begin and end


def paper_config(model: str, dtype: str, toy: bool) -> ConfigDict:
    """Returns the config of a model of Vaswani et al. 2017, "base" or "big"."""
    config = MODELS[model]()
    config.model.dtype = dtype
    return shrink(config) if toy else config


def random_ids(
    rng: np.random.Generator, rows: int, length: int, vocab_size: int
) -> Int[np.ndarray, "rows length"]:
    """Returns sentences of random tokens."""
    return rng.integers(FIRST_ID, vocab_size, (rows, length), np.int32)


class Vocabulary(Tokenizer):
    """A tokenizer that knows no text, only how many tokens there are."""

    def __init__(self, size: int):
        self.model, self.origin, self.vocab_size = b"", "", size


class FullBatches(Plan[Batch]):
    """One batch of each length, without padding, as large as the config has them."""

    def __init__(self, config: ConfigDict, lengths: Sequence[int]):
        self.config, self.lengths, self.epoch_length = config, lengths, len(lengths)

    def __getitem__(self, i: int) -> Batch:
        data, number = self.config.data, i % self.epoch_length
        length = self.lengths[number]
        rows = max(1, data.batch_tokens // length // data.batch_multiple) * data.batch_multiple
        rng = np.random.default_rng((self.config.seed, i))
        vocab_size = self.config.tokenizer.vocab_size
        source, target = (random_ids(rng, rows, length - 1, vocab_size) for _ in range(2))
        return make_batch(list(source), list(target), rows, length)


class SyntheticTask(TranslationTask):
    """The training of a translator on random tokens."""

    plan: Any

    def __init__(self, config: ConfigDict, lengths: Sequence[int]):
        self._lengths = lengths
        super().__init__(config)

    def read_text(self, folder: Path | None) -> TranslationText:
        return TranslationText({}, None)

    def make_predictor(self) -> Translator:
        vocabulary = Vocabulary(self.config.tokenizer.vocab_size)
        return make_translator(self.config, vocabulary, vocabulary)

    def make_plan(self) -> Any:
        return FullBatches(self.config, self._lengths)
