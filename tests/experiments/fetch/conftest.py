"""A server of files, and what fetches from it."""

import threading

import pytest
from file_server import Server

from configs import base
from experiments.fetch import fetch, transfer
from transformer.data.files.catalogue import CATALOGUE, Corpus, Download

QUICK = transfer.Patience(connect=0.5, read=0.3, tries=3, pause=0.001)


@pytest.fixture
def serve():
    servers = []

    def start():
        server = Server()
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    yield start
    for server in servers:
        server.released.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def server(serve):
    return serve()


@pytest.fixture
def get(server, tmp_path, monkeypatch):
    """Fetches a corpus of one download from the server; returns the folder."""
    monkeypatch.setattr(fetch, "PATIENCE", QUICK)

    def run(checksum="", urls=("/a.txt",), name="a.txt", hosts=(), **fields):
        download = Download(
            name, tuple(u if "//" in u else server.url + u for u in urls), checksum, **fields
        )
        settings = {"source": "files"}
        corpus = Corpus("Title", "its licence", "its authors", (download,), settings, hosts)
        monkeypatch.setitem(CATALOGUE, "mine", corpus)
        config = base.get_config()
        config.data.fetch, config.data.path = "mine", str(tmp_path / "corpus")
        list(fetch.fetch(config, tmp_path))
        return tmp_path / "corpus"

    return run
