"""Held-out text: splits taken from the training data, and the files of splits in a run's folder.

A split without its own file is held out of the training data. All held-out text is saved with the
run, so that scoring does not need the corpus. `held_out/<split>.jsonl` has one UTF-8 JSON object
per line: {"source", "target"} for a pair, with "links" if it has a gold word alignment; {"text",
"label"} for a labelled text, with "kind" if it is known; {"text"} for a document. `<split>.npy` has
the images as bytes, [N, S, S, C]; items refer to images by index (see `LabelledPicture`).
"""

import hashlib
import io
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, UInt8, UInt64
from ml_collections import ConfigDict

from transformer.data.encode import Restartable
from transformer.data.pairs import SPLITS as CORPUS_SPLITS
from transformer.data.pairs import Labelled, LabelledPicture, Pair
from transformer.errors import UserError
from transformer.files import Each, read_file, read_json, read_json_lines, write_bytes, write_json

HELD_OUT_FOLDER = "held_out"
DIGESTS = "digests.json"  # digests of the held-out files, keyed by file name
PIXELS = ".npy"  # suffix of image files
HELD_OUT = ("validation", "test", "length_generalization")
PART = "test_"  # prefix of a per-corpus subset of the test set
COPY_PREFIX = "test."  # prefix of a perturbed copy of the test set
MAX_PIXELS = 2**34  # maximum size of a split's images in bytes
FIX = "it has the text that the run is scored on; restore the original, or train again"
PAIR = {"source": str, "target": str, "links?": [[int]]}
LABELLED = {"text": str, "label": str, "kind?": str}
DOCUMENT = {"text": str}
PICTURE = dict.fromkeys(("name", "question", "label", "kind"), str)
PICTURE |= {"picture": int, "boxes": [[int]]}

Numbers = Int[np.ndarray, "usable"]  # item indices, from zero
Ranks = UInt64[np.ndarray, "items"]
Groups = dict[str, list[int]]  # item indices, keyed by split


class TooFewError(UserError):
    """Raised if a corpus has too few items to hold out."""


# -- choice of held-out items


def splits_held_out(settings: ConfigDict) -> dict[str, int]:
    """Returns the sizes of the splits without files, which are held out of the training data."""
    if settings.source != "files":
        return {}
    splits = (split for split in CORPUS_SPLITS[1:] if not getattr(settings, f"{split}_source"))
    return {split: getattr(settings, f"{split}_size") for split in splits}


def hold_out(
    text: Iterable[Any],
    source: Path,
    sizes: Mapping[str, int],
    settings: ConfigDict,
    key: Callable[[Any], str],
) -> dict[str, Iterable[Any]]:
    """Returns the training split and the splits held out of it; see `choose`.

    Training items with the key of a held-out item are removed, for any `holdout`. Items with an
    empty key are not held out. `text` is read twice, and again in each iteration over "train".
    """
    items = np.fromiter(
        ((bool(name), rank(name, settings.seed)) for name in map(key, text)),
        [("usable", bool), ("rank", np.uint64)],
    )
    numbers = choose(source, items["rank"], items["usable"], sizes, settings)
    ranks = items["rank"][list(itertools.chain(*numbers.values()))]
    gone = np.flatnonzero(items["usable"] & np.isin(items["rank"], ranks))
    return {"train": without(text, gone), **take(text, numbers)}


def take(text: Iterable[Any], numbers: Mapping[str, Collection[int]]) -> dict[str, list[Any]]:
    """Returns the items with the given indices, from zero, for each split."""
    split_of = {number: split for split, own in numbers.items() for number in own}
    items = {split: [] for split in numbers}
    for number, item in enumerate(text) if split_of else ():
        if number in split_of:
            items[split_of[number]].append(item)
    return items


def without(text: Iterable[Any], gone: Int[np.ndarray, "gone"]) -> Restartable[Any]:
    """Returns all items of a corpus except for those with the indices `gone`, from zero."""
    numbers = frozenset(gone.tolist())
    return Restartable(lambda: (item for i, item in enumerate(text) if i not in numbers))


