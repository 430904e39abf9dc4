"""The `fetch` mode: downloads and verifies the public corpus named in a config.

The file `fetched.json` next to a corpus records the corpus files for later fetches.
"""

import collections
import errno
import gzip
import random
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pooch
import requests

from transformer.data.files.locate import CATALOGUE, Download, corpus_folder
from transformer.data.files.text import open_unpacked
from transformer.errors import UserError, one_line
from transformer.files import Each, naming, read_json, write_json
from transformer.runs.run import Run

RECORD = "fetched.json"
SHAPE = Each({"url": str, "files": Each(str)})
BY_HAND = "put there by hand"  # recorded instead of the URL of a download
TIMEOUT = (10.0, 30.0)  # timeouts in seconds for connecting and for reading
BLOCK = 2**16  # bytes
# Some servers reject the default user agent of Python's libraries.
HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; transformer-fetch)",
    "Accept-Encoding": "identity",
}
TABS_AND_BREAKS = re.compile(r"[\t\r\n]+")
ABOUT_TALKS = re.compile("<(url|talkid|keywords)>")
TAGS = re.compile(r'</?(title|description|seg)( id="\d+")?>')
pooch.get_logger().setLevel("WARNING")  # hides messages about pooch's own interface


def fetch(run: Run) -> Iterator[Path]:
    """Downloads the corpus named by `data.fetch`; yields its files."""
    settings = run.config.data
    if not settings.fetch:
        names = ", ".join(CATALOGUE)
        raise UserError(f"--config.data.fetch is empty: name a corpus, one of {names}")
    corpus, place = CATALOGUE[settings.fetch], corpus_folder(settings)
    about = {"licence": corpus.licence, "please cite": corpus.citation, "download": corpus.size}
    print(corpus.title, *(f"{key}: {text}" for key, text in about.items()), sep="\n", flush=True)
    place.mkdir(parents=True, exist_ok=True)
    for download in corpus.downloads:
        with naming(place):
            _fetch_one(download, place)
        yield from (place / name for name in download.outputs)
    flags = [
        f"--config.data.{key}={shlex.quote(value)}"
        for key, value in corpus.settings.items()
        if getattr(settings, key) != value
    ]
    hint = "this config reads it as it is: train with the same command without --mode"
    if flags:
        hint = f"to train on it, add to the command: {' '.join(flags)}"
    print(hint, flush=True)


def _fetch_one(download: Download, place: Path) -> None:
    """Downloads and unpacks files, unless they already exist unchanged."""
    recorded = place / RECORD
    record = read_json(recorded, SHAPE, "delete it, and fetch again") if recorded.exists() else {}
    earlier = record.get(download.name)
    present = (name for name in download.outputs if (place / name).exists())
    digests = {name: pooch.file_hash(place / name) for name in present}
    if earlier and digests == earlier["files"]:
        print(f"{', '.join(download.outputs)}: there since an earlier fetch", flush=True)
        return
    for name in digests.keys() - (earlier["files"] if earlier else {}):
        raise UserError(
            f"{place / name} is there, but was not fetched: move it away, or name another "
            "folder with --config.data.path"
        )
    part = place / f"{download.name}.part"
    url = _download(download, part)
    with tempfile.TemporaryDirectory(prefix=".unpacked", dir=place) as unpacked:
        outputs = {name: Path(unpacked, name) for name in download.outputs}
        if download.outputs == (download.name,):
            outputs = {download.name: part}
        else:
            try:
                _unpack(part, download, Path(unpacked))
            except UserError:
                if url != BY_HAND:  # it may be the user's only copy
                    part.unlink()
                raise
        # Recorded first, since a later command would mistake an unrecorded file for the user's.
        digests = {name: pooch.file_hash(path) for name, path in outputs.items()}
        write_json(recorded, {**record, download.name: {"url": url, "files": digests}})
        for name, path in outputs.items():
            path.replace(place / name)
    part.unlink(missing_ok=True)


