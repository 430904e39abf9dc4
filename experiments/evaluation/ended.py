"""Whether the training of a run has ended: one that was interrupted can be scored, too."""

from collections.abc import Iterable
from pathlib import Path

from experiments.report.page import DATA
from transformer import records, workdir
from transformer.run_progress import RunProgress, total_steps
from transformer.storage.checkpoint import Checkpoints


def stopped_runs(folders: Iterable[Path]) -> list[str]:
    """Returns the folder and the step of each run whose training stopped before its end."""
    return [f"{folder} (step {step:,})" for folder in folders if (step := _stopped_at(folder))]


def _stopped_at(folder: Path) -> int:
    """The step at which a training stopped before its end; 0 if it ended, or no file tells."""
    config, step = workdir.load_config(folder).train, workdir.newest_step(folder)
    data = records.read_data(folder / DATA)
    if not step or (config.epochs and data is None):
        return 0
    with Checkpoints((folder / "checkpoints").absolute(), read_only=True) as checkpoints:
        saved = checkpoints.read_progress(step)
    last = total_steps(config, data["batches_per_epoch"] if data else 0)
    ended = saved is None or RunProgress(**saved).find_limit(step, config, last) is not None
    return 0 if ended else step
