"""A tiny run of each task, shared by the tests; those but the first are trained from Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

import tiny_classifier
import tiny_directions
import tiny_language_model
import transformer
from experiments.process.config import read_experiment
from tiny_run import command, shared_folder, shared_run, without_pictures

TEXTS = {
    "language_model": (tiny_language_model, "text", tiny_language_model.LINES * 10),
    "classification": (tiny_classifier, "train.tsv", tiny_classifier.ROWS),
}
SHORT = {  # settings of those but the first
    "train.steps": 20,
    "train.evaluate_every": 20,
    "evaluate.snapshot_statistics": 0,
    "evaluate.snapshot_sentences": 0,
}


def text_config(
    task: str, folder: Path, lines: Sequence[str] | None = None, **changes: Any
) -> ConfigDict:
    """Writes a text and its config.py to a folder; returns the config, with the changes.

    Args:
      task: not translation.
      lines: the text; by default, enough of it to train.
    """
    module, name, usual = TEXTS[task]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in lines or usual))
    file = folder / "config.py"
    file.write_text(module.CONFIG.replace("PATH", str(folder)))
    config = read_experiment(str(file)).config
    config.update_from_flattened_dict(changes)
    return config


def train_runs(tmp_path_factory) -> dict[str, Path]:
    """Returns the folder of each run by its task; nothing may be written there."""
    folders = {"translation": shared_run(tmp_path_factory).workdir}
    for task in TEXTS:

        def fill(folder, task=task):
            text_config(task, folder)
            with without_pictures():
                run = transformer.train(folder / "config.py", folder / "run", SHORT)
            assert run.folder == folder / "run"

        folders[task] = shared_folder(tmp_path_factory, f"task_{task}", fill) / "run"
    return folders


def train_tagged(tmp_path_factory) -> Path:
    """Returns the folder with the `workdir` of a translator whose texts have tags, and its log."""

    def fill(folder):
        config = tiny_directions.CONFIG.replace("CACHE", str(folder / "cache"))
        (folder / "config.py").write_text(config)
        with without_pictures():
            ended = command(f"--config={folder / 'config.py'}", f"--workdir={folder / 'workdir'}")
        assert ended.code == 0, ended
        (folder / "log.txt").write_text(ended.out)

    return shared_folder(tmp_path_factory, "directions", fill)
