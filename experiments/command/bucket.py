"""Run folders in cloud buckets, such as `--workdir=s3://bucket/run` or `gs://bucket/run`.

A command works in a local copy, which it locks, and then uploads the changes. Training uploads
changes every few seconds and at its end. The rest of the program therefore needs no support for
buckets, and the store need not support renames or appends. Stores are opened with fsspec, which
needs a separate package for each kind of store.

Only training deletes objects. Other commands never overwrite an object that another command has
written in the meantime.
"""

import contextlib
import hashlib
import itertools
import json
import logging
import math
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transformer import signals
from transformer.errors import UserError, one_line, shorten
from transformer.files import Each, read_json, write_json
from transformer.runs.logs import EVENTS, METRICS
from transformer.runs.workdir import locked

COPIES = "~/.cache/transformer/buckets"
EVERY = 10.0  # seconds between uploads
STALE = 60.0  # seconds without an upload after which a training process is considered dead
ROUNDS = 10  # maximum number of downloads while another training uploads
LOCKS = "locks"  # folder of numbered lock objects; the training process owns the last one
STATE = "copy.json"  # state of the copy; see `Bucket`
# Names and path parts of files that are not uploaded.
LOCAL = ("lock", STATE)
HALF = (".partial", ".orbax-checkpoint-tmp/", ".deleted/")
LOGS = (METRICS, EVENTS)
RECORD = "record.json"  # a checkpoint without this file is incomplete
# Placeholders for the identity of an object during its upload or download.
UPLOADING, DOWNLOADING = "uploading", "downloading"

logger = logging.getLogger(__name__)


