"""The systems of this library: the compiled step, the whole loop, decoding, and large matmuls.

Each function takes an order with a workload, and `turn`, see `turns.rotate`.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from transformer.data.buckets import WHOLE, Part, Plan, Stream
from transformer.inference.base import source_mask
from transformer.inference.translator import Translator
from transformer.model.vision.inputs import PictureText
from transformer.tasks.base import Task
from transformer.training.loop import Trainer
from transformer.training.placement import prefetch, wait_for_earlier
from transformer.training.run import TrainingRun
from ..process.process import keep_program_memory, keep_programs
from .turns import Turn
from .workloads import first_sources, make_task, read_workload, shapes_of

FOREVER = 10**6  # steps
MAX_TIMES = 4  # repetitions of decoding per round; after many sentences it compiles other programs


def multiply(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Multiplies square matrices of width `size`, `products` times in one program."""
    size, products = order["size"], order["products"]
    x = jax.random.normal(jax.random.key(0), (size, size), jnp.float32)
    weights = (x / size**0.5).astype(order["dtype"])  # scaled so that products keep their size
    x = x.astype(order["dtype"])

    @jax.jit
    def chain(x, weights):  # an argument, since constants are compiled into the program
        return jax.lax.fori_loop(0, products, lambda _, x: x @ weights, x)

    jax.block_until_ready(chain(x, weights))
    turn({"size": size})
    while True:
        start = time.monotonic()
        jax.block_until_ready(chain(x, weights))
        turn({"flops_per_second": products * 2 * size**3 / (time.monotonic() - start)})


def step(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Trains `steps` steps on the next batches of the plan, which are on the device already.

    With `trace`, the first steps, one per shape, are also recorded by JAX's profiler.
    """
    task, trainer = _start_trainer(order)
    steps, state, put = order["steps"], trainer.fresh_state(), trainer.placement.put_batch
    first = [put(shape.batch) for shape in shapes_of(task.plan)]
    start = time.monotonic()
    program_bytes = [trainer.train_step.count_bytes(state, b, trainer.hparams) for b in first]
    compiled = time.monotonic() - start

    def take(batches: Sequence[Any]) -> list[Any]:
        nonlocal state
        metrics = []
        for batch in batches:
            state, sums = trainer.train_step(state, batch, trainer.hparams)
            metrics.append(sums)
            wait_for_earlier(metrics)
        return jax.block_until_ready(metrics)

    take(first)
    trace = order.get("trace")
    with jax.profiler.trace(trace) if trace else contextlib.nullcontext():
        take(first)
    each = task.predictor.model.flops_per_token(state.params)
    turn(
        {
            "compile_seconds": compiled,
            "program_bytes": max(program_bytes),
            "device_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
            "parameters": sum(x.size for x in jax.tree.leaves(state.params)),
        }
    )
    for number in itertools.count():
        batches = [task.plan[i] for i in range(number * steps, (number + 1) * steps)]
        positions = sum(map(_target_positions, batches))  # tokens of one side
        batches = [put(batch) for batch in batches]
        start = time.monotonic()
        metrics = take(batches)
        seconds = time.monotonic() - start
        tokens = sum(float(sums.weight) for sums in metrics)
        work = {"steps": steps, "tokens": tokens, "positions": positions, "flops": each * positions}
        turn({"seconds": seconds, **work})
    raise AssertionError


def _target_positions(batch: Any) -> int:
    source = getattr(batch, "source", None)
    sees = isinstance(source, PictureText)
    return source_mask(source).size if sees else jax.tree.leaves(batch)[0].size


def _start_trainer(order: Mapping[str, Any]) -> tuple[Task, Trainer]:
    """Returns an order's task and trainer, in a process prepared as for training."""
    keep_program_memory()
    if "programs" in order:  # a cache that step and loop share
        keep_programs(Path(order["programs"]))
    workload = read_workload(order)
    config = workload.config
    config.train.update({"steps": FOREVER, "epochs": 0.0, "minutes": 0.0, "save_minutes": 0.0})
    config.train.update({"evaluate_every": FOREVER, "log_every": order["steps"]})
    task = make_task(workload)
    return task, Trainer([TrainingRun(task, config, Path(order["folder"]) / "run")])


class _AskedPlan(Plan):
    """Batches of a plan: first one of each shape, then `steps` more each time `turn` returns."""

    def __init__(self, plan: Plan, steps: int, turn: Turn, prefetch: int):
        self._plan, self._steps, self._turn, self._prefetch = plan, steps, turn, prefetch
        self.epoch_length = plan.epoch_length

    def __getitem__(self, i: int) -> Any:
        return self._plan[i]

    def start_at(self, i: int, stream: Stream, part: Part = WHOLE) -> Iterator[Any]:
        """Yields the batches; the time of `steps` batches ends when the last one's step is done."""
        yield from (shape.batch for shape in shapes_of(self._plan))
        batches = self._plan.start_at(i, lambda *order: prefetch(self._prefetch, *order), part)
        jax.block_until_ready(jax.live_arrays())
        self._turn({})
        while True:
            start = time.monotonic()
            yield from itertools.islice(batches, self._steps)
            jax.block_until_ready(jax.live_arrays())  # until the last step's state is computed
            self._turn({"seconds": time.monotonic() - start})


def loop(order: Mapping[str, Any], turn: Turn) -> None:
    """Runs the training loop, with a line of metrics after every `steps` steps."""
    task, trainer = _start_trainer(order)
    data = trainer.runs[0].config.data
    task.plan = _AskedPlan(task.plan, order["steps"], turn, data.prefetch)
    data.prefetch = 0  # the loop must not prefetch: the plan does
    trainer.run()


def decode(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Translates the first `sentences` of the validation text with untrained weights.

    Few translations then end before the maximum length, so the search takes about its longest.
    """
    workload = read_workload(order)
    task = make_task(workload)
    translator = task.predictor
    assert isinstance(translator, Translator), "only a translator decodes"
    lines = first_sources(task, order["sentences"])
    variables = {"params": task.draw_params(jax.random.key(workload.config.seed))}

    def seconds(times: int) -> float:
        start = time.monotonic()
        for _ in range(times):
            translator.translate(variables, lines)
        return (time.monotonic() - start) / times

    first = seconds(1)
    times = max(1, min(MAX_TIMES, round(1 / seconds(1))))
    turn({"first_seconds": first, "beam": translator.decode.beam_size})
    while True:
        turn({"seconds": seconds(times), "sentences": len(lines)})
