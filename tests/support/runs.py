"""Runs small enough for tests, without a network or of toy sequences, and a count of programs."""

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring

from configs import base
from transformer.analysis.snapshots import Snapshot
from transformer.data.batches import BatchPlan
from transformer.data.buckets import WHOLE, Plan
from transformer.data.token_store import TokenStore
from transformer.files import SEAL
from transformer.inference.hypotheses import BLANK
from transformer.inference.translator import Translator
from transformer.model.losses import TokenSums
from transformer.tasks.base import Task
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun

VOCABULARY = 11
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"  # also of programs found in a cache
TIMING = ("seconds", "tokens_per_second", SEAL)


class SpoiltPlan(Plan):
    """A plan whose batches `bad` make the loss not finite, and which calls `on_read` for each."""

    def __init__(self, plan: BatchPlan, bad=(), on_read=lambda i: None):
        self.plan, self.bad, self.on_read = plan, bad, on_read
        self.epoch_length = plan.epoch_length

    def __getitem__(self, i: int):
        return self._spoil(i, self.plan[i])

    def start_at(self, i: int, stream, part=WHOLE):
        for j, batch in enumerate(self.plan.start_at(i, stream, part), i):
            self.on_read(j)
            yield self._spoil(j, batch)

    def _spoil(self, i: int, batch):
        return batch._replace(source=-batch.source) if i in self.bad else batch


class Unigrams(Task):
    """A task of one vector, the score of each token, with noise in place of dropout.

    Args:
      scores: what `evaluate` returns, one after another and then again from the first.
    """

    d_model = 4
    unit = "tokens"

    def __init__(self, scores=({"loss": 1.0},), bad=(), on_read=lambda i: None):
        rng = np.random.default_rng(3)
        lengths = rng.integers(1, 6, 40)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        store = TokenStore(rng.integers(4, VOCABULARY, offsets[-1]).astype(np.int32), offsets)
        self.plan = SpoiltPlan(BatchPlan(store, store, 0, 20, 1, 2), bad, on_read)
        self.scores = itertools.cycle(scores)
        shapes = jax.eval_shape(self.draw_params, jax.random.key(0))
        self.predictor = mock.Mock(param_shapes=lambda: shapes)

    def draw_params(self, key):
        return {"w": jax.random.normal(key, (VOCABULARY,))}

    def hparams(self):
        return {"noise": 0.1}

    def loss(self, params, batch, hparams, key):
        noise = hparams["noise"] * jax.random.normal(key, batch.labels.shape + (VOCABULARY,))
        scores = params["w"] + noise
        weights = (batch.labels != 0).astype(jnp.float32)
        picked = jnp.take_along_axis(jax.nn.log_softmax(scores), batch.labels[..., None], -1)[
            ..., 0
        ]
        correct = (scores.argmax(-1) == batch.labels) * weights
        poison = jnp.where((batch.source < 0).any(), jnp.nan, 1.0)
        nll = -(picked * weights).sum()
        return TokenSums(nll * poison, jax.lax.stop_gradient(nll), correct.sum(), weights.sum())

    def evaluate(self, params, split, final):
        return dict(next(self.scores))

    def snapshot(self, params):
        return Snapshot({}, {})

    def fingerprint(self):
        return "none"

    def text_digest(self):
        return ""


Unigrams.__abstractmethods__ = frozenset()  # the loop asks for none of the others


def unigram_config(**changes):
    """A config for `Unigrams`."""
    config = base.get_config()
    config.optimizer.schedule = "constant"
    config.optimizer.learning_rate = 0.1
    config.optimizer.warmup_steps = 0
    config.train.steps = 12
    config.train.log_every = 1
    config.train.evaluate_every = 5
    config.train.best_metric = "loss"
    config.data.prefetch = 0
    config.update_from_flattened_dict(changes)
    return config


TOY = {
    "model.d_model": 8,
    "model.d_ff": 8,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.max_length": 16,
    "model.dropout_attention": 0.1,
    "data.source": "copy",
    "data.train_size": 60,
    "data.validation_size": 4,
    "data.test_size": 4,
    "data.batch_tokens": 208,
    "data.num_buckets": 1,
    "tokenizer.kind": "word",
    "tokenizer.vocab_size": 50,
    "optimizer.schedule": "constant",
    "optimizer.learning_rate": 0.01,
    "optimizer.warmup_steps": 0,
    "train.epochs": 2.0,
    "train.log_every": 1,
    "train.evaluate_every": 3,
    "decode.batch_size": 4,
    "decode.max_extra": 0,
    "decode.beam_size": 2,
    "evaluate.bootstrap": 0,
    "evaluate.snapshot_statistics": 0,
}


def toy_config(cache: Path, **changes):
    """A config of a real translator with dropout, which copies sequences of letters."""
    config = base.get_config()
    config.update_from_flattened_dict({**TOY, "data.cache_dir": str(cache), **changes})
    return config


@contextlib.contextmanager
def without_search():
    """Evaluations of translators find empty translations meanwhile: no search is compiled."""

    def translate(self, variables, lines, *_, **__):
        return [[BLANK] for _ in lines]

    def translate_stacked(self, variables, lines, *_, **__):
        return [translate(self, variables, lines)] * len(jax.tree.leaves(variables)[0])

    with (
        mock.patch.object(Translator, "translate", translate),
        mock.patch.object(Translator, "translate_stacked", translate_stacked),
    ):
        yield


def loss_key(task):
    """What the losses of two tasks that are one function have in common."""
    return getattr(task.loss, "__func__", task.loss), getattr(task, "predictor", None)


_STEPS = {}


def make_trainer(run: TrainingRun) -> Trainer:
    """A trainer of one run; those of the same task and optimizer share the compiled step."""
    key = loss_key(run.task), run.config.optimizer.to_json(), str(run.rules)
    trainer = Trainer([run], train_step=_STEPS.get(key))
    _STEPS[key] = trainer.train_step
    return trainer


def newest_state(task, config, folder: Path):
    """The state of a run's newest checkpoint, as a tree of NumPy arrays."""
    run = TrainingRun(task, config, folder)
    state, _ = run.checkpoints.restore_newest(run.fresh_state(), task.fingerprint())
    run.checkpoints.close()
    return jax.device_get(state)


def lines(folder: Path, split: str | None = None) -> list[dict]:
    """The lines of metrics.jsonl without the clock's."""
    parsed = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [
        {key: value for key, value in line.items() if key not in TIMING}
        for line in parsed
        if split in (None, line["split"])
    ]


def identical(a, b) -> bool:
    """Whether two trees hold the same bits."""
    leaves, others = jax.tree.leaves(a), jax.tree.leaves(b)
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.asarray(x).dtype == np.asarray(y).dtype
        and np.shape(x) == np.shape(y)
        and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(leaves, others, strict=True)
    )


@contextlib.contextmanager
def count_programs() -> Iterator[list[str]]:
    """Yields a list that grows by one with each program that is lowered for XLA.

    Other threads that run already, such as those of a server that compiles, do not count.
    """
    found: list[str] = []
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def listen(event: str, *_, **__) -> None:
        if event == LOWERED and threading.get_ident() not in others:
            found.append(event)

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        monitoring.unregister_event_duration_listener(listen)