def _download(download: Download, part: Path) -> str:
    """Downloads and verifies a file; returns its URL, or BY_HAND if it was already there."""
    checksum = download.checksum or None
    if part.exists():
        if checksum and not pooch.hashes.hash_matches(part, checksum):
            raise UserError(
                f"{part} has another checksum than {checksum}: delete it, or put the right file "
                "there"
            )
        return BY_HAND
    get: Any = pooch.HTTPDownloader(sys.stderr.isatty(), BLOCK, headers=HEADERS, timeout=TIMEOUT)
    problems = []
    for url in download.urls:
        try:
            pooch.retrieve(url, checksum, part.name, part.parent, downloader=get)
            return url
        except (ValueError, requests.RequestException) as error:
            problems.append(f"{url}: {one_line(str(error))}")
    raise UserError(
        f"{download.name} cannot be fetched: {'; '.join(problems)}. Try again later, or put the "
        f"file there by hand as {part} and run the same command"
    )


def _unpack(archive: Path, download: Download, folder: Path) -> None:
    """Extracts the files of a corpus from an archive into a folder, under their new names."""
    texts: dict[str, list[tuple[str, str, str]]] = collections.defaultdict(list)
    tables = {part: table for table, parts in download.classes.items() for part in parts}
    talks: dict[str, list[str]] = {part: [] for parts in download.talks.values() for part in parts}
    missing = {*download.members, *tables, *talks}
    try:
        for name, stream in _archive_members(archive):
            parent = str(PurePosixPath(name).parent)
            missing.discard(name)
            if name in download.members:
                with (folder / download.members[name]).open("wb") as file:
                    shutil.copyfileobj(stream, file)
            elif name in talks:
                talks[name] = _talk_lines(name, stream)
            elif parent in tables and name.endswith(".txt"):
                text = stream.read().decode("utf-8", errors="replace")
                label = PurePosixPath(parent).name
                texts[tables[parent]].append((label, name, TABS_AND_BREAKS.sub(" ", text).strip()))
                missing.discard(parent)
    except Exception as error:  # libraries raise all kinds of errors for a damaged archive
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # a disk error
        raise UserError(
            f"{archive} is a damaged archive ({error!r}): copy or download it again"
        ) from None
    if missing:
        raise UserError(f"{archive} has no {min(missing)}: its content has changed")
    for table, rows in texts.items():
        _write_table(folder / table, rows)
    for name, parts in download.talks.items():
        lines = [line for part in parts for line in talks[part]]
        if name.startswith("valid"):
            lines = lines[22::23]
        elif name.startswith("train"):
            del lines[22::23]
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _archive_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yields the name and the content of each file in an archive, except links."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                with packed.open(entry) as stream:
                    yield str(PurePosixPath(entry.filename)), stream
        return
    # Decompressed here, since tarfile does not verify gzip's checksum.
    with open_unpacked(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as packed:
            for info in packed:
                if content := packed.extractfile(info) if info.isreg() else None:
                    yield str(PurePosixPath(info.name)), content
        while stream.read(BLOCK):  # the checksum is at the end
            pass


def _talk_lines(name: str, stream: IO[bytes]) -> list[str]:
    """Returns the lowercased segments of TED talks, including titles unless the file is XML.

    Source: fairseq's examples/translation/prepare-iwslt14.sh, which also tokenises them.
    """
    lines = [line.decode("utf-8", errors="replace") for line in stream]
    if name.endswith(".xml"):
        lines = [line.replace("’", "'") for line in lines if "<seg id" in line]
    return [TAGS.sub("", line).strip().lower() for line in lines if not ABOUT_TALKS.search(line)]


def _write_table(path: Path, rows: list[tuple[str, str, str]]) -> None:
    """Writes label<TAB>text rows to a gzip file, in a random order that depends on file names."""
    rows.sort(key=lambda row: row[:2])
    random.Random(0).shuffle(rows)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        for label, _, text in rows:
            packed.write(f"{label}\t{text}\n".encode())
