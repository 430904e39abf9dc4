"""A tiny run of each task, shared by the tests; those but the first are trained from Python."""

from pathlib import Path

import experiments
import tiny_classifier
import tiny_language_model
from tiny_run import shared_folder, shared_run, without_pictures

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


def train_runs(tmp_path_factory) -> dict[str, Path]:
    """Returns the folder of each run by its task; nothing may be written there."""
    folders = {"translation": shared_run(tmp_path_factory).workdir}
    for task, (support, name, lines) in TEXTS.items():

        def fill(folder, support=support, name=name, lines=lines):
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
            (folder / "config.py").write_text(support.CONFIG.replace("PATH", str(folder)))
            with without_pictures():
                run = experiments.train(folder / "config.py", folder / "run", SHORT)
            assert run.folder == folder / "run"

        folders[task] = shared_folder(tmp_path_factory, f"task_{task}", fill) / "run"
    return folders
