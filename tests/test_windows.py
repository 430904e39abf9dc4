"""What Windows lacks is missing for our modules: runs are used, and a benchmark is refused."""

import re
import subprocess
import sys

import pytest

from places import ROOT

pytestmark = pytest.mark.full

# Other packages see the real modules: on Windows, they import others.
WINDOWS = """
import builtins, os, signal, sys, types
MODULES = {"fcntl", "grp", "pwd", "pty", "resource", "termios", "tty"}
NAMES = "O_DIRECTORY SIGALRM SIGKILL fork getuid killpg mkfifo set_blocking sync uname".split()
real_import, views = builtins.__import__, {}
def open_file(path, *arguments):
    if os.path.isdir(path):
        raise PermissionError(path)
    return os.open(path, *arguments)
for module in (os, signal):
    view = views[module.__name__] = types.ModuleType(module.__name__)
    vars(view).update({name: x for name, x in vars(module).items() if name not in NAMES})
views["os"].name, views["os"].kill, views["os"].open = "nt", None, open_file
def find(name, globals=None, *rest, **named):
    if (globals or {}).get("__name__", "").partition(".")[0] in ("transformer", "experiments"):
        if name in MODULES:
            raise ImportError(name)
        if name in views:
            return views[name]
    return real_import(name, globals, *rest, **named)
builtins.__import__ = find
"""
USE = """
from pathlib import Path
import transformer
from experiments.command.main import main
from experiments.process.process import run_process
from experiments.serve import routes, server
folder, place = map(Path, sys.argv[1:])
run = transformer.load(folder)
before = run.translate(["a b c"])
run.export("html", place / "html")
bundle = run.export("bundle", place / "bundle")
assert transformer.load(bundle).translate(["a b c"]) == before
server.make_server([routes.Served("tiny", run)], ["localhost"])
translate = f"--input={bundle / 'README.md'}", f"--output={place / 'out'}"
for mode, flags in {"benchmark": (), "train": (), "translate": translate}.items():
    arguments = ["launch.py", f"--workdir={folder}", f"--mode={mode}", *flags]
    print(mode, run_process(lambda: main(arguments)))
assert (place / "out").exists()
"""


def windows(program: str, *arguments) -> subprocess.CompletedProcess:
    """Runs a program in which our modules see only what they would see on Windows."""
    command = [sys.executable, "-c", WINDOWS + program, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_run_is_translated_exported_served_and_opened_for_training(copy, tmp_path):
    ended = windows(USE, copy, tmp_path)
    assert ended.returncode == 0, ended.stderr
    codes = re.findall(r"^\w+ \d$", ended.stdout, re.MULTILINE)
    assert codes == ["benchmark 2", "train 0", "translate 0"]
    assert "error: --mode=benchmark is for Linux and macOS" in ended.stderr


@pytest.mark.parametrize(
    "line", ["import fcntl", "import os; os.fork", "import os; os.open('.', 0)"]
)
def test_what_windows_lacks_fails_in_our_modules_alone(line):
    for module, code in (("other", 0), ("transformer.runs", 1)):
        assert windows(f"exec({line!r}, {{'__name__': {module!r}}})").returncode == code
