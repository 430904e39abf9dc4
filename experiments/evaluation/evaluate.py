"""The mode `evaluate`: scores a trained run on its held-out text, or on another."""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments import environment, run
from experiments.evaluation.behaviour import check_behaviour
from experiments.evaluation.given import read_given
from experiments.options import Options
from experiments.report import page
from experiments.report.numbers import BEHAVIOUR
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


class Evaluation(NamedTuple):
    """An evaluation of a run that can be done.

    Attributes:
      place: where its results and texts go.
      known: the results below `evaluations/` that it would give again; None if there are none.
      score: scores the run, writes and prints the results, and returns them.
    """

    place: Path
    known: dict[str, Any] | None
    score: Callable[[], dict[str, Any]]


def evaluate(config: ConfigDict, folder: Path, options: Options) -> None:
    """Scores the weights that a run uses on the held-out text of its folder, or on `--input`.

    With the run's own settings, results, texts, pictures and report of the held-out text are
    written again. With others of `decode` or `evaluate`, or of another text, results and texts go
    below `evaluations/`, into a folder named by the text and what differs, and the run's own stay.

    Raises:
      UserError: see `prepare_evaluation`.
    """
    prepare_evaluation(config, folder, options).score()


def prepare_evaluation(config: ConfigDict, folder: Path, options: Options) -> Evaluation:
    """Returns the evaluation of a run that the flags name, checked.

    Raises:
      UserError: there is no run or no checkpoint, or a file of it is missing or damaged; or see
        `read_given`.
    """
    if options.input not in (None, BEHAVIOUR):
        return _prepare_given(options.input, config, folder, options)
    for flag in FLAGS:
        if (value := getattr(options, flag)) is not None:
            raise UserError(f"--{flag}={value} is for another text: name it with --input")
    if options.input:
        return _prepare_given(options.input, config, folder, options)
    return _prepare_held_out(config, folder)


def _prepare_held_out(config: ConfigDict, folder: Path) -> Evaluation:
    workdir.check_same_run(folder, config)
    _check_held_out(folder, config)
    others = workdir.other_settings(folder, config)
    # The report will need them, and damage is better known before the scoring takes its time.
    records.read_data(folder / page.DATA)
    records.read_environment(folder / environment.ENVIRONMENT)
    place = folder / workdir.EVALUATIONS / _name_of("", others) if others else folder

    def score() -> dict[str, Any]:
        task = tasks.REGISTRY[config.task].from_folder(folder, config)
        if not others:
            results = run.score(task, config, folder)
            run.show(task, config, folder, results)
            return results
        workdir.make_writable(place)
        results = run.score(task, config, folder, place, {"settings": others})
        _tell(results, config, folder, place)
        return results

    known = _known(place, "") if others else None
    return Evaluation(place, _same(known, workdir.newest_step(folder), others), score)


def _prepare_given(name: str, config: ConfigDict, folder: Path, options: Options) -> Evaluation:
    there = workdir.load_config(folder)
    own = config.copy_and_resolve_references()
    own.data.update({name: there.data[name] for name in FIELDS})
    workdir.check_same_run(folder, own)
    step = _finished_step(folder)
    given = read_given(name, config, folder, options)
    others = workdir.other_settings(folder, own)
    place = folder / workdir.EVALUATIONS / _name_of(_checked(options.name) or given.name, others)

    def score() -> dict[str, Any]:
        logger.info(f"the test set is {given.size} of {', '.join(given.files)}")
        if name == BEHAVIOUR:
            own.evaluate.perturbed_sentences = 0  # of generated lines no copies
        task = tasks.REGISTRY[own.task].from_folder(folder, own, given.text)
        trained = workdir.load_trained(folder, own)
        workdir.make_writable(place)
        results = run.score_splits(task, trained, own, place) | {
            "step": step,
            "input": {"files": given.files, "digest": given.digest},
            "settings": others,
        }
        if name == BEHAVIOUR:
            results |= check_behaviour(folder, own, place)
        write_json(place / "results.json", results)
        _tell(results, own, folder, place)
        return results

    return Evaluation(place, _same(_known(place, given.digest), step, others), score)


def _same(
    known: dict[str, Any] | None, step: int, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Known results, if they are of the weights of this step and were made with these settings."""
    if known is None or step not in (0, known["step"]):  # checkpoints may be deleted
        return None
    same = known.get("settings", {}) == json.loads(json.dumps(settings))
    return known if same else None


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


def is_finished(folder: Path) -> bool:
    """Whether a run is trained and scored."""
    results = workdir.load_results(folder)
    # Checkpoints may be deleted.
    return results is not None and workdir.newest_step(folder) in (0, results["step"])


def _finished_step(folder: Path) -> int:
    """The last step of a run that is trained and scored.

    Raises:
      UserError: it is not.
    """
    if not is_finished(folder):
        raise UserError(
            f"{folder} is not finished: resume its training with --workdir={folder} alone, which "
            "ends with the scores of its held-out text"
        )
    return workdir.known_results(folder)["step"]


def _known(place: Path, digest: str) -> dict[str, Any] | None:
    """The results that a folder has; None if it has none.

    Args:
      digest: of the text; '' of the run's held-out text.

    Raises:
      UserError: they are of another text.
    """
    results = records.read_results(place / "results.json")
    if results is None:  # an evaluation with more references may have been cut off
        for file in place.glob("translations/test.reference.*.txt"):
            file.unlink()
        return None
    known = results.get("input", {"files": [], "digest": ""})
    if known["digest"] != digest:
        files = f"in {', '.join(known['files'])}" if known["files"] else "that the run holds out"
        raise UserError(
            f"{place} has the scores of another text, {files}: give this one another --name, or "
            "delete that folder"
        )
    return results


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
