"""Placement of runs on devices, and a limit on how far the host runs ahead of the devices.

The batches and arrays of a single run are sharded over devices. Several runs are vmapped.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.data.buckets import Part, Plan
from transformer.errors import UserError
from transformer.mesh import layout, make_mesh, mesh_sizes
from transformer.model.losses import ROWS_AXES
from transformer.tasks.base import Task
from transformer.training.programs import StepPrograms
from transformer.training.step import TrainState, TrainStep

MAX_AHEAD = 4  # maximum number of steps that the host may be ahead of the devices


class SingleRun:
    """A single run, with its batches and optionally its training state sharded over the devices.

    The mesh axes `data` and `fsdp` shard the sequences of a batch. Between steps, each device along
    `fsdp` holds a shard of every parameter, moment and average (Rajbhandari et al. 2020, "ZeRO",
    stage 3). A step gathers the parameters, and each device keeps its shard of the gradient. The
    `tensor` axis shards the computation for each token (see `transformer.mesh.DIVIDED`), and XLA
    inserts the reductions.

    `VmappedRuns` has the same methods, through which the training loop handles all arrays. Both
    classes are constructed from the devices to use, the number of runs and the mesh sizes.

    Args:
      sizes: the value of `train.mesh`.
    """

    def __init__(self, devices: Sequence[Any], count: int, sizes: str = "auto"):
        self.mesh = make_mesh(devices, sizes)
        self._layout = functools.partial(layout, self.mesh)
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self.by_rows = NamedSharding(self.mesh, PartitionSpec(ROWS_AXES))
        self.row_count = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
        self._divides = self.row_count < self.mesh.size or self.mesh.shape["fsdp"] > 1
        self._own = [device for device in devices if device.process_index == jax.process_index()]
        groups = self.mesh.devices.reshape(self.row_count, -1)
        numbers = [i for i, group in enumerate(groups) if {*group} & {*self._own}]
        self._part = Part(numbers[0], numbers[-1] + 1, self.row_count)

    def compile(self, train_step: TrainStep, state: Callable[[], TrainState]) -> StepPrograms:
        """Returns the compiled programs of the training step, for all runs.

        Args:
          train_step: the step of a single run.
          state: a function that returns the shapes of a run's state.
        """
        if self.mesh.size == 1:
            return StepPrograms(train_step.gradient, train_step.update, self.replicated)

        def gradient(params, *others):
            # `cross_entropy` shards the loss over the mesh of the traced program.
            with jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):
                if self._divides:
                    places = self._layout(params, fsdp=False)
                    params = jax.lax.with_sharding_constraint(params, places)
                return train_step.gradient(params, *others)

        shapes = state()
        moving, _ = train_step.rules.split(shapes.params)
        layouts = (self._layout(moving), self.replicated), (self._layout(shapes), self.replicated)
        return StepPrograms(gradient, train_step.update, *layouts)

    def arguments(
        self, state: TrainState, batch: Any, hparams: Any, active: Sequence[int]
    ) -> tuple:
        """Returns the arguments of the compiled programs, starting with the state and the batch.

        Args:
          active: indices of the runs that take the step.
        """
        return state, self.put_batch(batch), hparams

    def put(self, trees: Sequence[Any]) -> Any:
        """Puts the trees of all runs on the devices as one tree; all processes have equal trees."""
        tree, places = trees[0], self._layout(trees[0])
        if len(self._own) == self.mesh.size:
            return jax.device_put(tree, places)

        def put(x, place):
            x = np.asarray(x)
            return jax.make_array_from_callback(x.shape, place, lambda index: x[index])

        return jax.tree.map(put, tree, jax.tree.broadcast(places, tree))

    def whole(self, tree: Any) -> Any:
        """Returns the arrays that `put` placed, replicated on every device of this process."""
        if self._divides:  # a single program, since many small programs would wait for each other
            tree = jax.jit(lambda arrays: arrays, out_shardings=self.replicated)(tree)
        if len(self._own) == self.mesh.size:
            return tree
        place = NamedSharding(Mesh(np.array(self._own), ("data",)), PartitionSpec())

        def of_process(x):
            parts = [shard.data for shard in x.addressable_shards]
            return jax.make_array_from_single_device_arrays(x.shape, place, parts)

        return jax.tree.map(of_process, tree)

    def on_one_process(self, tree: Any) -> Any:
        """Returns the arrays that `put` placed, with all shards in this process."""
        if len(self._own) == self.mesh.size:
            return tree
        # Arrays are gathered one at a time, so devices never hold all of them unsharded.
        return jax.tree.map(lambda x: process_allgather(x, tiled=True), tree)

    def like(self, tree: Any) -> Any:
        """Returns the shapes that `put` would return, given the shapes of a single run's tree."""
        return jax.tree.map(lambda x, y: x.update(sharding=y), tree, self._layout(tree))

    def put_batch(self, batch: Any) -> Any:
        """Shards the sequences of a batch over the devices, given this process's part of it.

        With a single process, the number of devices need not divide the number of sequences.
        """
        if len(self._own) == self.mesh.size:
            return jax.device_put(jax.tree.map(self._part.cut, batch), self.by_rows)
        first, end, groups = self._part

        def put(x):
            each = len(x) // (end - first)
            shape, before = (groups * each, *x.shape[1:]), first * each

            def rows_of(index):
                rows = index[0]
                return x[slice((rows.start or 0) - before, (rows.stop or shape[0]) - before)]

            return jax.make_array_from_callback(shape, self.by_rows, rows_of)

        return jax.tree.map(put, batch)

    def batches(self, plans: Sequence[Plan], start: int, ahead: int) -> Iterator[Any]:
        """Yields this process's part of each batch in the run's plan, from batch `start` on."""
        return plans[0].start_at(start, functools.partial(prefetch, ahead), self._part)

    def split(self, tree: Any) -> Sequence[Any]:
        """Returns a list with the tree of each run."""
        return [tree]

    def evaluate(self, task: Task, params: Any) -> Sequence[dict[str, Any]]:
        """Returns each run's validation scores, given the first run's task and the parameters."""
        return [task.evaluate(params, "validation", final=False)]


