"""The mode `evaluate`: scores a trained run on its held-out text, or on another."""

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments import environment, run
from experiments.evaluation.given import read_given
from experiments.options import Options
from experiments.report import page
from transformer import records, tasks, workdir
from transformer.data.splits import SPLITS
from transformer.errors import UserError
from transformer.keys import flatten
from transformer.storage.files import write_json

logger = logging.getLogger(__name__)

MAX_NAME_LENGTH = 120  # of a folder there, in characters
# Flags and keys of `config.data` that say how another text is read.
FLAGS = ("references", "name", "source_tag")
FIELDS = ("source_field", "target_field", "text_field", "label_field", "skip_broken")


def evaluate(config: ConfigDict, folder: Path, options: Options) -> None:
    """Scores the weights that a run uses on the held-out text of its folder, or on `--input`.

    With the run's own settings, results, texts, pictures and report of the held-out text are
    written again. With others of `decode` or `evaluate`, or of another text, results and texts go
    below `evaluations/`, into a folder named by the text and what differs, and the run's own stay.

    Raises:
      UserError: there is no run or no checkpoint, or a file of it is missing or damaged; or see
        `read_given`.
    """
    if options.input is not None:
        _evaluate_given(options.input, config, folder, options)
        return
    for flag in FLAGS:
        if (value := getattr(options, flag)) is not None:
            raise UserError(f"--{flag}={value} is for another text: name it with --input")
    _evaluate_held_out(config, folder)


def _evaluate_held_out(config: ConfigDict, folder: Path) -> None:
    workdir.check_same_run(folder, config)
    _check_held_out(folder, config)
    others = workdir.other_settings(folder, config)
    # The report will need them, and damage is better known before the scoring takes its time.
    records.read_data(folder / page.DATA)
    records.read_environment(folder / environment.ENVIRONMENT)
    place = folder / workdir.EVALUATIONS / _name_of("", others)
    if others:
        _check_same_text(place, "")
    task = tasks.REGISTRY[config.task].from_folder(folder, config)
    if not others:
        run.show(task, config, folder, run.score(task, config, folder))
        return
    workdir.make_writable(place)
    results = run.score(task, config, folder, place, {"settings": others})
    _tell(results, config, folder, place)


def _evaluate_given(name: str, config: ConfigDict, folder: Path, options: Options) -> None:
    there = workdir.load_config(folder)
    own = config.copy_and_resolve_references()
    own.data.update({name: there.data[name] for name in FIELDS})
    workdir.check_same_run(folder, own)
    step = _finished_step(folder)
    given = read_given(name, config, folder, options)
    others = workdir.other_settings(folder, own)
    place = folder / workdir.EVALUATIONS / _name_of(_checked(options.name) or given.name, others)
    _check_same_text(place, given.digest)
    logger.info(f"the test set is {given.size} of {', '.join(given.files)}")
    task = tasks.REGISTRY[own.task].from_folder(folder, own, given.text)
    trained = workdir.load_trained(folder, own)
    workdir.make_writable(place)
    results = run.score_splits(task, trained, own, place) | {
        "step": step,
        "input": {"files": given.files, "digest": given.digest},
        "settings": others,
    }
    write_json(place / "results.json", results)
    _tell(results, own, folder, place)


def _check_held_out(folder: Path, config: ConfigDict) -> None:
    """Raises UserError if a config names held-out text that the run does not have."""
    theirs, ours = flatten(workdir.load_config(folder)), flatten(config)
    for split in SPLITS[1:]:
        for side in ("source", "target"):
            if (given := ours[key := f"data.{split}_{side}"]) and given != theirs[key]:
                raise UserError(
                    f"config.{key}={given!r}: evaluate scores the held-out text that the run keeps "
                    f"in {folder / 'held_out'}, and reads no other: leave this key out and name "
                    "--workdir alone, or name another text with --input"
                )


def _finished_step(folder: Path) -> int:
    """The last step of a run that is trained and scored.

    Raises:
      UserError: it is not.
    """
    results, newest = workdir.load_results(folder), workdir.newest_step(folder)
    if results is None or newest not in (0, results["step"]):  # checkpoints may be deleted
        raise UserError(
            f"{folder} is not finished: resume its training with --workdir={folder} alone, which "
            "ends with the scores of its held-out text"
        )
    return results["step"]


def _check_same_text(place: Path, digest: str) -> None:
    """Raises UserError if a folder has the scores of another text.

    Args:
      digest: of the text; '' of the run's held-out text.
    """
    results = records.read_results(place / "results.json")
    if results is None:  # an evaluation with more references may have been cut off
        for file in place.glob("translations/test.reference.*.txt"):
            file.unlink()
        return
    known = results.get("input", {"files": [], "digest": ""})
    if known["digest"] != digest:
        files = f"in {', '.join(known['files'])}" if known["files"] else "that the run holds out"
        raise UserError(
            f"{place} has the scores of another text, {files}: give this one another --name, or "
            "delete that folder"
        )


def _checked(name: str | None) -> str | None:
    """The name that the user gives.

    Raises:
      UserError: it cannot be that of a folder.
    """
    if name is not None and (_as_file(name) != name or not 0 < len(name) <= MAX_NAME_LENGTH):
        raise UserError(
            f"--name={name}: use up to {MAX_NAME_LENGTH} letters, digits, '-', '_', '.', '=' and "
            "'+', with none of '.', '=' first"
        )
    return name


def _as_file(name: str) -> str:
    return re.sub(r"^[.=]|[^\w.=+-]", "_", name)


def _name_of(text: str, settings: Mapping[str, Any]) -> str:
    """The name of a folder for an evaluation of a text with these settings, by dotted key."""
    parts = [f"{key.partition('.')[2]}={value}" for key, value in settings.items()]
    name = ",".join(map(_as_file, [text, *parts] if text else parts))
    if len(name) > MAX_NAME_LENGTH:
        digest = hashlib.sha256(repr((text, sorted(settings.items()))).encode()).hexdigest()[:8]
        name = f"{name[: MAX_NAME_LENGTH - 9]}_{digest}"
    return name


def _tell(results: dict[str, Any], config: ConfigDict, folder: Path, place: Path) -> None:
    run.print_results(results, config.task)
    logger.info(f"wrote {place / 'results.json'}; the results of {folder} are unchanged")
