"""A file from the network: resumed where it was cut, and tried again with growing pauses."""

import contextlib
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

BLOCK = 2**16  # bytes
MAX_REDIRECTS = 5
MAX_PAUSE = 60.0  # seconds
MIN_RATE = 1000.0  # bytes a second
SILENCE = 30.0  # seconds without a line at most, where there is no terminal
# Some servers refuse the name of Python's libraries.
HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; transformer-fetch)",
    "Accept-Encoding": "identity",
}
logger = logging.getLogger(__name__)


class Patience(NamedTuple):
    """How long is waited.

    Attributes:
      connect, read: seconds for a connection, and for the next bytes.
      tries: in a row without progress.
      pause: seconds before the second try; doubled before each further one.
    """

    connect: float = 10.0
    read: float = 30.0
    tries: int = 5
    pause: float = 1.0


class TransferError(Exception):
    """Why an address does not give its file."""


class _CutError(Exception):
    """Why a try failed, after which another may not; and the seconds that the server asks for."""

    def __init__(self, why: str, pause: float = 0.0):
        super().__init__(why)
        self.pause = pause


def transfer(
    url: str,
    part: Path,
    limit: int,
    hosts: tuple[str, ...],
    trusted: bool,
    patience: Patience,
) -> None:
    """Downloads a file, or its missing part.

    Args:
      part: the file, which may hold a beginning; it stays as far as it got.
      limit: bytes at most.
      hosts: that redirects may lead to without https.
      trusted: whether the whole is checked in the end, so that a beginning goes on even if the
        server does not say whether it is of the same file.

    Raises:
      TransferError: the address does not give it.
    """
    left, pause = patience.tries, patience.pause
    with requests.Session() as session:
        session.headers.update(HEADERS)
        while True:
            before = _size(part)
            try:
                return _try(session, url, part, limit, hosts, trusted, patience)
            except _CutError as error:
                moved = _size(part) > before
                left = patience.tries if moved else left - 1
                if left <= 0:
                    raise TransferError(f"{error}, {patience.tries} times") from None
                pause = patience.pause if moved else pause
                wait = min(max(pause, error.pause), MAX_PAUSE)
                logger.warning("%s: %s: trying again in %.0f s", url, error, wait)
                time.sleep(wait)
                pause *= 2


def version_note(part: Path) -> Path:
    """Returns the file that says of which version a part is; only downloads have one."""
    return part.with_name(f"{part.name}.version")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _try(
    session: requests.Session,
    url: str,
    part: Path,
    limit: int,
    hosts: tuple[str, ...],
    trusted: bool,
    patience: Patience,
) -> None:
    start, note = _size(part), version_note(part)
    version = note.read_text() if note.exists() else ""
    headers = {}
    if start and (version or trusted):
        headers = {"Range": f"bytes={start}-"} | ({"If-Range": version} if version else {})
    try:
        with _open(session, url, headers, hosts, patience) as response:
            if response.status_code == 416:
                if response.headers.get("Content-Range") == f"bytes */{start}":
                    return
                part.unlink(missing_ok=True)
                raise _CutError("the file is another than before")
            resumed = response.status_code == 206
            if resumed and not response.headers.get("Content-Range", "").startswith(
                f"bytes {start}-"
            ):
                part.unlink(missing_ok=True)
                raise _CutError("the server sends another part than was asked for")
            note.write_text(_version(response.headers))
            _write(response, part, start if resumed else 0, limit, patience)
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _CutError(_explain(error)) from None


def _version(headers: Mapping[str, str]) -> str:
    """Returns the name of a version of a file, for If-Range; '' if it has none."""
    tag = headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")


def _open(
    session: requests.Session,
    url: str,
    headers: dict[str, str],
    hosts: tuple[str, ...],
    patience: Patience,
) -> requests.Response:
    """Returns the answer of an address, after its redirects."""
    target = url
    for _ in range(MAX_REDIRECTS + 1):
        response = session.get(
            target,
            headers=headers,
            stream=True,
            allow_redirects=False,
            timeout=(patience.connect, patience.read),
        )
        if not response.is_redirect:
            break
        response.close()
        target = urljoin(target, response.headers["Location"])
        if not _may_follow(url, target, hosts):
            raise TransferError(f"it leads to {target}, which is neither https nor its own host")
    else:
        raise TransferError(f"it leads elsewhere more than {MAX_REDIRECTS} times")
    status = response.status_code
    if status in (200, 206, 416):
        return response
    response.close()
    if status in (408, 429) or status >= 500:
        asked = response.headers.get("Retry-After", "")
        raise _CutError(f"status {status}", float(asked) if asked.isdecimal() else 0.0)
    raise TransferError(f"status {status} {response.reason}")


def _may_follow(url: str, target: str, hosts: tuple[str, ...]) -> bool:
    ours, theirs = urlsplit(url), urlsplit(target)
    if theirs.scheme == "https":
        return True
    return theirs.scheme == "http" and (
        theirs.netloc in hosts or (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)
    )


def _write(
    response: requests.Response, part: Path, start: int, limit: int, patience: Patience
) -> None:
    length = response.headers.get("Content-Length", "")
    total = start + int(length) if length.isdecimal() else None
    if (total or 0) > limit:
        raise TransferError(f"it has {total:,} bytes, more than the {limit:,} that there can be")
    size = f"{total / 1e6:,.1f} MB" if total else "of a size that its server does not say"
    logger.info("downloading %s, %s", part.name.removesuffix(".part"), size)
    done = marked = start
    since = time.monotonic()
    with part.open("ab" if start else "wb") as file, _progress(part, start, total) as show:
        while block := response.raw.read1(BLOCK, decode_content=False):
            file.write(block)
            done += len(block)
            show(done)
            if done > limit:
                part.unlink()
                raise TransferError(f"it has more than the {limit:,} bytes that there can be")
            if (passed := time.monotonic() - since) > patience.read:
                if done - marked < MIN_RATE * passed:
                    raise _CutError(f"less than {MIN_RATE:,.0f} bytes a second")
                marked, since = done, time.monotonic()


def _explain(error: Exception) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate cannot be verified"
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return "no answer in time"
    system = re.search(r"\[Errno -?\d+\] ([\w ]+)", str(error))
    if system:
        return f"no connection ({system[1]})"
    return "the connection was cut" if "IncompleteRead" in str(error) else "no connection"


@contextlib.contextmanager
def _progress(part: Path, start: int, total: int | None) -> Iterator:
    """Shows bytes, rate and time left: on a terminal as a bar, elsewhere as lines.

    Yields:
      What to call with the bytes that there are.
    """
    bar = Progress(
        TextColumn(part.name.removesuffix(".part")),
        DownloadColumn(),
        BarColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    task = bar.add_task("bytes", total=total, completed=start)
    begin = shown = time.monotonic()

    def show(done: int) -> None:
        nonlocal shown
        bar.update(task, completed=done)
        now = time.monotonic()
        if now - shown < SILENCE or sys.stderr.isatty():
            return
        shown = now
        rate = (done - start) / (now - begin)
        left = f" of {total / 1e6:,.1f}, {(total - done) / rate:,.0f} s left" if total else ""
        logger.info("%s: %.1f MB%s, %.2f MB/s", part.name, done / 1e6, left, rate / 1e6)

    with bar:
        yield show
