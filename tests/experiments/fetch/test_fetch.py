"""A corpus arrives whole and checked, however the network behaves, or one line says why not."""

import hashlib
import io
import random
import re
import socket
import tarfile
import zipfile

import pytest
from file_server import TEXT, names, sha256

from configs import base
from experiments.config import read_experiment
from experiments.fetch import archives, fetch, transfer
from places import ROOT
from source_settings import refused
from tiny_run import command, unsealed
from transformer import config as rules
from transformer.data.files.catalogue import CATALOGUE
from transformer.data.files.text import read_lines


def test_a_corpus_is_fetched_once_with_its_licence_and_kept_as_it_is(server, get, capsys):
    server.files["/a.txt"] = TEXT, '"1"'
    folder = get(sha256(TEXT), size=len(TEXT))
    assert (folder / "a.txt").read_bytes() == TEXT
    assert names(folder) == ["a.txt", "fetched.json"]
    out = capsys.readouterr().out
    assert "licence: its licence\nplease cite: its authors" in out
    assert "--config.data.source=files" in out
    get(sha256(TEXT))
    assert len(server.requests) == 1  # it is there
    (folder / "a.txt").write_bytes(TEXT[:-1])
    get(sha256(TEXT))
    assert (folder / "a.txt").read_bytes() == TEXT


@pytest.mark.parametrize("way", ["cut", "stall"])
@pytest.mark.parametrize("version", ['"1"', ""])
@pytest.mark.parametrize("published", [True, False])
def test_what_was_cut_or_stalls_goes_on_where_it_was(server, get, way, version, published):
    server.files["/a.txt"] = TEXT, version
    server.ways["/a.txt"] = [way, way, 503]
    folder = get(sha256(TEXT) if published else "")
    assert (folder / "a.txt").read_bytes() == TEXT
    ranges = [asked for _, asked, _ in server.requests]
    assert ranges[0] is None
    # Nothing says that the beginning is of the same file: it is not used.
    assert (ranges[-1] is not None) == (published or bool(version))


def test_a_later_command_goes_on_too_but_not_with_another_version(server, get, tmp_path):
    server.files["/a.txt"] = TEXT, '"1"'
    server.ways["/a.txt"] = ["cut", 404]
    with refused("status 404", "a.txt cannot be fetched"):
        get()
    part = tmp_path / "corpus" / "a.txt.part"
    assert TEXT.startswith(part.read_bytes())
    assert len(part.read_bytes()) == len(TEXT) // 2
    other = TEXT.upper()
    server.files["/a.txt"] = other, '"2"'
    assert (get() / "a.txt").read_bytes() == other
    assert server.requests[-1][1] == f"bytes={len(TEXT) // 2}-"
    assert names(part.parent) == ["a.txt", "fetched.json"]


def test_a_server_that_knows_no_ranges_sends_all_again(server, get):
    server.files["/a.txt"] = TEXT, '"1"'
    server.ways["/a.txt"] = ["cut", "whole"]
    assert (get(sha256(TEXT)) / "a.txt").read_bytes() == TEXT


def test_a_slow_server_is_waited_for_as_long_as_it_sends(server, get):
    server.files["/a.txt"] = TEXT, '"1"'
    server.ways["/a.txt"] = ["slow"]
    assert (get(sha256(TEXT)) / "a.txt").read_bytes() == TEXT
    assert len(server.requests) == 1


def test_one_that_hardly_sends_is_given_up(server, get, monkeypatch):
    monkeypatch.setattr(transfer, "MIN_RATE", 1e12)
    monkeypatch.setattr(fetch, "PATIENCE", fetch.PATIENCE._replace(read=0.01))
    server.files["/a.txt"] = TEXT, '"1"'
    server.ways["/a.txt"] = ["slow"]
    get(sha256(TEXT))
    assert len(server.requests) > 1


