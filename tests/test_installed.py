"""The installed package: its files, the API and the command, from another folder."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import tiny_run
import transformer
from places import ROOT
from tiny_run import shared_run

pytestmark = pytest.mark.slow

PACKAGES = ("transformer", "experiments", "configs")
LINES = """
import transformer
run = transformer.load({workdir!r})
print(run.translate(["a b c"]) == [run.translate(["a b c"], num_best=2)[0][0].text])
print(run.attention("a b").weights["cross"].shape[:2])
print(transformer.__version__, transformer.__file__)
"""


def done(*arguments, **options) -> str:
    """What a program printed that ended well."""
    ended = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"  # setuptools writes into it
    files = done("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, files.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    done(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", place, source)
    [file] = place.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs of a new environment that has the wheel, and sees the packages of this one."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False, symlinks=True)
    packages = place / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    target = f"--python={place / 'bin' / 'python'}"
    done(sys.executable, "-m", "pip", target, "install", "--no-deps", "--no-index", wheel)
    return place / "bin"


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Nothing of the checkout can be found."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    assert not Path("configs").exists()


def test_the_wheel_has_every_file_of_the_packages_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        [about] = [name for name in archive.namelist() if name.endswith("METADATA")]
        metadata = archive.read(about).decode()
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    expected = {
        str(path.relative_to(ROOT))
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == expected
    assert f"Version: {transformer.__version__}\n" in metadata
    assert "Requires-Dist: jax>=" in metadata
    assert 'Requires-Dist: pytest>=8.0; extra == "dev"' in metadata
    assert "Requires-Dist: pytest>=8.0\n" not in metadata
    for extra in ("serve", "peers", "dev"):
        assert f"Provides-Extra: {extra}\n" in metadata


def test_python_elsewhere_uses_a_run(installed, alone, tmp_path_factory):
    workdir = str(shared_run(tmp_path_factory).workdir)
    told = done(installed / "python", "-c", LINES.format(workdir=workdir)).splitlines()
    assert told[:2] == ["True", "(1, 2)"]
    version, place = told[2].split()
    assert version == transformer.__version__
    assert Path(place).is_relative_to(installed.parent)


def test_the_command_elsewhere_finds_pages_of_configs_and_files_of_the_user(
    installed, alone, tmp_path
):
    program = installed / "transformer-jax"
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    assert "--workdir" in done(program, "--help")
    (tmp_path / "mine").mkdir()
    config = tiny_run.CONFIG.replace("CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine" / "tiny.py").write_text(config)
    flags = "--config=mine/tiny.py", "--workdir=run", "--config.train.steps=20"
    assert "BLEU" in done(program, *flags, env=environment)
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    flags = "--mode=translate", "--workdir=run"
    assert done(program, *flags, env=environment, input="a b\n").count("\n") == 1
    # A page of the package: what it lacks is text.
    flags = "--config=configs/own_text.py", "--workdir=own", "--config.data.train_source=no.txt"
    ended = subprocess.run([program, *flags], env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "no.txt" in ended.stderr.splitlines()[-1]
