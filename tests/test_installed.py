"""The installed package: its files, the API and the command, from the folder of a project."""

import ast
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import transformer
from places import ROOT

pytestmark = pytest.mark.full

SIBLINGS = ("experiments", "configs")
LINES = """
import transformer
run = transformer.load({workdir!r})
print(run.translate(["a b c"]) == [run.translate(["a b c"], num_best=2)[0][0].text])
print(run.attention("a b").weights["cross"].shape[:2])
print(run.attention("a b").figure())
print(transformer.__version__, transformer.__file__)
"""
MODES = """
from transformer.experiments.process.modes import MODES
from transformer.tasks import REGISTRY
for mode in MODES.values():
    for name, task in REGISTRY.items():
        if mode.fits(task) and mode.name != "benchmark":
            print(mode.load(name).__name__)
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
def project(monkeypatch, tmp_path):
    """A project whose own packages have the names of our folders; nothing of ours can be found."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.chdir(tmp_path)
    for name in SIBLINGS:
        Path(name).mkdir()
        Path(name, "__init__.py").write_text(f"raise RuntimeError('{name} is imported')")
    return tmp_path


def imports(source: str) -> set[str]:
    """The first names of all modules that a program imports, but for relative ones."""
    nodes = [*ast.walk(ast.parse(source))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level and n.module]
    return {name.partition(".")[0] for name in names}


def test_the_wheel_has_every_file_of_the_packages_below_one_name(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        [about] = [name for name in archive.namelist() if name.endswith("METADATA")]
        metadata = archive.read(about).decode()
        programs = {name: archive.read(name).decode() for name in names if name.endswith(".py")}
    places = {"": ROOT / "transformer", **{name: ROOT / name for name in SIBLINGS}}
    expected = {
        str(Path("transformer", place, path.relative_to(folder)))
        for place, folder in places.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == expected
    assert [name for name, text in programs.items() if imports(text) & {*SIBLINGS}] == []
    assert f"Version: {transformer.__version__}\n" in metadata
    assert "Requires-Dist: jax>=" in metadata
    for extra in ("serve", "peers", "dev"):
        assert f"Provides-Extra: {extra}\n" in metadata


def test_python_in_a_project_uses_a_run(installed, project, tiny):
    workdir = str(tiny.workdir)
    told = done(installed / "python", "-c", LINES.format(workdir=workdir)).splitlines()
    assert told[:2] == ["True", "(1, 2)"]
    assert told[2].startswith("Figure(")
    version, place = told[3].split()
    assert version == transformer.__version__
    assert Path(place).is_relative_to(installed.parent)


def test_every_mode_and_the_plan_of_a_page_are_found(installed, project):
    assert done(installed / "python", "-c", MODES).count("\n") > 50
    assert "--parts" in done(installed / "python", "-m", "transformer.experiments.benchmark", "-h")
    flags = "--config=configs/sweeps/heads.py:copy", "--mode=plan", "--config.data.train_size=500"
    assert "memory" in done(installed / "transformer-jax", *flags)