@pytest.mark.parametrize(
    ("ways", "says", "requests"),
    [
        ([404], "status 404", 1),
        ([503] * 9, "status 503, 3 times", 3),
        (["stall"] * 9, None, None),
    ],
)
def test_an_address_that_gives_nothing_is_left_for_the_next(server, get, ways, says, requests):
    server.files |= {"/a.txt": (b"", '"1"'), "/b.txt": (TEXT, '"1"')}
    server.ways["/a.txt"] = list(ways)
    if says:
        with refused(says, f"{server.url}/a.txt", "by hand as", "a.txt.part"):
            get(sha256(TEXT))
        assert len(server.requests) == requests
        server.ways["/a.txt"] = list(ways)
    assert (get(sha256(TEXT), urls=("/a.txt", "/b.txt")) / "a.txt").read_bytes() == TEXT


def test_a_host_that_is_not_there_is_named(get):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with refused(f"http://127.0.0.1:{port}/a.txt: no connection (Connection refused), 3 times"):
        get(urls=(f"http://127.0.0.1:{port}/a.txt",))


@pytest.mark.parametrize("listed", [True, False])
def test_a_redirect_leads_to_another_host_only_if_that_is_listed(serve, server, get, listed):
    other = serve()
    other.files["/b.txt"] = TEXT, '"1"'
    server.ways["/a.txt"] = [f"{other.url}/b.txt"]
    hosts = (other.url.removeprefix("http://"),) if listed else ()
    if listed:
        assert (get(sha256(TEXT), hosts=hosts) / "a.txt").read_bytes() == TEXT
        return
    with refused(f"leads to {other.url}/b.txt, which is neither https nor its own host"):
        get(sha256(TEXT), hosts=hosts)
    assert not other.requests


def test_a_redirect_on_its_own_host_is_followed_but_not_for_ever(server, get):
    server.files["/b.txt"] = TEXT, '"1"'
    server.ways |= {"/a.txt": [f"{server.url}/b.txt"], "/c": [f"{server.url}/c"] * 99}
    assert (get(sha256(TEXT)) / "a.txt").read_bytes() == TEXT
    with refused("leads elsewhere more than 5 times"):
        get(urls=("/c",), name="c")


@pytest.mark.parametrize(
    ("ours", "theirs", "follows"),
    [
        ("https://a.org/x", "https://b.org/x", True),
        ("http://a.org/x", "https://b.org/x", True),
        ("https://a.org/x", "http://a.org/x", False),
        ("https://a.org/x", "file:///etc/passwd", False),
        ("https://a.org/x", "ftp://a.org/x", False),
    ],
)
def test_no_redirect_leads_away_from_https(ours, theirs, follows):
    assert transfer._may_follow(ours, theirs, ()) == follows


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_file_with_another_checksum_never_gets_its_name(server, get, tmp_path, kind):
    server.files["/a.txt"] = TEXT[:-1] + b"x", '"1"'
    published = f"{kind}:{hashlib.new(kind, TEXT).hexdigest()}"
    with refused("a.txt gave a file of", f"checksum {kind}:", f"{published} is published"):
        get(published)
    assert names(tmp_path / "corpus") == []
    server.files["/a.txt"] = TEXT, '"1"'
    assert names(get(published)) == ["a.txt", "fetched.json"]  # the control


def test_a_file_larger_than_is_published_is_not_downloaded(server, get):
    server.files["/a.txt"] = TEXT, '"1"'
    with refused(f"it has {len(TEXT):,} bytes, more than the 1,000"):
        get(sha256(TEXT), size=1000)


def test_without_a_published_checksum_the_first_one_holds(server, get, tmp_path, capsys):
    server.files["/a.txt"] = TEXT, '"1"'
    folder = get()
    assert f"no checksum is published; {sha256(TEXT)} is kept" in capsys.readouterr().out
    (folder / "a.txt").unlink()
    server.files["/a.txt"] = TEXT.upper(), '"2"'
    with refused(sha256(TEXT), sha256(TEXT.upper()), "it has changed", "fetched.json"):
        get()
    assert names(folder) == ["fetched.json"]