def choose(
    source: Path,
    ranks: Ranks,
    usable: Bool[np.ndarray, "items"],
    sizes: Mapping[str, int],
    settings: ConfigDict,
) -> Groups:
    """Returns the ascending indices, from zero, of the items to hold out for each split.

    If `holdout` is "end", the last usable items are assigned to splits in the order of `sizes`.

    With "hash", the keys with the smallest hashes are held out until the splits are full. So the
    choice depends only on the seed and the key, not on the position. All items with the same key go
    to the same split. If a key has too many items for any split, the items stay in the training
    data. So a split never exceeds its size, and nearly always reaches it.

    Args:
      source: path of the corpus, for error messages.
      ranks: hash of each item's key; see `rank`.
      usable: whether each item may be held out.
      sizes: number of items to hold out for each split.
    """
    check_not_empty(source, len(ranks))
    numbers, wanted = np.flatnonzero(usable), sum(sizes.values())
    groups = STRATEGIES[settings.holdout](numbers, ranks, sizes)
    is_full = all(groups[split] or not size for split, size in sizes.items())
    if wanted and not (is_full and len(ranks) > wanted):
        asked = " and ".join(f"config.data.{split}_size={n}" for split, n in sizes.items())
        raise TooFewError(
            f"{source} has {len(ranks):,} examples, and too few different ones, to hold out "
            f"{asked}: lower the sizes, or name files in "
            + " and ".join(f"config.data.{split}_source" for split in sizes)
        )
    return groups


def check_not_empty(source: Path, count: int) -> None:
    """Raises UserError if a corpus has no items."""
    if not count:
        raise UserError(f"{source} has no lines: name a file with sentences")


def _choose_by_hash(numbers: Numbers, ranks: Ranks, sizes: Mapping[str, int]) -> Groups:
    keys, counts = np.unique(ranks[numbers], return_counts=True)
    room, owners = dict(sizes), {split: [] for split in sizes}
    wanted = sum(sizes.values())  # enough keys, since each key has at least one item
    for key, count in zip(keys[:wanted].tolist(), counts[:wanted].tolist(), strict=True):
        split = next((split for split in room if count <= room[split]), None)
        if split:
            owners[split].append(key)
            room[split] -= count
    return {
        split: numbers[np.isin(ranks[numbers], np.array(keys, np.uint64))].tolist()
        for split, keys in owners.items()
    }


def _take_from_end(numbers: Numbers, ranks: Ranks, sizes: Mapping[str, int]) -> Groups:
    wanted = sum(sizes.values())
    last = iter(numbers[max(0, len(numbers) - wanted) :].tolist())
    return {split: list(itertools.islice(last, size)) for split, size in sizes.items()}


STRATEGIES = {"hash": _choose_by_hash, "end": _take_from_end}  # keyed by `data.holdout`


def rank(name: str, seed: int) -> int:
    """Returns a 64-bit hash of a key, with the given seed."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big")


# -- the held-out files of a run


def save(
    folder: Path,
    texts: Mapping[str, Iterable[Pair | Labelled | LabelledPicture | str]],
    pixels: Mapping[str, UInt8[np.ndarray, "N S S C"]] = MappingProxyType({}),
) -> None:
    """Saves the held-out text of each split in a run's folder, unless it is already saved.

    Raises UserError if different text is already saved: the scores would not be comparable.

    Args:
      pixels: the images of each split, if the items refer to images.
    """
    (folder / HELD_OUT_FOLDER).mkdir(parents=True, exist_ok=True)
    contents = {}
    for split, pictures in pixels.items():
        file = io.BytesIO()
        np.save(file, pictures)
        contents[path_of(folder, split).with_suffix(PIXELS)] = file.getvalue()
    for split, items in texts.items():
        lines = [json.dumps(_record_of(item), ensure_ascii=False) for item in items]
        contents[path_of(folder, split)] = "".join(f"{line}\n" for line in lines).encode()
    for path, content in contents.items():
        if not path.exists():
            write_bytes(path, content)
        elif path.read_bytes() != content:
            raise UserError(
                f"{path} is not the text of this config: restore the original text or pictures, or "
                "use another folder"
            )
    # Digests are written last, when all other files are complete.
    digests = {path.name: hashlib.sha256(x).hexdigest() for path, x in contents.items()}
    write_json(folder / HELD_OUT_FOLDER / DIGESTS, digests)


def _record_of(item: Pair | Labelled | LabelledPicture | str) -> dict[str, Any]:
    if isinstance(item, LabelledPicture):
        return item._asdict()
    if isinstance(item, Pair):
        links = {} if item.alignment is None else {"links": item.alignment}
        return {"source": item.source, "target": item.target, **links}
    if isinstance(item, Labelled):
        kind = {"kind": item.kind} if item.kind else {}
        return {"text": item.text, "label": item.label, **kind}
    return {"text": item}


def read_pairs(folder: Path, split: str) -> list[Pair]:
    """Returns the pairs of a split, read from a run's folder."""
    pairs = []
    for record in _read_records(folder, split, PAIR):
        links = record.get("links")
        links = links if links is None else tuple(map(tuple, links))
        pairs.append(Pair(record["source"], record["target"], links))
    return pairs


