"""A file that a user puts there is taken in place of a download, and never lost."""

import json

import pytest
from file_server import TEXT, names, sha256

from source_settings import refused


@pytest.fixture
def by_hand(tmp_path):
    """A file that a user puts there."""
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus" / "a.txt.part"


def test_a_file_that_was_put_there_by_hand_is_checked_and_taken(server, get, by_hand):
    by_hand.write_bytes(TEXT)
    assert names(get(sha256(TEXT))) == ["a.txt", "fetched.json"]
    assert not server.requests


def test_without_a_published_checksum_a_file_put_there_by_hand_is_taken_too(server, get, by_hand):
    by_hand.write_bytes(TEXT)
    folder = get()
    assert (folder / "a.txt").read_bytes() == TEXT
    assert names(folder) == ["a.txt", "fetched.json"]
    assert json.loads((folder / "fetched.json").read_text())["a.txt"]["url"] == "put there by hand"
    assert not server.requests
    # It must be that of the first fetch, and is not lost if it is another.
    (folder / "a.txt").unlink()
    by_hand.write_bytes(TEXT.upper())
    with refused(sha256(TEXT), sha256(TEXT.upper()), "it has changed", "fetched.json"):
        get()
    assert by_hand.read_bytes() == TEXT.upper()


def test_a_damaged_file_put_there_by_hand_is_kept_and_named(get, by_hand):
    by_hand.write_bytes(b"no archive")
    with refused("a.txt is a damaged archive", f"{by_hand} was put there by hand: replace"):
        get(members={"d/x": "x"})
    assert by_hand.read_bytes() == b"no archive"


def test_what_a_failed_download_advises_works(server, get, by_hand):
    server.files["/a.txt"] = TEXT, '"1"'
    server.ways["/a.txt"] = ["cut", 404, 404]
    note = by_hand.with_name("a.txt.part.version")
    with refused(f"by hand as {by_hand}, delete {note} and run the same command"):
        get()
    by_hand.write_bytes(TEXT[:-1])
    with refused("status 404"):  # the control: it passes for a beginning
        get()
    note.unlink()
    assert (get() / "a.txt").read_bytes() == TEXT[:-1]
