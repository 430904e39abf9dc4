"""The mode as a command: it starts, answers, and ends as signals say; bad flags get one line."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from serving import PATIENCE

from experiments.serve import serve, server
from places import ROOT
from tiny_run import refused
from transformer.runs.loaded import load

pytestmark = pytest.mark.full


def start(folder: Path, *flags: str) -> tuple[subprocess.Popen, int]:
    """Starts the command; returns its process and its port, once it listens."""
    command = [sys.executable, "launch.py", f"--workdir={folder}", "--mode=serve", "--port=0"]
    process = subprocess.Popen(
        [*command, *flags],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        text=True,
    )
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return process, int(found[1])
    raise AssertionError(f"it ended with {process.wait()}")


def ask(port: int, path: str, fields: dict | None = None) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    kind = {"Content-Type": "application/json"}
    if fields is None:
        connection.request("GET", path)
    else:
        connection.request("POST", path, json.dumps(fields), kind)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_the_command_serves_until_it_is_told_to_end(tiny):
    process, port = start(tiny.workdir)
    try:
        status, found = ask(port, "/api/translate", {"texts": ["a b c"]})
        assert status == 200
        assert [[best["text"] for best in own] for own in found["translations"]] == [
            load(tiny.workdir).translate(["a b c"])
        ]
        assert ask(port, "/api/runs")[1]["runs"][0]["name"] == "workdir"
        long = {"texts": ["secret " * 40], "targets": ["secret " * 40]}
        assert ask(port, "/api/score", long)[0] == 200
        assert ask(port, "/api/attention", {"text": "secret " * 40})[0] == 200
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
    assert process.returncode == 0
    assert "SIGTERM: finishing the running requests" in said
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line.endswith(" ms")]
    assert [re.sub(r"\d+ ms", "_ ms", line) for line in lines] == [
        "POST /api/translate 200 _ ms",
        "POST /api/score 200 _ ms",
        "POST /api/attention 200 _ ms",
    ]
    assert set(said.splitlines()) - set(lines) <= {
        "ready",
        "workdir: without data.languages, /translate uses it for all other languages",
        "SIGTERM: finishing the running requests, then ending; repeat it to end at once",
    }


def test_a_port_in_use_and_a_wrong_address_are_refused(tiny):
    flags = (f"--workdir={tiny.workdir}", "--mode=serve")
    with server.listen("127.0.0.1", 0) as used:
        port = used.getsockname()[1]
        refused(*flags, f"--port={port}", says=f"--port={port} ([Errno")
    refused(*flags, "--port=65536", says="another port, from 1024 to 65535")
    says = ("cannot listen at --host=no such name --port=0 (", "use --host=127.0.0.1")
    refused(*flags, "--port=0", "--host=no such name", says=says)
    refused(*flags, "--port=0", f"--also={tiny.workdir}", says="is served already")
    refused(*flags, "--port=0", "--also=nothing/here", says="nothing/here")


def test_a_missing_package_is_named_with_its_extra(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "experiments.serve.server")
    monkeypatch.delattr("experiments.serve.server")
    says = ("needs the package uvicorn", 'pip install "transformer-jax[serve]"')
    refused(f"--workdir={tiny.workdir}", "--mode=serve", says=says)


def test_runs_are_named_by_as_much_of_their_folders_as_tells_them_apart(tmp_path):
    folders = [tmp_path / name for name in ("a/own", "b/own", "b/other")]
    assert serve.name_runs(folders[:1]) == ["own"]
    assert serve.name_runs(folders[1:]) == ["own", "other"]
    assert serve.name_runs(folders) == ["a/own", "b/own", "b/other"]


def test_another_address_than_the_machines_own_is_warned_of(tiny, said, monkeypatch):
    monkeypatch.setattr(server, "serve_runs", lambda *_: None)
    run = load(tiny.workdir)
    for host, warned in (("127.0.0.1", False), ("0.0.0.0", True)):
        said.clear()
        serve.serve(run, serve.Options(host=host, port=0))
        assert any("everybody who reaches this address" in line for line in said) == warned
