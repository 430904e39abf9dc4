"""Reads the attention snapshots of a run, one for each evaluation.

Each evaluation during training leaves `attention_snapshots/<step, 8 digits>.npz` in the run's
folder, which `np.load` reads without pickle. It holds

- `step`: the training step;
- `statistics/<kind>/<name>`: float32 [layers, H], the statistics of all heads of a kind, over
  `evaluate.snapshot_statistics` sentences of the validation set; NaN if no row counts;
- `sentences/<n>/weights/<kind>`: float32 [layers, H, L, M], the attention weights of the n-th of
  `evaluate.snapshot_sentences` sentences, n from zero, the same at each evaluation;
- `sentences/<n>/value_norms/<kind>`: float32 [layers, H, M];
- `sentences/<n>/source_tokens` and `sentences/<n>/target_tokens`: strings; one of them is empty
  if the model reads one text alone.

The statistics are those of `transformer.analysis.snapshots`, and `aer`, `precision` and `recall`
of `cross`, if gold word links are known. The latter cover only the tracked pairs of the validation
set, and rows by output: a word's links come from the rows that generate it. `--mode=align` scores
the whole test set, with rows by output and by input, so its numbers are different.
"""

import collections
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from transformer.analysis.attention import KINDS, Attention
from transformer.errors import UserError
from transformer.files import open_arrays
from transformer.runs.logs import snapshot_files

logger = logging.getLogger(__name__)


class SavedSnapshot(NamedTuple):
    """A step's sentences, whose arrays are `SavedArrays`, and `statistics[kind][name]`."""

    step: int
    sentences: list[Attention]
    statistics: dict[str, dict[str, Float[np.ndarray, "layers H"]]]


class SavedArrays(collections.UserDict[str, Any]):
    """The arrays directly below a place in a file, by the last part of their name.

    Each is read at every access, since the arrays of a long run would fill the memory.
    """

    def __init__(self, path: Path, place: str, names: Iterable[str]):
        super().__init__(_below(place, names))
        self.path = path

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            with open_arrays(self.path) as arrays:
                return arrays[self.data[name]]
        except ValueError as error:
            raise UserError(f"{self.path} is damaged: remove it, the others will do") from error


def read_snapshots(folder: Path) -> list[SavedSnapshot]:
    """Returns the snapshots in a run's folder, sorted by step, without damaged files."""
    snapshots = []
    for path in snapshot_files(folder):
        try:
            with open_arrays(path) as arrays:
                numbers = {name.split("/")[1] for name in arrays if name.startswith("sentences/")}
                sentences = [
                    Attention(
                        SavedArrays(path, f"sentences/{n}/weights", arrays),
                        SavedArrays(path, f"sentences/{n}/value_norms", arrays),
                        arrays[f"sentences/{n}/source_tokens"].tolist(),
                        arrays[f"sentences/{n}/target_tokens"].tolist(),
                    )
                    for n in sorted(numbers, key=int)
                ]
                statistics = {
                    kind: {name: arrays[full] for name, full in names.items()}
                    for kind in KINDS
                    if (names := _below(f"statistics/{kind}", arrays))
                }
                snapshots.append(SavedSnapshot(int(arrays["step"]), sentences, statistics))
        except ValueError as error:
            logger.warning(f"{path} is damaged ({error}): it is left out")
    return snapshots


def of_same_sentence(snapshots: Sequence[SavedSnapshot], n: int) -> list[SavedSnapshot]:
    """Returns the snapshots whose n-th sentence, n from zero, is the same as in the last one."""

    def identity(snapshot: SavedSnapshot) -> tuple:
        sentence = snapshot.sentences[n]
        return set(sentence.weights), sentence.source_tokens, sentence.target_tokens

    last = identity(snapshots[-1])
    return [each for each in snapshots if len(each.sentences) > n and identity(each) == last]


def _below(place: str, names: Iterable[str]) -> dict[str, str]:
    """Returns the names directly below a place, by their last part."""
    start = f"{place}/"
    return {name[len(start) :]: name for name in names if name.startswith(start)}
