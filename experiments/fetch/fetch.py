"""The mode `fetch`: the public corpus that a config names, downloaded and checked.

A fetched corpus is noted in `fetched.json` next to it, with the SHA-256 of each download: if no
checksum is published, the first one that was found holds for later fetches.
"""

import hashlib
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments.fetch.archives import unpack
from experiments.fetch.transfer import Patience, TransferError, transfer, version_note
from transformer.data.files.catalogue import CATALOGUE, Corpus, Download
from transformer.data.files.locate import corpus_folder
from transformer.errors import UserError
from transformer.storage.files import write_json
from transformer.storage.reading import Each, read_json

RECORD = "fetched.json"
SHAPE = Each({"url": str, "sha256": str, "files": Each(str)})
MAX_DOWNLOAD = 2**32  # bytes of a file whose size is not published
PATIENCE = Patience()
BY_HAND = "put there by hand"  # in place of the address of a download


def fetch(config: ConfigDict, folder: Path) -> Iterator[Path]:
    """Downloads the corpus that `data.fetch` names; yields its files.

    Args:
      folder: not used, since a corpus is not part of a run.

    Raises:
      UserError: none is named, it cannot be downloaded, or it is not as published.
    """
    settings = config.data
    if not settings.fetch:
        raise UserError(
            f"--config.data.fetch is empty: name a corpus, one of {', '.join(CATALOGUE)}"
        )
    corpus, place = CATALOGUE[settings.fetch], corpus_folder(settings)
    print(f"{corpus.title}\nlicence: {corpus.licence}\nplease cite: {corpus.citation}", flush=True)
    place.mkdir(parents=True, exist_ok=True)
    for download in corpus.downloads:
        _fetch_one(download, corpus, place)
        yield from (place / name for name in download.outputs)
    print(_how_to_train(settings, corpus), flush=True)


def _fetch_one(download: Download, corpus: Corpus, place: Path) -> None:
    """Makes the files of a download, if they are not there as they were fetched."""
    known = _read_record(place).get(download.name)
    there = {name: _sha256(place / name) for name in download.outputs}
    if known and there == known["files"]:
        print(f"{', '.join(download.outputs)}: there since an earlier fetch", flush=True)
        return
    for name, found in there.items():
        if found and not (known and name in known["files"]):
            raise UserError(
                f"{place / name} is there, but was not fetched: move it away, or name another "
                "folder with --config.data.path"
            )
    part = place / f"{download.name}.part"
    for path in (part, version_note(part)):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UserError(f"{path} is a link, a pipe or a device: delete it, and fetch again")
    url = _download(download, corpus, part)
    sha256 = _sha256(part)
    try:
        if not download.checksum:
            _check_first(download, known, sha256, place)
        _keep(download, part, place, url, sha256)
    except UserError:
        if url != BY_HAND:  # which may be the user's only copy
            _forget(part)
        raise
    _forget(part)


def _keep(download: Download, part: Path, place: Path, url: str, sha256: str) -> None:
    """Records the files of a download, and gives them their names."""
    # None gets its name before the archive has been read to its end, and found whole.
    with tempfile.TemporaryDirectory(prefix=".unpacked", dir=place) as unpacked:
        made = {name: Path(unpacked, name) for name in download.outputs}
        if download.outputs == (download.name,):
            made = {download.name: part}
        else:
            _unpack(part, download, Path(unpacked), url)
        files = {name: _sha256(path) for name, path in made.items()}
        # First, since a later command takes a file that is not recorded for the user's own.
        entry = {"url": url, "sha256": sha256, "files": files}
        write_json(place / RECORD, {**_read_record(place), download.name: entry})
        for name, path in made.items():
            path.replace(place / name)


def _unpack(part: Path, download: Download, folder: Path, url: str) -> None:
    try:
        unpack(part, download, folder)
    except UserError as error:
        if url != BY_HAND:
            raise
        raise UserError(f"{error}; {part} was {BY_HAND}: replace or delete it") from None


def _read_record(place: Path) -> dict[str, Any]:
    path = place / RECORD
    return read_json(path, SHAPE, "delete it, and fetch again") if path.exists() else {}


def _download(download: Download, corpus: Corpus, part: Path) -> str:
    """Downloads a file and checks it; returns the address that it came from."""
    if _is_by_hand(download, part):
        return BY_HAND
    problems = []
    for url in download.urls:
        try:
            transfer(
                url,
                part,
                download.size or MAX_DOWNLOAD,
                corpus.hosts,
                bool(download.checksum),
                PATIENCE,
            )
        except TransferError as error:
            problems.append(f"{url}: {error}")
            continue
        if not download.checksum or _matches(part, download.checksum):
            return url
        found = _digest(part, download.checksum.partition(":")[0])
        problems.append(
            f"{url} gave a file of {part.stat().st_size:,} bytes with the checksum {found}, but "
            f"{download.checksum} is published"
        )
        _forget(part)
    note = version_note(part)
    # With the note, the file would pass for the beginning of a download.
    more = f", delete {note}" if not download.checksum and note.exists() else ""
    raise UserError(
        f"{download.name} cannot be fetched: {'; '.join(problems)}. Try again later, or put the "
        f"file there by hand as {part}{more} and run the same command"
    )


def _is_by_hand(download: Download, part: Path) -> bool:
    """Whether the whole file is there, without a note if there is no checksum to tell it by."""
    if download.checksum:
        return _matches(part, download.checksum)
    return part.exists() and not version_note(part).exists()


def _check_first(download: Download, known: Any, sha256: str, place: Path) -> None:
    """Checks a file without a published checksum against that of its first fetch."""
    if known is None:
        print(
            f"{download.name}: no checksum is published; sha256:{sha256} is kept in {RECORD} and "
            "holds for later fetches",
            flush=True,
        )
    elif known["sha256"] != sha256:
        raise UserError(
            f"{download.name} has sha256:{sha256}, but sha256:{known['sha256']} when it was first "
            f"fetched, as {place / RECORD} says: it has changed; delete that file to take "
            "the new one"
        )


def _forget(part: Path) -> None:
    for path in (part, version_note(part)):
        path.unlink(missing_ok=True)


def _matches(path: Path, checksum: str) -> bool:
    return path.exists() and _digest(path, checksum.partition(":")[0]) == checksum


def _sha256(path: Path) -> str:
    """Returns the digits of a file; '' if it is not there."""
    return _digest(path, "sha256").partition(":")[2] if path.is_file() else ""


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def _how_to_train(settings: ConfigDict, corpus: Corpus) -> str:
    """Returns which flags a config needs to read the corpus."""
    changed = {
        key: value for key, value in corpus.settings.items() if getattr(settings, key) != value
    }
    if not changed:
        return "this config reads it as it is: train with the same command without --mode"
    flags = " ".join(f"--config.data.{key}={shlex.quote(value)}" for key, value in changed.items())
    return f"to train on it, add to the command: {flags}"
