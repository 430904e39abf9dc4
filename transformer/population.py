"""Runs that differ in numbers alone, trained as one program: seeds, rates, dropout, heads."""

import dataclasses
import functools
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
from transformer.member import Member, Stopwatch
from transformer.metrics import TokenMetrics
from transformer.progress import Progress
from transformer.tasks.base import Plan, Task
from transformer.train import StopSignals
from transformer.train_step import TrainState


class Population:
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
        self.say = say
        self.tasks = tasks
        self.members = [Member(*each) for each in zip(tasks, configs, workdirs, strict=True)]
        self.failures: dict[int, str] = {}
        # Called with a member's number and the reason when it fails.
        self.on_failure: Callable[[int, str], None] = lambda i, reason: None
        self._done: set[int] = set()  # members that had ended before
        devices = np.array(devices or jax.devices())
        mesh = Mesh(devices[: math.gcd(len(devices), len(tasks))], ("population",))
        self.by_member = NamedSharding(mesh, PartitionSpec("population"))
        step = _unless_ended(self.members[0].make_train_step())
        self.train_step = jax.jit(jax.vmap(step), donate_argnums=0)
        self.hparams = self.put([member.hparams() for member in self.members])
        self._signals = StopSignals()

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the run early, if one did."""
        return self._signals.received

    def run(self) -> bool:
        """Trains from the newest step that all have saved; returns whether the end was reached.

        On SIGINT or SIGTERM all states are saved and the run ends early.

        Raises:
          UserError: the disk is full, or a checkpoint does not belong to these tokenizers.
        """
        start, states = self._common_step(), []
        for member in self.members:
            fresh = member.fresh_state()
            restored = member.restore(fresh, self.say)
            states.append(fresh if restored is None else restored)
            member.start_writing(int(states[-1].step))
        if start:
            self.say(f"going on from step {start}")
        try:
            with self._signals:
                return self._loop(self.put(states), start)
        finally:
            for member in self.members:
                member.close()

    def put(self, trees: Sequence[Any]) -> Any:
        """Returns each member's tree, stacked on a leading axis that the devices divide."""
        return self._put(_stack(trees))

    def _common_step(self) -> int:
        """The newest step that all unfinished members have; what is newer is given up."""
        self._done = {i for i, member in enumerate(self.members) if member.finished()}
        unfinished = [member for i, member in enumerate(self.members) if i not in self._done]
        steps = [set(member.checkpoints.steps()) for member in unfinished]
        common = max(set.intersection(*steps), default=0) if steps else self.members[0].total_steps
        for member in unfinished:
            member.checkpoints.drop_after(common)
        return common

    def _loop(self, state: TrainState, step: int) -> bool:
        lead = self.members[0]
        plans = _StackedPlans([member.task.plan for member in self.members])
        batches = stream(plans, step, lead.config.data.prefetch)
        pending: list[TokenMetrics] = []
        watch = Stopwatch()
        saved_step, trained = step, self._active(step)
        with Progress(lead.total_steps, step, self.say, lead.task.unit) as progress:
            while (active := self._active(step)).any() and self._signals.received is None:
                batch = self._put(next(batches))
                state, metrics = self.train_step(state, batch, self.hparams, self._put(active))
                pending.append(metrics)
                step, trained = step + 1, active
                due = step % lead.evaluate_every == 0 or step == lead.total_steps
                if due or step % lead.config.train.log_every == 0:
                    trained = active & self._log(state, pending, step, active, watch, progress)
                # One that is out of time ends here: its last weights count as well.
                out = [i for i in np.flatnonzero(trained) if self.members[i].ended(step)]
                if due or out:
                    self._evaluate_and_save(state, step, trained, watch, progress)
                    saved_step = step
            if saved_step != step:  # a signal
                if pending:
                    trained &= self._log(state, pending, step, trained, watch, progress)
                self._save(state, step, trained, [{}] * len(self.members))
        for member in self.members:
            member.checkpoints.wait()
        if self._signals.received is not None:
            self.say(
                f"{self._signals.name}: saved step {step}; start the same command again to go on"
            )
            return False
        return True

    def _active(self, step: int) -> np.ndarray:
        """Which members still train."""
        return np.array(
            [
                i not in self.failures and i not in self._done and not member.ended(step)
                for i, member in enumerate(self.members)
            ]
        )

    def _log(self, state, pending, step, active, watch: Stopwatch, progress) -> np.ndarray:
        """Writes each member's line, shows the mean; returns which members did not fail."""
        metrics, bad_run, bad_steps = jax.device_get((pending, state.bad_run, state.bad_steps))
        pending.clear()
        merged = functools.reduce(TokenMetrics.merge, metrics)
        seconds, shown = watch.lap(), []
        for i in np.flatnonzero(active):
            own = jax.tree.map(lambda x, i=i: x[i], merged)
            try:
                bad = int(bad_run[i]), int(bad_steps[i])
                shown.append(self.members[i].log(step, own, *bad, seconds))
            except RunError as error:
                self.failures[int(i)] = str(error)
                self.on_failure(int(i), str(error))
                self.say(f"{self.members[i].workdir.name}: {error}")
        if shown:
            mean = {name: float(np.mean([values[name] for values in shown])) for name in shown[0]}
            total = sum(values["tokens_per_second"] for values in shown)
            progress.update(step, {**mean, "tokens_per_second": total})
        return np.array([i not in self.failures for i in range(len(self.members))])

    def _evaluate_and_save(self, state, step, active, watch: Stopwatch, progress) -> None:
        params = state.ema or state.params
        scores = self.tasks[0].evaluate_members(params, self.hparams, "validation")
        seconds, numbers = watch.lap(), [{}] * len(self.members)
        for i in np.flatnonzero(active):
            numbers[i] = self.members[i].record(step, scores[i], seconds)
        if shown := [numbers[i] for i in np.flatnonzero(active)]:
            progress.note(step, {k: float(np.mean([each[k] for each in shown])) for k in shown[0]})
        self._save(state, step, active, numbers)

    def _save(self, state, step, active, numbers: list[dict]) -> None:
        host = jax.device_get(state)
        for i in np.flatnonzero(active):
            own = jax.tree.map(lambda x, i=i: x[i], host)
            self.members[i].save(step, own, numbers[i])

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