def read_labelled(folder: Path, split: str, labels: Iterable[str]) -> list[Labelled]:
    """Returns a split's labelled texts from a run's folder; all labels must be in `labels`."""
    return [Labelled(**record) for record in _read_records(folder, split, LABELLED, labels)]


def read_pictures(
    folder: Path, split: str, labels: Iterable[str] | None
) -> tuple[list[LabelledPicture], UInt8[np.ndarray, "N S S C"]]:
    """Returns a split's items and images from a run's folder; `labels` is None for captions."""
    path = path_of(folder, split).with_suffix(PIXELS)
    try:
        data = read_file(path, MAX_PIXELS)
        _check_digest(path, hashlib.sha256(data).hexdigest())
        pixels = np.load(io.BytesIO(data), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} cannot be read ({error}): {FIX}") from error
    records = _read_records(folder, split, PICTURE, labels)
    items = [LabelledPicture(**{**r, "boxes": tuple(map(tuple, r["boxes"]))}) for r in records]
    return items, pixels


def read_documents(folder: Path, split: str) -> list[str]:
    """Returns the documents of a split, read from a run's folder."""
    return [record["text"] for record in _read_records(folder, split, DOCUMENT)]


def is_split(name: str) -> bool:
    """Returns whether a name in the results is the name of a split."""
    return name in HELD_OUT or name.startswith((PART, COPY_PREFIX))


def digests_of(folder: Path, split: str) -> list[str]:
    """Returns the recorded digests of a split's text and images, or '' for unrecorded files."""
    path, digests = path_of(folder, split), _held_out_digests(folder)
    return [digests.get(each.name, "") for each in (path, path.with_suffix(PIXELS))]


def path_of(folder: Path, split: str) -> Path:
    """Returns the path of a split's text file."""
    return folder / HELD_OUT_FOLDER / f"{split}.jsonl"


def _read_records(
    folder: Path, split: str, shape: Any, labels: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Returns the record of each item; checks the labels unless `labels` is None."""
    path, digest = path_of(folder, split), hashlib.sha256()
    records = [record for _, record in read_json_lines(path, shape, FIX, digest)]
    if not records:
        raise UserError(f"{path} is empty: {FIX}")
    _check_digest(path, digest.hexdigest())
    unknown = {record["label"] for record in records} - {*labels} if labels is not None else ()
    if unknown:
        label = f"the label {min(unknown)[:40]!a}, which is not in labels.json"
        raise UserError(f"{path} has {label}: {FIX}")
    return records


def _held_out_digests(folder: Path) -> dict[str, str]:
    """Returns the digests of a run's held-out files, or an empty dict for older runs."""
    path = folder / HELD_OUT_FOLDER / DIGESTS
    return read_json(path, Each(str), FIX) if path.exists() else {}


def _check_digest(path: Path, digest: str) -> None:
    if digest != _held_out_digests(path.parents[1]).get(path.name, digest):
        raise UserError(f"{path} is not what was written: {FIX}")
