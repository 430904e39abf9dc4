"""The held-out text of a run, saved in its folder, so that scoring does not need the source.

`held_out/<split>.jsonl` has an object on each line, in UTF-8: {"source", "target"} of a pair, with
"links" if the gold word links are known; {"text", "label"} of a labelled text, with "kind" if
it has one; {"text"} of a document.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer.data.labels import Labelled
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.storage.files import write_bytes, write_json
from transformer.storage.reading import Each, read_json, read_json_lines

FOLDER = "held_out"
DIGESTS = "digests.json"  # of its files, by name
SPLITS = ("validation", "test", "length_generalization")
PART = "test_"  # begins the name of the part of the test set that one of several corpora has
COPY = "test."  # begins that of a perturbed copy of the test set
FIX = "training keeps there the text that a run is scored on; restore the original, or train again"
PAIR = {"source": str, "target": str, "links?": [[int]]}
LABELLED = {"text": str, "label": str, "kind?": str}
DOCUMENT = {"text": str}


def save(folder: Path, splits: Mapping[str, Iterable[Pair | Labelled | str]]) -> None:
    """Saves the held-out text of a run in its folder, once.

    Args:
      folder: the run's.
      splits: pairs, labelled texts or documents by the names of `SPLITS`.

    Raises:
      UserError: the folder has other text, so that scores before and after would not be comparable.
    """
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    digests = {}
    for split, items in splits.items():
        path = path_of(folder, split)
        lines = [f"{json.dumps(_record(item), ensure_ascii=False)}\n".encode() for item in items]
        digests[path.name] = hashlib.sha256(b"".join(lines)).hexdigest()
        if not path.exists():
            write_bytes(path, b"".join(lines))
            continue
        with path.open("rb") as file:
            kept = [*file]
        if kept != lines:
            same = (old == new for old, new in zip(kept, lines, strict=False))
            first = next((n for n, equal in enumerate(same, 1) if not equal), None)
            raise UserError(
                f"{path} is not the {split} text of this config, from line "
                f"{first or 1 + min(len(kept), len(lines))} on: restore the original text, or use "
                "another folder"
            )
    write_json(folder / FOLDER / DIGESTS, digests)  # last: after a kill they are written again


def _record(item: Pair | Labelled | str) -> dict[str, Any]:
    if isinstance(item, Pair):
        links = {} if item.alignment is None else {"links": item.alignment}
        return {"source": item.source, "target": item.target, **links}
    if isinstance(item, Labelled):
        return {
            "text": item.text,
            "label": item.label,
            **({"kind": item.kind} if item.kind else {}),
        }
    return {"text": item}


def read_pairs(folder: Path, split: str) -> list[Pair]:
    """Returns the pairs of a split of a run's folder.

    Raises:
      UserError: the file is missing, damaged or empty.
    """
    found = []
    for number, record in _records(folder, split, PAIR):
        links = record.get("links")
        if links is not None:
            words = len(record["source"].split()), len(record["target"].split())
            fits = all(
                len(link) == 2 and all(0 <= i < n for i, n in zip(link, words, strict=True))
                for link in links
            )
            if not fits:
                raise UserError(
                    f"{path_of(folder, split)}, line {number}, cannot be read (a link is not of "
                    f"two of its words): {FIX}"
                )
            links = tuple(map(tuple, links))
        found.append(Pair(record["source"], record["target"], links))
    return found


def read_labelled(folder: Path, split: str, labels: Iterable[str]) -> list[Labelled]:
    """Returns the labelled texts of a split of a run's folder.

    Args:
      labels: the known classes.

    Raises:
      UserError: the file is missing, damaged or empty, or has a label that is not one of these.
    """
    labels, found = frozenset(labels), []
    for number, record in _records(folder, split, LABELLED):
        if record["label"] not in labels:
            raise UserError(
                f"{path_of(folder, split)}, line {number}, cannot be read (the label "
                f"{record['label'][:40]!a} is not in labels.json): {FIX}"
            )
        found.append(Labelled(record["text"], record["label"], record.get("kind", "")))
    return found


def read_documents(folder: Path, split: str) -> list[str]:
    """Returns the documents of a split of a run's folder.

    Raises:
      UserError: the file is missing, damaged or empty.
    """
    return [record["text"] for _, record in _records(folder, split, DOCUMENT)]


def is_split(name: str) -> bool:
    """Whether results have scores of a split under this name."""
    return name in SPLITS or name.startswith((PART, COPY))


def has(folder: Path, split: str) -> bool:
    """Whether a run's folder has a split."""
    return path_of(folder, split).exists()


def path_of(folder: Path, split: str) -> Path:
    """Returns the file of a split."""
    return folder / FOLDER / f"{split}.jsonl"


def _records(folder: Path, split: str, shape: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    number, path, digest = 0, path_of(folder, split), hashlib.sha256()
    for number, record in read_json_lines(path, shape, FIX, digest):
        yield number, record
    if not number:
        raise UserError(f"{path} is empty: {FIX}")
    digests = path.with_name(DIGESTS)
    recorded = read_json(digests, Each(str), FIX) if digests.exists() else {}
    if digest.hexdigest() != recorded.get(path.name, digest.hexdigest()):
        raise UserError(f"{path} is not what was written: {FIX}")
