"""The part `together`: many runs as one vmapped program, and one after another."""

from collections.abc import Iterator
from typing import Any

from configs import quickstart
from experiments.compile_cache import keep_programs
from experiments.studies.accelerator.parts import Order, shrink, within
from experiments.studies.many_runs import measure_steps
from transformer.tasks.translation import TranslationTask

COUNTS, STEPS = (1, 4, 16, 64), 20
TOY_COUNTS, TOY_STEPS = (1, 2), 2


def measure(order: Order) -> Iterator[dict[str, Any]]:
    """Yields the seconds of some steps of each number of runs, both ways."""
    keep_programs(order.folder / "cache" / "programs")  # each run draws its parameters by one
    config = quickstart.get_config()
    config.data.num_buckets = 1  # one shape is compiled, in place of four
    config.data.cache_dir = str(order.folder / "cache")
    lead = TranslationTask(shrink(config) if order.toy else config)
    counts, steps = (TOY_COUNTS, TOY_STEPS) if order.toy else (COUNTS, STEPS)
    for count in within(order.seconds, counts):
        vmapped, sequential, _ = measure_steps(lead, count, steps)
        numbers = {"vmap_seconds": vmapped, "sequential_seconds": sequential}
        yield {"runs": count, "steps": steps, **numbers, "speedup": sequential / vmapped}
