"""The parts `step` and `chunks`: the training step of the paper's models."""

import functools
import itertools
import logging
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments.studies.accelerator.parts import Order, within
from experiments.studies.accelerator.synthetic import MODELS, SyntheticTask, paper_config
from transformer import losses
from transformer.errors import one_line
from transformer.inference.base import Params
from transformer.progress import parameter_counts
from transformer.run import Run
from transformer.train import Trainer

logger = logging.getLogger(__name__)

LENGTHS, TOY_LENGTHS = (32, 16, 64), (8,)  # tokens of a sentence; the first is that of `chunks`
DTYPES = ("bfloat16", "float32")
CHUNKS, TOY_CHUNKS = (2**20, 2**23, 2**26), (2**8, 2**20)
ROUNDS, STEPS, TOY_STEPS = 3, 10, 1
MAX_SECONDS = 20.0  # of a setting's rounds, after which no further one is begun


class Setting(NamedTuple):
    """A model, a dtype of its activations, and a length of sentences."""

    model: str
    dtype: str
    length: int


def settings(toy: bool) -> list[Setting]:
    """Returns all settings, the most valuable ones first."""
    lengths = TOY_LENGTHS if toy else LENGTHS
    all_of_them = (
        Setting(model, dtype, length)
        for length, dtype, model in itertools.product(lengths, DTYPES, MODELS)
    )
    # Both dtypes of the first length, then the other lengths: those of the first dtype before.
    return sorted(
        all_of_them, key=lambda own: own.length != lengths[0] and 1 + DTYPES.index(own.dtype)
    )


def measure(order: Order) -> Iterator[dict[str, Any]]:
    """Yields the costs of a step of each setting, see `measure_setting`."""
    for setting in within(order.seconds, settings(order.toy)):
        yield {**setting._asdict(), **_tried(setting, order.toy)}


def measure_chunks(order: Order) -> Iterator[dict[str, Any]]:
    """Yields the same of the base model, for several numbers of logits held at a time."""
    setting = settings(order.toy)[0]
    for logits in within(order.seconds, TOY_CHUNKS if order.toy else CHUNKS):
        with mock.patch.dict(losses.CHUNK_LOGITS, {jax.default_backend(): logits}):
            found = _tried(setting, order.toy)
        yield {**setting._asdict(), "logits": logits, **found}


def _tried(setting: Setting, toy: bool) -> dict[str, Any]:
    """The costs of a step, or the line `error` if it does not fit."""
    try:
        found = measure_setting(setting, toy)
    except Exception as error:  # which also comes of a compiler, or of memory that is too small
        found = {"error": one_line(f"{type(error).__name__}: {error}")[:200]}
    logger.info(f"{setting}: {found}")
    return found


def measure_setting(setting: Setting, toy: bool) -> dict[str, Any]:
    """Returns the result of `measure_step` for a model of the paper."""
    config, steps = paper_config(setting.model, setting.dtype, toy), TOY_STEPS if toy else STEPS
    return measure_step(config, setting.length, steps, params=initial_params(setting.model, toy))


@functools.cache
def initial_params(model: str, toy: bool) -> Params:
    """Returns the parameters of a model, on the host.

    The program that draws them takes seconds to compile, and they are those of all settings.
    """
    config = paper_config(model, DTYPES[0], toy)
    drawn = SyntheticTask(config, LENGTHS).init_params(jax.random.key(config.seed))
    return jax.device_get(drawn)


def measure_step(
    config: ConfigDict,
    length: int,
    steps: int,
    min_seconds: float = 0.0,
    max_bytes: float = math.inf,
    params: Params | None = None,
) -> dict[str, Any]:
    """Returns seconds, memory and FLOPs of the training step for one batch.

    `step_ms` is the median of rounds of several steps, which follow each other as in training;
    `program_bytes` is what the compiler says, with the state; `device_bytes` the most that the
    device has held in this process so far, None if it does not count.

    Args:
      length: tokens of each sentence.
      steps: of a round.
      min_seconds: of all rounds together.
      max_bytes: a program that needs more is not run and has no times.
      params: those to start with; None draws them.
    """
    task = SyntheticTask(config, [length])
    with tempfile.TemporaryDirectory() as name:  # a run has a folder, and this one leaves none
        run = Run(task, config, Path(name))
        try:
            trainer = Trainer([run])
            state = trainer.placement.put([run.fresh_state(params)])
            batch = trainer.placement.put_batch(task.plan[0])
            start = time.monotonic()
            program = trainer.train_step.lower(state, batch, trainer.hparams).compile()
            compiled = time.monotonic() - start
            flops = task.predictor.model.flops_per_token(state.params)
            parameters = sum(parameter_counts(state.params).values())
            held = program.count_bytes()
            arguments = program, state, batch, trainer.hparams
            each = _time(*arguments, steps, min_seconds) if held <= max_bytes else math.nan
        finally:
            run.close()
    tokens, stats = task.plan[0].labels.size, jax.devices()[0].memory_stats()
    found = {
        "rows": tokens // length,
        "devices": jax.device_count(),
        "parameters": parameters,
        "compile_seconds": compiled,
        "step_ms": 1000 * each,
        "tokens_per_second": tokens / each,
        "flops_per_token": flops,
        "flops_per_second": flops * tokens / each,
        "program_bytes": held,
        "device_bytes": (stats or {}).get("peak_bytes_in_use"),
    }
    return {name: number for name, number in found.items() if number == number}  # without NaN


def _time(
    program: Any, state: Any, batch: Any, hparams: Any, steps: int, min_seconds: float
) -> float:
    """The seconds of a step; the first one is not counted."""
    state, _ = jax.block_until_ready(program(state, batch, hparams))
    seconds = []
    while (spent := steps * sum(seconds)) < min_seconds or (
        len(seconds) < ROUNDS and spent < MAX_SECONDS
    ):
        start = time.monotonic()
        for _ in range(steps):
            state, _ = program(state, batch, hparams)
        jax.block_until_ready(state)
        seconds.append((time.monotonic() - start) / steps)
    return float(np.median(seconds))