class Bucket:
    """A folder in a bucket, given by its URL, and its local copy.

    The saved state contains the number of the last known training. For each file, it also has the
    object's identity (or None) and, if the local file is equal, the file's size and time.
    """

    def __init__(self, url: str):
        import fsspec  # most commands do not need it

        self.url = url.rstrip("/")
        key = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        self.copy = Path(COPIES).expanduser() / f"{self.url.rpartition('/')[2]}-{key}"
        self._files: dict[str, list[Any]] = {}
        self._last, self._saved = 0, [0]  # number of the last training; stat of the state file
        self._trains, self._held = False, -math.inf  # whether it is ours; time of its last update
        self._after: list[int] = []  # stat of the state file from which this training resumes
        with self._named():
            self._store, self._root = fsspec.url_to_fs(self.url)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Turns errors of the store's package into a UserError with the URL of the bucket."""
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

    def lock_copy(self, held: contextlib.ExitStack) -> None:
        """Locks the first local copy that no other command uses, until `held` is closed."""
        first = self.copy
        for number in itertools.count(2):
            with contextlib.suppress(UserError):
                held.enter_context(locked(self.copy.with_name(f"{self.copy.name}.lock")))
                return
            self.copy = first.with_name(f"{first.name}.{number}")

    def open_copy(self, training: bool) -> None:
        """Acquires the lock if `training`, and synchronises the copy with the bucket.

        Local changes of a killed command are kept unless another training process has run since.
        """
        self.copy.mkdir(parents=True, exist_ok=True)
        last, state = -1, self.copy / STATE
        if state.exists():
            saved = read_json(state, {"last": int, "files": Each(list)}, "delete it")
            last, self._files = saved["last"], saved["files"]
        with self._named():
            self._last, holder = self._newest()
            same = last == self._last or (last >= 0 and holder.get("after") == _file_stat(state))
            if training:
                self._after = _file_stat(state) if same else []
                self.take(holder)
            for _ in range(ROUNDS):  # until a download finds no new objects
                if not self._download(same):
                    break
        for path in sorted(self.copy.rglob("*"), reverse=True):  # left by deleted checkpoints
            with contextlib.suppress(OSError):  # a non-empty folder, or a file
                path.rmdir()
        if not training:  # uploads only its own changes, not those of a killed command
            stats = {name: _file_stat(self.copy / name) for name in self._names()}
            self._files = {name: [self._files[name][0], *stat] for name, stat in stats.items()}

    def _download(self, same: bool) -> bool:
        """Downloads new objects from the bucket, except incomplete checkpoints.

        Args:
          same: whether to keep files that have changed only locally.

        Returns whether there were any new objects.
        """
        self._store.invalidate_cache()
        paths, files = self._store.find(self._root, detail=True), {}
        names = {path[len(self._root) + 1 :]: info for path, info in paths.items()}
        if odd := [name for name in names if name.startswith("/") or ".." in name.split("/")]:
            raise UserError(f"--workdir={self.url} has the object {odd[0]!r}, which no run writes")
        objects = {  # the identity of each object
            name: _object_identity(info)
            for name, info in names.items()
            if _belongs_to_run(name) and not name.startswith(f"{LOCKS}/")
        }
        folders = {name: re.match(r"(?:.*/)?checkpoints/\d+/", name) for name in objects}
        whole = {name for name, f in folders.items() if not f or f"{f[0]}{RECORD}" in objects}
        for name in [*self._names()]:
            identity, *stat = self._files.get(name, [None])
            equal = _file_stat(self.copy / name) == stat
            fits = objects.get(name) == identity and (same or (equal and name in whole))
            if fits or (same and identity == UPLOADING):
                files[name] = [objects.get(name), *(stat if equal else ())]
            else:
                (self.copy / name).unlink()
        new = whole - files.keys()
        halves = {name: [objects[name]] for name in objects.keys() - files.keys() - new}
        self._files = {**files, **halves, **{name: [DOWNLOADING] for name in new}}
        self._save()
        for name in new:
            path = self.copy / name
            partial = path.with_name(f"{path.name}.partial")
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                self._store.get_file(f"{self._root}/{name}", str(partial))
                partial.replace(path)
                self._files[name] = [objects[name], *_file_stat(path)]
        return bool(new)

    def upload(self) -> None:
        """Uploads local changes in an order that leaves the bucket consistent if interrupted.

        Logs are uploaded first, since checkpoint records are computed from earlier log lines. Other
        files follow, from the oldest to the newest change.
        """
        files = {name: _file_stat(self.copy / name) for name in self._names()}
        changed = [name for name in files if self._files.get(name, [0])[1:] != files[name]]
        gone = self._files.keys() - files.keys() if self._trains else set()
        if (changed or gone) and _file_stat(self.copy / STATE) != self._saved:
            raise UserError(
                f"{self.copy} was deleted meanwhile: nothing more of it is uploaded to {self.url}"
            )
        if changed and self._trains:
            self._save(changed)
        with self._named():
            for name in sorted(changed, key=lambda name: (not _is_log(name), files[name][1:])):
                self._hold()
                # Files that have changed again may depend on files that are not yet uploaded.
                if _is_log(name) or _file_stat(self.copy / name) == files[name]:
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        self._put(name, files[name])
            self._hold()
            for name in sorted(gone, key=lambda name: not name.endswith(RECORD)):  # records first
                if self._files[name][0] not in (None, DOWNLOADING):
                    with contextlib.suppress(FileNotFoundError):
                        self._store.rm_file(f"{self._root}/{name}")
                del self._files[name]
        if self._trains and (changed or gone):
            self._save()

    def _put(self, name: str, stat: list[int]) -> None:
        """Uploads a file; only training overwrites an object that another command has changed."""
        path, place = self.copy / name, f"{self._root}/{name}"
        if self._current(place) != self._files.get(name, [None])[0]:
            if not self._trains:
                logger.warning(
                    f"warning: another command has changed {name} in {self.url} meanwhile, which "
                    f"is left as it is: what this one wrote is {path}"
                )
                return
            self._held = -math.inf
            self._hold()  # ends this process if it has lost the lock
        self._store.put_file(str(path), place)
        self._files[name] = [self._current(place), *stat]

    def _current(self, place: str) -> str | None:
        """Returns the identity of an object, or None if it does not exist."""
        self._store.invalidate_cache()
        try:
            return _object_identity(self._store.info(place, refresh=True))
        except FileNotFoundError:
            return None

    def _save(self, uploading: Iterable[str] = ()) -> None:
        """Saves the state of the copy."""
        files = self._files | {name: [UPLOADING] for name in uploading}
        write_json(self.copy / STATE, {"last": self._last, "files": files})
        self._saved = _file_stat(self.copy / STATE)

    def _names(self) -> Iterator[str]:
        """Yields the names of all files in the copy that belong in the bucket."""
        for path in self.copy.rglob("*"):
            name = path.relative_to(self.copy).as_posix()
            if path.is_file() and _belongs_to_run(name):
                yield name

    # -- the lock: the object with the highest number, which only one process can create

    def _lock(self, number: int) -> str:
        return f"{self._root}/{LOCKS}/{number:06d}"

    def _newest(self) -> tuple[int, dict[str, Any]]:
        """Returns the number and the holder of the last lock; the number is 0 if there is none."""
        self._store.invalidate_cache()
        place, number = f"{self._root}/{LOCKS}", 0
        if self._store.exists(place):
            number = max((int(name[-6:]) for name in self._store.find(place)), default=0)
        return number, json.loads(self._store.cat_file(self._lock(number))) if number else {}

    def take(self, holder: dict[str, Any]) -> None:
        """Acquires the lock; raises UserError if the process holding it is still training."""
        if time.time() - holder.get("time", 0.0) < STALE:
            raise UserError(
                f"process {holder['process']} of {holder['host']} trains in {self.url}: "
                "wait for its end, or use another folder; if it was killed, try again in "
                f"{STALE:.0f} seconds"
            )
        self._trains, self._last = True, self._last + 1
        # Fails if another process has created this lock first.
        self._store.pipe_file(self._lock(self._last), self._holder(), mode="create")
        for old in range(max(1, self._last - 2), self._last):
            with contextlib.suppress(FileNotFoundError):
                self._store.rm_file(self._lock(old))

    def _hold(self) -> None:
        """Renews the lock; ends this process if another process has acquired the lock meanwhile."""
        if not self._trains or time.monotonic() - self._held < EVERY:
            return
        if self._newest()[0] > self._last:
            line = f"error: another process trains in {self.url} now; the copy is {self.copy}"
            print(line, file=sys.stderr)
            signals.end(2)
        self._store.pipe_file(self._lock(self._last), self._holder())
        self._held = time.monotonic()

    def release(self) -> None:
        """Releases the lock by marking it as stale."""
        with self._named():
            self._store.pipe_file(self._lock(self._last), self._holder(-STALE))

    def _holder(self, later: float = 0.0) -> bytes:
        place = {"host": socket.gethostname(), "process": os.getpid(), "after": self._after}
        return json.dumps(place | {"time": time.time() + later}).encode()


