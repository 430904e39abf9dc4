"""The systems that are ours: the compiled step, the whole loop, decoding, and large products.

Each gets an order with a workload and `turn`, see `worker`.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax

from experiments.benchmark.worker import Turn
from experiments.benchmark.workloads import make_task, read_workload
from experiments.compile_cache import keep_programs
from experiments.planning.measure import Shape, shapes_of
from experiments.process import keep_program_memory
from experiments.studies.accelerator.products import make_chain
from transformer.data.plan import Plan
from transformer.devices.placement import StepQueue
from transformer.inference.translator import Translator
from transformer.progress import parameter_counts
from transformer.run import Run
from transformer.tasks.base import Task
from transformer.train import Trainer

FOREVER = 10**6  # steps
MAX_TIMES = 4  # of decoding in a round; after many sentences it compiles other programs


def multiply(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Multiplies square matrices, `size` wide, in a chain of `products` that is one program."""
    size, products = order["size"], order["products"]
    chain, x = make_chain(size, order["dtype"], None, products)
    jax.block_until_ready(chain(x))
    turn({"size": size})
    while True:
        start = time.monotonic()
        jax.block_until_ready(chain(x))
        seconds = time.monotonic() - start
        turn({"flops_per_second": products * 2 * size**3 / seconds})


def step(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Takes `steps` steps of the plan's next batches, which lie on the device already.

    With `trace` the first steps, one of each shape, are also taken for JAX's profiler.
    """
    task, trainer = _start(order)
    shapes, steps = shapes_of(task.plan), order["steps"]
    state, put = trainer.fresh_state(), trainer.placement.put_batch
    programs, sizes, start = {}, [], time.monotonic()
    for shape in shapes:
        arguments = state, put(shape.batch), trainer.hparams
        program = trainer.train_step.lower(*arguments).compile()
        programs[_key(shape.batch)] = program
        sizes.append(program.count_bytes())
    compiled = time.monotonic() - start

    def take(batches: Sequence[Any]) -> list[Any]:
        nonlocal state
        metrics, queue = [], StepQueue()  # each step under way holds memory
        for batch in batches:
            state, sums = programs[_key(batch)](state, batch, trainer.hparams)
            metrics.append(sums)
            queue.wait(metrics)
        return jax.block_until_ready(metrics)

    first = [put(shape.batch) for shape in shapes]
    take(first)
    with _profiler(order.get("trace")):
        take(first)
    each = task.predictor.model.flops_per_token(state.params)
    parameters = sum(parameter_counts(state.params).values())
    turn(
        {
            "compile_seconds": compiled,
            "program_bytes": max(sizes),
            "device_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
            "parameters": parameters,
        }
    )
    for number in itertools.count():
        batches = [task.plan[i] for i in range(number * steps, (number + 1) * steps)]
        positions = sum(_positions(batch) for batch in batches)
        batches = [put(batch) for batch in batches]
        start = time.monotonic()
        metrics = take(batches)
        seconds = time.monotonic() - start
        tokens = sum(float(sums.nll.count) for sums in metrics)
        work = {"steps": steps, "tokens": tokens, "positions": positions, "flops": each * positions}
        turn({"seconds": seconds, **work})
    raise AssertionError


def _start(order: Mapping[str, Any]) -> tuple[Task, Trainer]:
    """The task of an order and the trainer of its run, which writes into `folder`.

    What the step compiles, the loop finds in `programs`. The process is prepared like a training's.
    """
    keep_program_memory()
    if "programs" in order:
        keep_programs(Path(order["programs"]))
    workload = read_workload(order)
    config = workload.config
    config.train.update({"steps": FOREVER, "epochs": 0.0, "minutes": 0.0, "save_minutes": 0.0})
    config.train.update({"evaluate_every": FOREVER, "log_every": order["steps"]})
    task = make_task(workload)
    return task, Trainer([Run(task, config, Path(order["folder"]) / "run")])


def _key(batch: Any) -> tuple:
    return tuple(x.shape for x in jax.tree.leaves(batch))


def _positions(batch: Any) -> int:
    """Tokens of a batch, of one side, padding included."""
    rows, length = jax.tree.leaves(batch)[0].shape
    return rows * length


def _profiler(folder: str | None) -> contextlib.AbstractContextManager:
    return jax.profiler.trace(folder) if folder else contextlib.nullcontext()


class _AskedPlan(Plan):
    """The batches of a plan, after one of each shape, as often as somebody asks for some of them.

    Args:
      steps: batches each time.
      turn: see `worker`.
      prefetch: batches made ahead.
    """

    def __init__(self, plan: Plan, shapes: Sequence[Shape], steps: int, turn: Turn, prefetch: int):
        self._plan, self._shapes, self._steps, self._turn = plan, shapes, steps, turn
        self._prefetch, self.epoch_length = prefetch, plan.epoch_length

    def __getitem__(self, i: int) -> Any:
        return self._plan[i]

    def start_at(self, i: int, prefetch: int) -> Iterator[Any]:
        """Yields the batches; the time since some were asked for ends with the last one's step."""
        yield from (shape.batch for shape in self._shapes)
        batches = self._plan.start_at(i, self._prefetch)
        jax.block_until_ready(jax.live_arrays())
        self._turn({})
        while True:
            start = time.monotonic()
            yield from itertools.islice(batches, self._steps)
            jax.block_until_ready(jax.live_arrays())  # the state that the last step is making
            self._turn({"seconds": time.monotonic() - start})


def loop(order: Mapping[str, Any], turn: Turn) -> None:
    """Runs the training loop, with a line of metrics after every `steps` steps."""
    task, trainer = _start(order)
    data = trainer.runs[0].config.data
    task.plan = _AskedPlan(task.plan, shapes_of(task.plan), order["steps"], turn, data.prefetch)
    data.prefetch = 0  # the loop itself shall ask for a batch when it is its turn
    trainer.run()


def decode(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Translates the first `sentences` of the validation text with weights that are not trained.

    So few translations end before their limit, and the search takes nearly as long as it can.
    """
    workload = read_workload(order)
    task = make_task(workload)
    translator: Any = task.predictor
    assert isinstance(translator, Translator), "only a translator decodes"
    pairs = itertools.islice(task.text.pairs["validation"], order["sentences"])
    lines = [pair.source for pair in pairs]
    variables = {"params": task.init_params(jax.random.key(workload.config.seed))}

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