def test_a_file_of_the_users_is_never_replaced(server, get, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("mine")
    server.files["/a.txt"] = TEXT, '"1"'
    with refused(f"{tmp_path / 'corpus' / 'a.txt'} is there, but was not fetched"):
        get(sha256(TEXT))
    assert (tmp_path / "corpus" / "a.txt").read_text() == "mine"


# Archives.


def tar(members, links=()):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
        for name, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            file.addfile(info)
    return data.getvalue()


def zipped(members, links=()):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return data.getvalue()


@pytest.mark.parametrize("pack", [tar, zipped])
def test_only_the_wanted_files_of_an_archive_are_kept(server, get, pack):
    server.files["/a.pack"] = pack({"d/x.de": TEXT, "d/y": b"y", "./d/x.en": b"en"}), '"1"'
    members = {"d/x.de": "train.de", "d/x.en": "train.en"}
    folder = get(urls=("/a.pack",), name="a.pack", members=members)
    assert names(folder) == ["fetched.json", "train.de", "train.en"]
    assert (folder / "train.de").read_bytes() == TEXT


@pytest.mark.parametrize("pack", [tar, zipped])
@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "d/../../evil", "..\\evil", "C:\\evil"])
def test_an_archive_with_a_name_that_leads_out_is_refused(server, get, tmp_path, pack, name):
    server.files["/a.pack"] = pack({name: b"x", "d/x": b"x"}), '"1"'
    with refused("a.pack has a file", "leads out of the folder"):
        get(urls=("/a.pack",), name="a.pack", members={"d/x": "x"})
    assert names(tmp_path / "corpus") == []
    assert names(tmp_path) == ["corpus"]


def test_a_link_is_not_a_file_that_is_kept(server, get, tmp_path):
    (tmp_path / "secret").write_text("secret")
    server.files["/a.tar"] = tar({}, [("d/x", str(tmp_path / "secret"))]), '"1"'
    with refused("a.tar has no d/x"):
        get(urls=("/a.tar",), name="a.tar", members={"d/x": "x"})
    assert names(tmp_path / "corpus") == []


