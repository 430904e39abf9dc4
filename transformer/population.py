"""Runs that differ in numbers alone, trained as one program: seeds, rates, dropout, heads."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.data.stream import stream
from transformer.errors import RunError
from transformer.member import Member
from transformer.tasks.base import Plan, Task
from transformer.train import Loop
from transformer.train_step import TrainState


class Population(Loop):
    """Members that take each step together: one vmapped program over all of them.

    Each has its own folder, which is an ordinary run's: metrics, the last and the best
    checkpoints. One that ends early, or fails, stays as it is while the others go on. A member is
    the same run, to rounding, as when it trains alone.

    Args:
      tasks: of each member; `tasks[0].with_config` made the others, so that they share a model.
      configs: alike but for numbers that are arguments of the step.
      workdirs: of each member.
      say: prints a line.
      devices: members are divided among as many of them as divide their number.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        configs: Sequence[Any],
        workdirs: Sequence[Path],
        say: Callable,
        devices: Sequence[Any] | None = None,
    ):
        self.tasks = tasks
        members = [Member(*each) for each in zip(tasks, configs, workdirs, strict=True)]
        super().__init__(members, say)
        # Called with a member's number and the reason when it fails.
        self.on_failure: Callable[[int, str], None] = lambda i, reason: None
        devices = np.array(devices or jax.devices())
        mesh = Mesh(devices[: math.gcd(len(devices), len(tasks))], ("population",))
        self.by_member = NamedSharding(mesh, PartitionSpec("population"))
        step = _unless_ended(self.members[0].make_train_step())
        self.train_step = jax.jit(jax.vmap(step), donate_argnums=0)
        self.hparams = self.put([member.hparams() for member in self.members])

    def run(self) -> bool:
        """Trains from the newest step that all have saved; returns whether the end was reached.

        On SIGINT or SIGTERM all states are saved and the run ends early.

        Raises:
          UserError: the disk is full, or a checkpoint does not belong to these tokenizers.
        """
        start, states = self._restore()
        for member in self.members:
            member.start_writing()
        if start:
            self.say(f"going on from step {start}")
        lead = self.members[0]
        plans = _StackedPlans([member.task.plan for member in self.members])
        try:
            with self._signals:
                batches = stream(plans, start, lead.config.data.prefetch)
                return self._loop(self.put(states), start, batches)
        finally:
            for member in self.members:
                member.close()

    def put(self, trees: Sequence[Any]) -> Any:
        """Returns each member's tree, stacked on a leading axis that the devices divide."""
        return self._put(_stack(trees))

    def _restore(self) -> tuple[int, list[TrainState]]:
        """The newest step that all unfinished members have, and each member's state.

        What they have of later steps is given up.
        """
        while True:
            done = {i for i, member in enumerate(self.members) if member.finished()}
            self._trained = [i for i in range(len(self.members)) if i not in done]
            steps = [set(self.members[i].checkpoints.steps()) for i in self._trained]
            start = self.members[0].total_steps
            if steps:
                start = max(set.intersection(*steps), default=0)
            for i in self._trained:
                self.members[i].checkpoints.drop_after(start)
            states = []
            for member in self.members:
                fresh = member.fresh_state()
                restored = member.restore(fresh, self.say)
                states.append(fresh if restored is None else restored)
            # A checkpoint that was damaged has been put aside.
            if all(int(states[i].step) == start for i in self._trained):
                return start, states

    def _arguments(self, state: TrainState, batch: Any, active: Sequence[int]) -> tuple:
        mask = np.isin(np.arange(len(self.members)), active)
        return state, self._put(batch), self.hparams, self._put(mask)

    def _scores(self, params: Any) -> Sequence[dict[str, Any]]:
        return self.tasks[0].evaluate_members(params, self.hparams, "validation")

    def _split(self, tree: Any) -> Sequence[Any]:
        host = jax.device_get(tree)
        return [jax.tree.map(lambda x, i=i: x[i], host) for i in range(len(self.members))]

    def _join(self, trees: Sequence[Any]) -> Any:
        return _stack(trees)

    def _fail(self, i: int, error: RunError) -> None:
        self.failures[i] = str(error)
        self.on_failure(i, str(error))
        self.say(f"{self.members[i].workdir.name}: {error}")

    def _put(self, tree: Any) -> Any:
        return jax.device_put(tree, self.by_member)


@dataclasses.dataclass(frozen=True)
class _StackedPlans:
    """Batch i of every member's plan, stacked; they have one shape, see `BatchPlan`."""

    plans: Sequence[Plan]

    def __getitem__(self, i: int) -> Any:
        return jax.tree.map(lambda *each: np.stack(each), *(plan[i] for plan in self.plans))


def _unless_ended(train_step: Callable) -> Callable:
    """The step of a member that changes nothing once the member has ended."""

    def step(state, batch, hparams, active):
        new, metrics = train_step(state, batch, hparams)
        new = jax.tree.map(lambda after, before: jnp.where(active, after, before), new, state)
        return new, jax.tree.map(lambda x: jnp.where(active, x, jnp.zeros_like(x)), metrics)

    return step


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *trees)
