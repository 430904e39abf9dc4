"""A run's folder in a bucket, such as `--workdir=s3://bucket/run` or `gs://bucket/run`.

A command works in a copy on this machine, and what has changed there is uploaded: of a training
every few seconds and at its end. So nothing else of the program knows of buckets, and a store needs
neither renames nor appends. fsspec has the stores; the package of one is installed for it.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer import signals
from transformer.errors import UserError, one_line, shorten
from transformer.files import read_json, write_json
from transformer.runs.workdir import locked

COPIES = "~/.cache/transformer/buckets"
EVERY = 10.0  # seconds between two uploads
STALE = 60.0  # seconds without an upload after which a training has ended without saying so
LOCKS = "locks"  # a folder of numbered objects; the last one is that of the process that trains
STATE = "bucket.json"  # of the copy: what each file was in the bucket and here when last equal
# Names of files that are not uploaded, and parts of such names.
LOCAL = ("lock", STATE)
HALF = (".partial", ".orbax-checkpoint-tmp/", "/deleted/", "/unreadable_")
RECORD = "record.json"  # without which a checkpoint is not whole

logger = logging.getLogger(__name__)


class Bucket:
    """A folder of a store and its copy on this machine.

    Args:
      url: of the folder.
    """

    def __init__(self, url: str):
        import fsspec  # most commands need none

        self.url = url.rstrip("/")
        key = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        self.copy = Path(COPIES).expanduser() / f"{self.url.rpartition('/')[2]}-{key}"
        self._files: dict[str, Any] = {}  # by name: the object's identity, size and time here
        self._number, self._held = 0, -math.inf  # of the own lock, and when it was written last
        with self._named():
            self._store, self._root = fsspec.url_to_fs(self.url)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Names the store in what it raises, which is of its package."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            why = shorten(one_line(str(error))) or type(error).__name__
            raise UserError(
                f"--workdir={self.url} cannot be used ({why}): check its name, your permission and "
                f"the network; the copy on this machine is {self.copy}"
            ) from error

    def _objects(self) -> dict[str, str]:
        """The identity of each file in the bucket, but for those of checkpoints without record."""
        self._store.invalidate_cache()
        objects = self._store.find(self._root, detail=True)
        names = {path[len(self._root) + 1 :]: info for path, info in objects.items()}
        if odd := [name for name in names if name.startswith("/") or ".." in name.split("/")]:
            raise UserError(f"--workdir={self.url} has the object {odd[0]!r}, which no run has")

        def is_whole(name: str) -> bool:
            checkpoint = re.match(r"(?:.*/)?checkpoints/\d+/", name)  # of a run or of a trial
            return not checkpoint or f"{checkpoint[0]}{RECORD}" in names

        return {
            name: _identity(info)
            for name, info in names.items()
            if not name.startswith(f"{LOCKS}/") and is_whole(name)
        }

    def download(self) -> None:
        """Makes the copy equal to the bucket.

        If nobody else has written there since, what a killed command has changed here stays.
        """
        self.copy.mkdir(parents=True, exist_ok=True)
        state = self.copy / STATE
        if state.exists():
            self._files = read_json(state, dict, "delete it")
        with self._named():
            objects = self._objects()
            ours = objects == {name: file[0] for name, file in self._files.items()}
            equal = {}
            for name, file in self._files.items():
                here = _stat(self.copy / name)
                if objects.get(name) == file[0] and (here == file[1:] or (ours and here)):
                    equal[name] = file
            if not ours:
                for name in {*self._names()} - equal.keys():
                    (self.copy / name).unlink()
                _delete_empty_folders(self.copy)  # of checkpoints
            for name in objects.keys() - equal.keys():
                path = self.copy / name
                path.parent.mkdir(parents=True, exist_ok=True)
                self._store.get_file(f"{self._root}/{name}", str(path))
                equal[name] = [objects[name], *_stat(path)]
        self._files = equal
        write_json(state, self._files)

    def upload(self) -> None:
        """Uploads what has changed here, the oldest first, as a kill would leave the folder."""
        with self._named():
            files = {name: _stat(self.copy / name) for name in self._names()}
            changed = [name for name in files if self._files.get(name, [0])[1:] != files[name]]
            for name in sorted(changed, key=lambda name: files[name][1:]):
                self._hold()
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    self._store.put_file(str(self.copy / name), f"{self._root}/{name}")
                    info = self._store.info(f"{self._root}/{name}", refresh=True)
                    self._files[name] = [_identity(info), *files[name]]
            self._hold()
            for name in [name for name in self._files if not (self.copy / name).exists()]:
                self._store.rm_file(f"{self._root}/{name}")
                del self._files[name]
        write_json(self.copy / STATE, self._files)

    def _names(self) -> Iterator[str]:
        """The files of the copy that belong into the bucket."""
        for path in self.copy.rglob("*"):
            name = path.relative_to(self.copy).as_posix()
            half = any(part in f"/{name}" for part in HALF)
            if path.is_file() and path.name not in LOCAL and not half:
                yield name

    # -- the lock: the highest number, which a store gives to one process alone

    def _lock(self, number: int) -> str:
        return f"{self._root}/{LOCKS}/{number:06d}"

    def _newest(self) -> int:
        self._store.invalidate_cache()
        if not self._store.exists(f"{self._root}/{LOCKS}"):
            return 0
        return max(
            (int(name[-6:]) for name in self._store.find(f"{self._root}/{LOCKS}")), default=0
        )

    def take(self) -> None:
        """Takes the lock; raises UserError if another process that trains has it."""
        with self._named():
            number = self._newest()
            if number:
                holder = json.loads(self._store.cat_file(self._lock(number)))
                if time.time() - holder["time"] < STALE:
                    raise UserError(
                        f"process {holder['process']} of {holder['host']} trains in {self.url}: "
                        "wait for its end, or use another folder; if it was killed, try again in "
                        f"{STALE:.0f} seconds"
                    )
            try:
                self._store.pipe_file(self._lock(number + 1), _holder(), mode="create")
            except FileExistsError:
                raise UserError(
                    f"another process has begun to train in {self.url}: use another folder"
                ) from None
            self._number = number + 1
            for old in range(max(1, number - 1), number + 1):
                with contextlib.suppress(FileNotFoundError):
                    self._store.rm_file(self._lock(old))

    def _hold(self) -> None:
        """Says that the process goes on; ends it if another has taken the lock meanwhile."""
        if not self._number or time.monotonic() - self._held < EVERY:
            return
        if self._newest() > self._number:
            line = f"error: another process trains in {self.url} now; the copy is {self.copy}"
            print(line, file=sys.stderr)
            signals.end(2)
        self._store.pipe_file(self._lock(self._number), _holder())
        self._held = time.monotonic()

    def release(self) -> None:
        """Says that this process trains no longer."""
        with self._named():
            self._store.pipe_file(self._lock(self._number), _holder(-STALE))


def _holder(later: float = 0.0) -> bytes:
    place = {"host": socket.gethostname(), "process": os.getpid(), "time": time.time() + later}
    return json.dumps(place).encode()


def _identity(info: dict[str, Any]) -> str:
    """What changes whenever an object is written again."""
    for key in ("ETag", "etag", "generation", "mtime", "LastModified", "created"):
        if key in info:
            return f"{info['size']} {info[key]}"
    return str(info["size"])


def _stat(path: Path) -> list[int]:
    """The size and the time of the last change of a file; empty if there is none."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return []
    return [stat.st_size, stat.st_mtime_ns]