@pytest.mark.parametrize("pack", [tar, zipped])
def test_a_damaged_archive_leaves_nothing(server, get, tmp_path, pack):
    noise = random.Random(1).randbytes(50_000)
    data = pack({"d/x": noise})
    broken = data[:20_000] + bytes(1000) + data[21_000:]
    for content in (broken, data[: len(data) // 2], b"no archive"):
        server.files["/a.pack"] = content, f'"{len(content)}"'
        with refused("a.pack", "damaged"):
            get(urls=("/a.pack",), name="a.pack", members={"d/x": "x"})
        assert names(tmp_path / "corpus") == []


@pytest.mark.parametrize("pack", [tar, zipped])
def test_an_archive_that_unpacks_to_too_much_is_refused(server, get, monkeypatch, pack):
    monkeypatch.setattr(archives, "MAX_UNPACKED", 10_000)
    server.files["/a.pack"] = pack({"bomb": bytes(20_000), "d/x": b"x"}), '"1"'
    with refused("a.pack unpacks to more than 10,000 bytes"):
        get(urls=("/a.pack",), name="a.pack", members={"d/x": "x"})


def test_folders_of_classes_become_one_shuffled_table(server, get):
    reviews = {f"r/train/{c}/{i}_7.txt": f"{c} {i}\tx<br />\r\ny".encode()
               for c in ("neg", "pos", "unsup") for i in range(50)}  # fmt: skip
    server.files["/a.tar"] = tar(reviews), '"1"'
    folder = get(
        urls=("/a.tar",),
        name="a.tar",
        classes={"train.tsv.gz": ("r/train/neg", "r/train/pos")},
    )
    lines = list(read_lines(folder / "train.tsv.gz"))
    assert sorted(lines) == sorted(
        f"{c}\t{c} {i} x<br /> y" for c in ("neg", "pos") for i in range(50)
    )
    labels = "".join(line[0] for line in lines)
    assert not re.search("n{20}|p{20}", labels)
    first = (folder / "train.tsv.gz").read_bytes()
    (folder / "train.tsv.gz").unlink()
    get(urls=("/a.tar",), name="a.tar", classes={"train.tsv.gz": ("r/train/neg", "r/train/pos")})
    assert (folder / "train.tsv.gz").read_bytes() == first


# The catalogue.


@pytest.mark.parametrize(
    "name", [name for name in CATALOGUE if name[:8] != "tatoeba_"] + ["tatoeba_spa"]
)
def test_a_corpus_of_the_catalogue_is_complete(name):
    corpus = CATALOGUE[name]
    config = base.get_config()
    for key, value in corpus.settings.items():
        assert isinstance(value, type(config.data[key]))
    kept = [output for download in corpus.downloads for output in download.outputs]
    assert len(set(kept)) == len(kept)
    for key, value in corpus.settings.items():
        if key.endswith(("_source", "_target")) and value:
            assert value in kept or f"{value}.gz" in kept
    for download in corpus.downloads:
        assert all(re.fullmatch(r"https?://\S+", url) for url in download.urls)
        assert re.fullmatch(r"(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})?", download.checksum)
        # Without a checksum nothing would show that a stranger had changed it on the way.
        assert download.checksum or all(url.startswith("https://") for url in download.urls)
    assert corpus.licence
    assert corpus.citation


def test_fetched_json_says_what_came_from_where(server, get):
    server.files["/a.txt"] = TEXT, '"1"'
    record = unsealed(get(sha256(TEXT)) / "fetched.json")
    digits = sha256(TEXT).removeprefix("sha256:")
    assert record == {
        "a.txt": {"url": f"{server.url}/a.txt", "sha256": digits, "files": {"a.txt": digits}}
    }


@pytest.mark.parametrize("members", [{}, {"d/x": "x"}], ids=["file", "archive"])
def test_a_file_of_a_fetch_that_was_interrupted_is_not_taken_for_the_users(
    server, get, monkeypatch, members
):
    content = tar({"d/x": TEXT}) if members else TEXT
    server.files["/a.txt"] = content, '"1"'

    def interrupt(part):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_forget", interrupt)  # when the files have their names
        with pytest.raises(KeyboardInterrupt):
            get(sha256(content), members=members)
    folder = get(sha256(content), members=members)
    assert (folder / ("x" if members else "a.txt")).read_bytes() == TEXT
    assert len(server.requests) == 1


FETCHING = ["multi30k.py", "tutorial_en_de.py", "char_shakespeare.py", "imdb.py"]


@pytest.mark.parametrize("name", [*FETCHING, "ted_ru_en.py:files", "tatoeba.py", "tatoeba.py:fra"])
def test_a_config_reads_the_corpus_that_it_fetches_as_it_is(name):
    data = read_experiment(str(ROOT / "configs" / name)).config.data
    corpus = CATALOGUE[data.fetch]
    assert {key: data[key] for key in corpus.settings} == dict(corpus.settings)


def test_a_language_without_an_archive_is_named_with_the_nearest():
    ended = command(f"--config={ROOT}/configs/tatoeba.py:spanish", "--mode=fetch")
    assert ended.code == 2
    assert re.search("fetch='tatoeba_spanish' is unknown: .*; the nearest: tatoeba_spa", ended.err)


def test_the_command_needs_no_folder_of_a_run(server, get, tmp_path, monkeypatch):
    server.files["/a.txt"] = TEXT, '"1"'
    get(sha256(TEXT))
    flags = [f"--config.data.path={tmp_path / 'corpus'}", "--config.data.fetch=mine"]
    monkeypatch.setattr(rules, "CHOICES", rules.CHOICES | {"data.fetch": ("", *CATALOGUE)})
    cache = f"--config.data.cache_dir={tmp_path / 'cache'}"
    ended = command("--mode=fetch", cache, *flags)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-2:] == [
        str(tmp_path / "corpus" / "a.txt"),
        "to train on it, add to the command: --config.data.source=files",
    ]
    with_nothing = command("--mode=fetch", cache)
    assert with_nothing.code == 2
    assert "--config.data.fetch is empty: name a corpus, one of multi30k" in with_nothing.err
    assert "'nope' is unknown" in command("--mode=fetch", cache, "--config.data.fetch=nope").err