class VmappedRuns:
    """Several vmapped runs, with the same number of runs on each device.

    The number of runs per device is the smallest for which there are enough devices; the remaining
    devices are not used. If it does not divide the number of runs, the last device is filled with
    copies of the last run, which take no steps and are neither logged nor saved.

    Attributes:
      stacked: size of the leading axis of stacked trees: the number of runs and copies.
    """

    def __init__(self, devices: Sequence[Any], count: int, sizes: str = "auto"):
        if mesh_sizes(sizes):
            raise UserError(
                f"config.train.mesh={sizes} is for runs that train one after another: set "
                "config.sweep.parallel=sequential, or config.train.mesh=auto"
            )
        on_each = math.ceil(count / len(devices))
        used = math.ceil(count / on_each)
        mesh = Mesh(np.array(devices)[:used], ("runs",))
        self.by_run, self.count = NamedSharding(mesh, PartitionSpec("runs")), count
        self.stacked = used * on_each

    def compile(self, train_step: TrainStep, state: Callable[[], TrainState]) -> StepPrograms:
        def update_unless_ended(state, gradient, sums, hparams, active):
            new, metrics = train_step.update(state, gradient, sums, hparams)
            new = jax.tree.map(lambda after, before: jnp.where(active, after, before), new, state)
            return new, jax.tree.map(lambda x: jnp.where(active, x, jnp.zeros_like(x)), metrics)

        update = jax.vmap(update_unless_ended)
        return StepPrograms(jax.vmap(train_step.gradient), update, self.by_run)

    def arguments(
        self, state: TrainState, batch: Any, hparams: Any, active: Sequence[int]
    ) -> tuple:
        mask = jax.device_put(np.isin(np.arange(self.stacked), active), self.by_run)
        return state, self.put_batch(batch), hparams, mask

    def put(self, trees: Sequence[Any]) -> Any:
        stacked = jax.tree.map(lambda *x: np.stack(list(map(np.asarray, x))), *self._fill(trees))
        return jax.device_put(stacked, self.by_run)

    def whole(self, tree: Any) -> Any:
        return tree

    on_one_process = whole

    def like(self, tree: Any) -> Any:
        return jax.tree.map(
            lambda x: x.update(shape=(self.stacked, *x.shape), sharding=self.by_run), tree
        )

    def put_batch(self, batch: Any) -> Any:
        return jax.device_put(batch, self.by_run)

    def batches(self, plans: Sequence[Plan], start: int, ahead: int) -> Iterator[Any]:
        """Yields the stacked batches of all plans, which share a corpus (see `Plan.stack`)."""
        filled = self._fill(plans)
        return prefetch(ahead, lambda i: filled[0].stack(filled, i), start)

    def split(self, tree: Any) -> Sequence[Any]:
        host = jax.device_get(tree)
        return [jax.tree.map(lambda x, i=i: x[i], host) for i in range(self.count)]

    def evaluate(self, task: Task, params: Any) -> Sequence[dict[str, Any]]:
        return task.evaluate_runs(params, "validation")

    def _fill(self, each: Sequence[Any]) -> list[Any]:
        """Returns one item per run, followed by the last run's item for each of its copies."""
        return [*each, *[each[-1]] * (self.stacked - self.count)]


def wait_for_earlier(results: Sequence[Any]) -> None:
    """Waits until at most `MAX_AHEAD` steps are unfinished, given the results of all steps.

    Each unfinished step uses memory, and a signal must wait for all unfinished steps.
    """
    if len(results) > MAX_AHEAD:
        jax.block_until_ready(results[-1 - MAX_AHEAD])


def prefetch(count: int, make: Callable[[int], Any], first: int) -> Iterator[Any]:
    """Yields make(first), make(first + 1), ...; threads prefetch the next `count` items."""
    import grain  # imported here because inference does not need it

    dataset = grain.MapDataset.range(first, first + 2**62).map(make)
    options = grain.ReadOptions(num_threads=min(count, 2), prefetch_buffer_size=count)
    return iter(dataset.to_iter_dataset(options))