def _belongs_to_run(name: str) -> bool:
    """Returns whether a file belongs in the bucket, unlike locks and partial files."""
    return Path(name).name not in LOCAL and not any(part in f"/{name}" for part in HALF)


def _is_log(name: str) -> bool:
    """Returns whether a file is an append-only log."""
    return Path(name).name.startswith(LOGS)


def _object_identity(info: dict[str, Any]) -> str:
    """Returns a string that changes whenever an object is overwritten."""
    for key in ("ETag", "etag", "generation", "mtime", "LastModified", "created"):
        if key in info:
            return f"{info['size']} {info[key]}"
    return str(info["size"])


def _file_stat(path: Path) -> list[int]:
    """Returns the size in bytes and the modification time in ns, or [] for a missing file."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return []
    return [stat.st_size, stat.st_mtime_ns]


@contextlib.contextmanager
def mirror(url: str, training: bool) -> Iterator[Path]:
    """Yields a local copy of a folder in a bucket; uploads changes during training and at the end.

    Args:
      training: whether to lock the bucket against other training processes.
    """
    bucket, over = Bucket(url), threading.Event()

    def upload_often() -> None:
        while not over.wait(EVERY):
            try:
                bucket.upload()
            except (UserError, OSError) as error:
                logger.warning(f"warning: {error}; it is tried again")

    with contextlib.ExitStack() as held:
        bucket.lock_copy(held)
        bucket.open_copy(training)
        uploader = threading.Thread(target=upload_often, daemon=True)
        if training:
            uploader.start()
        try:
            yield bucket.copy
        finally:
            over.set()
            if training:
                uploader.join()
            bucket.upload()
            if training:
                bucket.release()