def _delete_empty_folders(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        with contextlib.suppress(OSError):  # it is not empty, or a file
            path.rmdir()


@contextlib.contextmanager
def mirror(url: str, training: bool) -> Iterator[Path]:
    """Yields the copy of a folder in a bucket, whose changes are uploaded, during a training too.

    If a training of this machine works in the copy, another command takes it as it is, and leaves
    the uploads to the training.

    Args:
      training: whether no other process may train in it meanwhile.
    """
    bucket = Bucket(url)
    with contextlib.ExitStack() as alone:
        try:
            alone.enter_context(locked(bucket.copy.with_name(f"{bucket.copy.name}.lock")))
        except UserError:
            if training:
                raise UserError(
                    f"another process trains in {url}: wait for its end, or use another folder"
                ) from None
            yield bucket.copy
            return
        if not training:
            alone.close()
        with _synchronise(bucket, training):
            yield bucket.copy


@contextlib.contextmanager
def _synchronise(bucket: Bucket, training: bool) -> Iterator[None]:
    """Downloads the copy, and uploads its changes."""
    over = threading.Event()

    def upload_often() -> None:
        while not over.wait(EVERY):
            try:
                bucket.upload()
            except UserError as error:
                logger.warning(f"warning: {error}; it is tried again")

    if training:
        bucket.take()
    bucket.download()
    uploader = threading.Thread(target=upload_often, daemon=True)
    if training:
        uploader.start()
    try:
        yield
    finally:
        over.set()
        if training:
            uploader.join()
        bucket.upload()
        if training:
            bucket.release()
