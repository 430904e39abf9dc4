"""The part `decoding`: beam search with the paper's base model."""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from experiments.studies.accelerator.parts import Order, within
from experiments.studies.accelerator.steps import DTYPES
from experiments.studies.accelerator.synthetic import SyntheticTask, paper_config, random_ids
from transformer.data.tokenizer import EOS_ID
from transformer.inference.search import BeamSearch

BEAM, SENTENCES, LENGTH, ROUNDS = 4, 64, 32, 3
TOY_SENTENCES, TOY_LENGTH = 3, 8


def measure(order: Order) -> Iterator[dict[str, Any]]:
    """Yields the speed of searches with each dtype.

    The model is not trained, so it seldom ends a sentence before the limit, the source's length.
    """
    for dtype in within(order.seconds, DTYPES):
        yield _measure(dtype, order.toy)


def _measure(dtype: str, toy: bool) -> dict[str, Any]:
    config = paper_config("base", dtype, toy)
    rows, length = (TOY_SENTENCES, TOY_LENGTH) if toy else (SENTENCES, LENGTH)
    task = SyntheticTask(config, [length])
    variables = {"params": task.init_params(jax.random.key(config.seed))}
    vocab_size = config.tokenizer.vocab_size
    source = random_ids(np.random.default_rng(config.seed), rows, length, vocab_size)
    source[:, -1] = EOS_ID
    search, limits = (
        BeamSearch(task.predictor.model, config.decode),
        np.full(rows, length, np.int32),
    )
    seconds, hypotheses = [], []
    for _ in range(1 + ROUNDS):
        start = time.monotonic()
        hypotheses = search.search(variables, source, limits, BEAM, length)
        seconds.append(time.monotonic() - start)
    tokens = sum(int(each.lengths[0]) for each in hypotheses)
    each = statistics.median(seconds[1:])
    return {
        "dtype": dtype,
        "beam": BEAM,
        "sentences": rows,
        "length": length,
        "compile_seconds": seconds[0] - each,
        "sentences_per_second": rows / each,
        "tokens_per_second": tokens / each,
        "tokens_per_sentence": tokens / rows,
    }
