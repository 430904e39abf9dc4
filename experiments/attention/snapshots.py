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

Kinds are `encoder_self`, `decoder_self` and `cross`, those that the model has. The statistics are
those of `transformer.analysis.statistics`: `entropy` (nats), `relative_entropy` (0 to 1),
`distance` (tokens, of self-attention), `end_fraction` (0 to 1, if the keys have an
end-of-sentence) and `diagonality` (0 to 1); and `aer`, `precision` and `recall` (0 to 1) of
`cross`, if gold word links are known. These are over the tracked pairs of the
validation set alone, and by output: a word's links are read off the rows that make it.
`--mode=align` scores the whole test set, by output and by input, so its numbers are others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from transformer.analysis.attention import Attention
from transformer.errors import UserError
from transformer.storage.reading import open_arrays
from transformer.storage.step_files import snapshot_files

KINDS = ("encoder_self", "decoder_self", "cross")


class Snapshot(NamedTuple):
    """The statistics and sentences that one evaluation stored.

    `statistics[kind][name]` is float32. Of `sentences`, weights and value norms are
    read from the file, as `SavedArrays`, whenever one is asked for.
    """

    step: int
    sentences: list[Attention]
    statistics: dict[str, dict[str, Float[np.ndarray, "layers H"]]]


class SavedArrays(Mapping[str, np.ndarray]):
    """The arrays right below a place in a file, by the last part of their name.

    Each is read whenever it is asked for, and none is kept: those of a long run would fill the
    memory.

    Raises:
      UserError: an array that is asked for is damaged.
    """

    def __init__(self, path: Path, place: str, names: Iterable[str]):
        self._path, self._names = path, _below(place, names)

    def __getitem__(self, name: str) -> np.ndarray:
        place = self._names[name]
        try:
            with open_arrays(self._path) as arrays:
                return arrays[place]
        except ValueError as error:
            raise UserError(f"{self._path} is damaged: remove it, the others will do") from error

    def __contains__(self, name: object) -> bool:
        return name in self._names  # that of Mapping would read the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_snapshots(folder: Path) -> list[Snapshot]:
    """Returns the snapshots of a run's folder in the order of their steps; none if it has none.

    Files that are cut short, or damaged in what is read at once, are passed over.
    """
    found = []
    for path in snapshot_files(folder):
        try:
            with open_arrays(path) as arrays:
                found.append(_read(path, arrays))
        except ValueError:
            continue
    return found


def of_same_sentence(snapshots: Sequence[Snapshot], n: int) -> list[Snapshot]:
    """Returns the snapshots whose n-th sentence, n from zero, is that of the last of them.

    Its tokens and its kinds of attention are the same.
    """
    last = _identity(snapshots[-1].sentences[n])
    having = (snapshot for snapshot in snapshots if len(snapshot.sentences) > n)
    return [snapshot for snapshot in having if _identity(snapshot.sentences[n]) == last]


def _identity(sentence: Attention) -> tuple[set[str], list[str], list[str]]:
    return set(sentence.weights), sentence.source_tokens, sentence.target_tokens


def _read(path: Path, arrays: np.lib.npyio.NpzFile) -> Snapshot:
    names = {name.split("/")[1] for name in arrays if name.startswith("sentences/")}
    sentences = []
    for name in sorted(names, key=int):
        place = f"sentences/{name}"
        sentences.append(
            Attention(
                SavedArrays(path, f"{place}/weights", arrays),
                SavedArrays(path, f"{place}/value_norms", arrays),
                arrays[f"{place}/source_tokens"].tolist(),
                arrays[f"{place}/target_tokens"].tolist(),
            )
        )
    kinds = {kind: _below(f"statistics/{kind}", arrays) for kind in KINDS}
    statistics = {
        kind: {name: arrays[full] for name, full in own.items()}
        for kind, own in kinds.items()
        if own
    }
    return Snapshot(int(arrays["step"]), sentences, statistics)


def _below(place: str, names: Iterable[str]) -> dict[str, str]:
    """The names right below a place, by their last part."""
    start = f"{place}/"
    return {name[len(start) :]: name for name in names if name.startswith(start)}
