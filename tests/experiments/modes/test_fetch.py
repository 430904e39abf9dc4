"""A corpus arrives whole and checked, however the network behaves, or one line says why not."""

import hashlib
import http.server
import io
import os
import random
import re
import tarfile
import threading
import zipfile

import pytest

from configs import base
from experiments.modes import fetch
from experiments.process.config import read_experiment
from places import ROOT
from source_settings import refused
from tiny_run import command, unsealed
from transformer.data.files.locate import CATALOGUE, Download, PublicCorpus
from transformer.data.files.text import read_lines
from transformer.runs.run import Run

TEXT = "".join(f"{i}\tline {i * i}\n" for i in range(20_000)).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.files`, but of those in `server.cut` the first half."""

    def do_GET(self):
        self.server.requests.append(self.path)
        data = self.server.files.get(self.path, b"")
        self.send_response(200 if data else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if self.path in self.server.cut else data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.cut, server.requests = {"/a.txt": TEXT}, set(), []
        server.handle_error = lambda *arguments: None  # a client that goes away
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def get(server, tmp_path, monkeypatch):
    """Fetches a corpus of one download from the server; returns the folder."""

    def run(checksum="", urls=("/a.txt",), **fields):
        download = Download("a.txt", tuple(server.url + url for url in urls), checksum, **fields)
        about, settings = ("Title", "its licence", "its authors", "1 MB"), {"source": "files"}
        corpus = PublicCorpus(*about, (download,), settings)
        monkeypatch.setitem(CATALOGUE, "mine", corpus)
        config = base.get_config()
        config.data.fetch, config.data.path = "mine", str(tmp_path / "corpus")
        list(fetch.fetch(Run(tmp_path, config)))
        return tmp_path / "corpus"

    return run


@pytest.fixture
def by_hand(tmp_path):
    """A file that a user puts there."""
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus" / "a.txt.part"


def sha256(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def names(folder):
    return sorted(os.listdir(folder))


def test_a_corpus_is_fetched_once_with_its_licence_and_kept_as_it_is(server, get, capsys):
    folder = get(sha256(TEXT))
    assert (folder / "a.txt").read_bytes() == TEXT
    assert names(folder) == ["a.txt", "fetched.json"]
    about = "licence: its licence\nplease cite: its authors\ndownload: 1 MB\n"
    assert about in capsys.readouterr().out
    digits = sha256(TEXT).removeprefix("sha256:")
    assert unsealed(folder / "fetched.json") == {
        "a.txt": {"url": f"{server.url}/a.txt", "files": {"a.txt": digits}}
    }
    get(sha256(TEXT))
    assert len(server.requests) == 1  # it is there
    (folder / "a.txt").write_bytes(TEXT[:-1])
    get(sha256(TEXT))
    assert (folder / "a.txt").read_bytes() == TEXT


def test_the_next_address_is_tried_or_one_line_says_why(server, get):
    server.cut.add("/cut")
    server.files |= {"/cut": TEXT, "/whole": TEXT}
    reasons = (f"{server.url}/none: 404 Client Error", f"{server.url}/cut: ('Connection broken")
    with refused(*reasons, "by hand as", "a.txt.part"):
        get(urls=("/none", "/cut"))
    folder = get(urls=("/none", "/cut", "/whole"))
    assert (folder / "a.txt").read_bytes() == TEXT
    assert names(folder) == ["a.txt", "fetched.json"]


def test_a_file_with_another_checksum_is_not_kept(server, get, tmp_path):
    server.files["/a.txt"] = TEXT.upper()
    with refused("SHA256 hash", f"expected {sha256(TEXT)}"):
        get(sha256(TEXT))
    assert names(tmp_path / "corpus") == []


def test_a_file_of_the_users_is_never_replaced(get, by_hand):
    own = by_hand.with_name("a.txt")
    own.write_text("mine")
    with refused(f"{own} is there, but was not fetched"):
        get(sha256(TEXT))
    assert own.read_text() == "mine"


def test_a_file_that_was_put_there_by_hand_is_checked_and_taken(server, get, by_hand):
    by_hand.write_bytes(TEXT)
    folder = get(sha256(TEXT))
    assert (folder / "a.txt").read_bytes() == TEXT
    assert names(folder) == ["a.txt", "fetched.json"]
    assert unsealed(folder / "fetched.json")["a.txt"]["url"] == "put there by hand"
    assert not server.requests
    (folder / "a.txt").unlink()
    by_hand.write_bytes(TEXT.upper())
    with refused(f"{by_hand} has another checksum than {sha256(TEXT)}"):
        get(sha256(TEXT))
    assert by_hand.read_bytes() == TEXT.upper()


def test_a_file_of_an_interrupted_fetch_is_not_taken_for_the_users(server, get, monkeypatch):
    def interrupt(path, target):
        os.replace(path, target)
        if target.name == "a.txt":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch.Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            get(sha256(TEXT))
    assert (get(sha256(TEXT)) / "a.txt").read_bytes() == TEXT
    assert len(server.requests) == 1


# Archives.


def tar(members):
    """An archive of contents and, where a member is a path, of links to it."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
                file.addfile(info)
    return data.getvalue()


def zipped(members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return data.getvalue()


@pytest.mark.parametrize("pack", [tar, zipped])
def test_only_the_wanted_files_of_an_archive_are_kept_and_none_outside_the_folder(
    server, get, tmp_path, pack
):
    evil = ["../evil", f"{tmp_path}/evil", "d/../../evil", "..\\evil"]
    files = {"d/x.de": TEXT, "d/y": b"y", "./d/x.en": b"en"} | dict.fromkeys(evil, b"evil")
    server.files["/a.txt"] = pack(files)
    folder = get(members={"d/x.de": "train.de", "d/x.en": "train.en"})
    assert names(folder) == ["fetched.json", "train.de", "train.en"]
    assert (folder / "train.de").read_bytes() == TEXT
    assert names(tmp_path) == ["corpus"]
    (tmp_path / "secret").write_text("secret")
    server.files["/a.txt"] = tar({"d/x": tmp_path / "secret"})
    with refused("a.txt.part has no d/x"):
        get(members={"d/x": "x"})


@pytest.mark.parametrize("pack", [tar, zipped])
def test_a_damaged_archive_is_named_and_kept_only_if_it_was_put_there_by_hand(
    server, get, by_hand, pack
):
    noise = random.Random(1).randbytes(50_000)
    data = pack({"d/x": noise})
    for content in (data[:20_000] + bytes(1000) + data[21_000:], data[:25_000], b"no archive"):
        server.files["/a.txt"] = content
        with refused(by_hand, "damaged"):
            get(members={"d/x": "x"})
        assert names(by_hand.parent) == []
    by_hand.write_bytes(content)
    with refused(by_hand, "damaged"):
        get(members={"d/x": "x"})
    assert by_hand.read_bytes() == content


def test_folders_of_classes_become_one_shuffled_table(server, get):
    reviews = {f"r/train/{c}/{i}_7.txt": f"{c} {i}\tx<br />\r\ny".encode()
               for c in ("neg", "pos", "unsup") for i in range(50)}  # fmt: skip
    server.files["/a.txt"] = tar(reviews)
    tables = {"train.tsv.gz": ("r/train/neg", "r/train/pos")}
    table = get(classes=tables) / "train.tsv.gz"
    lines = list(read_lines(table))
    assert sorted(lines) == sorted(
        f"{c}\t{c} {i} x<br /> y" for c in ("neg", "pos") for i in range(50)
    )
    labels = "".join(line[0] for line in lines)
    assert not re.search("n{20}|p{20}", labels)
    first = table.read_bytes()
    table.unlink()
    get(classes=tables)
    assert table.read_bytes() == first


# The catalogue.

TALKS = CATALOGUE["iwslt14_de_en"].downloads[0].talks


def talk(name):
    """A file of IWSLT14's archive: a talk of 46 lines to train on, of 2 in each other set."""
    head = "<url>u</url>\n<keywords>k</keywords>\n<talkid>1</talkid>\n"
    head += f"<title>Ein Titel: {name[-2:]}</title>\n<description>TED Über uns</description>\n"
    if name.endswith(".xml"):
        segment = f'<seg id="12"> Größe <b> {name.split(".")[2]}, isn’t it? </seg>\n'
        return f'<?xml?>\n<doc docid="1">\n{head}{segment * 2}</doc>\n'.encode()
    return (head + "".join(f" Größe\u2028{i} & isn’t \n" for i in range(3, 47))).encode()


def test_ted_talks_become_lowercased_lines(server, get):
    files = {name: talk(name) for members in TALKS.values() for name in members}
    server.files["/a.txt"] = tar({"de-en/README": b"", **files})
    folder = get(talks=TALKS)
    assert names(folder) == sorted(["fetched.json", *TALKS])
    lines = {name: (folder / name).read_text().split("\n") for name in TALKS}
    text = ["ein titel: de", "ted über uns", *(f"größe\u2028{i} & isn’t" for i in range(3, 47)), ""]
    assert lines["train.de"] == [*text[:22], *text[23:45], ""]
    assert lines["valid.de"] == [text[22], text[45], ""]
    sets = ["dev2010", "dev2012", "tst2010", "tst2011", "tst2012"]
    expected = [f"größe <b> {name}, isn't it?" for name in sets for _ in range(2)]
    assert lines["test.en"] == lines["test.de"] == [*expected, ""]


def test_a_corpus_of_the_catalogue_is_complete():
    data = base.get_config().data
    for corpus in CATALOGUE.values():
        outputs = [output for download in corpus.downloads for output in download.outputs]
        assert len(set(outputs)) == len(outputs)
        for key, value in corpus.settings.items():
            assert isinstance(value, type(data[key]))
            if key.endswith(("_source", "_target")) and value:
                assert value in outputs or f"{value}.gz" in outputs
        for download in corpus.downloads:
            assert all(re.fullmatch(r"https?://\S+", url) for url in download.urls)
            assert re.fullmatch(r"(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})?", download.checksum)
            # Without a checksum nothing would show that a stranger had changed it on the way.
            assert download.checksum or all(url.startswith("https://") for url in download.urls)
        assert all((corpus.licence, corpus.citation, corpus.size))


CONFIGS = ["multi30k.py", "tutorial_en_de.py", "char_shakespeare.py", "imdb.py", "tatoeba.py"]
CONFIGS += ["iwslt14_de_en.py", "ted_ru_en.py:files", "tatoeba.py:fra"]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_reads_the_corpus_that_it_fetches_as_it_is(name):
    data = read_experiment(str(ROOT / "configs" / name)).config.data
    corpus = CATALOGUE[data.fetch]
    assert {key: data[key] for key in corpus.settings} == dict(corpus.settings)


def test_the_command_needs_no_folder_of_a_run(get, tmp_path):
    get(sha256(TEXT))
    flags = [f"--config.data.path={tmp_path / 'corpus'}", "--config.data.fetch=mine"]
    cache = f"--config.data.cache_dir={tmp_path / 'cache'}"
    ended = command("--mode=fetch", cache, *flags)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-2:] == [
        str(tmp_path / "corpus" / "a.txt"),
        "to train on it, add to the command: --config.data.source=files",
    ]
    ended = command("--mode=fetch", cache)
    assert ended.code == 2
    assert "--config.data.fetch is empty: name a corpus, one of multi30k" in ended.err
