"""Reading what the runs of a sweep left, and refusing what does not compare."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu

from experiments.sweep_results import Outcome, Point, Setting, Sweep, bleu, count_ngrams
from experiments.training_curves import read_curves
from transformer.errors import UserError

SPLITS = ("test", "validation", "longer")
TRANSLATIONS, SOURCES, REFERENCES = "test.txt", "test.source.txt", "test.reference.txt"
TOLERANCE = 0.01  # BLEU; the same text, counted by another version, may differ by rounding
SCORE_ANEW = "--mode=evaluate with this --workdir writes it anew"


def read_sweep(points: Sequence[Point], baseline: int | None = None) -> Sweep:
    """Reads what the complete points left, and checks that it compares.

    Args:
      points: of one sweep.
      baseline: the number of a point, with whose setting the others are compared.

    Raises:
      UserError: no point is complete, a file of a complete point is missing or damaged, two points
        have unlike signatures or test sets, or no point has the baseline's number.
    """
    complete = [point for point in points if point.state == "complete"]
    if not complete:
        raise UserError("no point is complete yet: there is nothing to compare")
    marked = [point.setting for point in points if point.number == baseline]
    if baseline is not None and not marked:
        raise UserError(f"the baseline, point {baseline}, is no point of this sweep")
    results = [_read_results(point) for point in complete]
    _check_signatures(complete, results)
    tests = [_read_test(point) for point in complete]
    _check_test_sets(complete, tests)
    settings: list[Setting] = []
    for point, result, test in zip(complete, results, tests, strict=True):
        outcome = _outcome(point, result, test)
        # A value may be a list, which has no hash.
        if same := [setting for setting in settings if setting.values == point.setting]:
            same[0].outcomes.append(outcome)
        else:
            settings.append(Setting(point.setting, [outcome]))
    chosen = next((setting for setting in settings if [setting.values] == marked), None)
    lengths = np.array([len(source.split()) for source in tests[0][SOURCES]])
    return Sweep(list(points), settings, chosen, lengths)


def _outcome(point: Point, results: dict[str, Any], test: dict[str, list[str]]) -> Outcome:
    """Raises UserError where the translations are not those that were scored."""
    signature = results["test"]["bleu_signature"]
    translations, references = test[TRANSLATIONS], test[REFERENCES]
    counts = count_ngrams(translations, references, _tokenizer(signature))
    told, found = results["test"]["bleu"], bleu(counts)
    if abs(told - found) > TOLERANCE:  # a run killed between writing the one and the other
        raise UserError(
            f"point {point.number}: the translations in {point.folder} score {found:.2f} BLEU, "
            f"and its results.json says {told:.2f}: {SCORE_ANEW}"
        )
    exact = np.array([a == b for a, b in zip(translations, references, strict=True)])
    try:
        curves = read_curves(point.folder / "metrics.jsonl")
    except ValueError as error:
        raise UserError(f"point {point.number} is complete, but {error}: put it back") from None
    validation = {metric: curve for (metric, split), curve in curves.items() if split != "train"}
    return Outcome(point, results, counts, exact, validation)


def _tokenizer(signature: str) -> str:
    """The name of sacreBLEU's tokenizer in a signature."""
    named = dict(part.split(":", 1) for part in signature.split("|") if ":" in part).get("tok", "")
    # Some are followed by a version: ja-mecab-0.996-IPA.
    fitting = [name for name in sacrebleu.BLEU.TOKENIZERS if named.startswith(name)]
    if not fitting:
        raise UserError(f"the signature {signature!r} names no tokenizer of sacreBLEU's")
    return max(fitting, key=len)


def _read_results(point: Point) -> dict[str, Any]:
    path = point.folder / "results.json"
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(point, path, error) from None
    test = results.get("test") if isinstance(results, dict) else None
    types = {"bleu": int | float, "bleu_signature": str}
    if not isinstance(test, dict) or not all(isinstance(test.get(k), types[k]) for k in types):
        raise _unreadable(point, path, "it holds no test.bleu with a signature")
    return results


def _read_test(point: Point) -> dict[str, list[str]]:
    """The lines of the test set's translations, sources and references, by file."""
    lines: dict[str, list[str]] = {}
    for name in (TRANSLATIONS, SOURCES, REFERENCES):
        path = point.folder / "translations" / name
        try:
            # Bytes, for a sentence may hold what text files and `splitlines` take for its end.
            text = path.read_bytes().decode("utf-8")
        except (OSError, ValueError) as error:
            raise _unreadable(point, path, error) from None
        lines[name] = text.removesuffix("\n").split("\n")
        found, expected = len(lines[name]), len(lines[TRANSLATIONS])
        if not text:
            raise _unreadable(point, path, "it is empty")
        if found != expected:
            reason = f"{found} lines, where {TRANSLATIONS} has {expected}"
            raise _unreadable(point, path, reason)
    return lines


def _unreadable(point: Point, path: Path, reason: object) -> UserError:
    reason = reason.strerror if isinstance(reason, OSError) else reason
    return UserError(
        f"point {point.number} is complete, but {path} cannot be read ({reason}): {SCORE_ANEW}"
    )


def _check_signatures(points: Sequence[Point], results: Sequence[dict[str, Any]]) -> None:
    seen: dict[tuple[str, str], tuple[int, str]] = {}
    for point, result in zip(points, results, strict=True):
        for split in SPLITS:
            for key, signature in (result.get(split) or {}).items():
                if not key.endswith("_signature"):
                    continue
                number, first = seen.setdefault((split, key), (point.number, signature))
                if signature != first:
                    raise UserError(
                        f"points {number} and {point.number} have unlike signatures of {split} "
                        f"{key.removesuffix('_signature')}: {first!r} and {signature!r}: such "
                        "scores do not compare; sweep them apart"
                    )


def _check_test_sets(points: Sequence[Point], tests: Sequence[dict[str, list[str]]]) -> None:
    for point, test in zip(points, tests, strict=True):
        for name in (SOURCES, REFERENCES):
            if test[name] != tests[0][name]:
                raise UserError(
                    f"points {points[0].number} and {point.number} have unlike test sets "
                    f"(translations/{name}): their scores do not compare; sweep them apart"
                )
