"""Imports go one way, files stay small, and nothing is put off or put into `utils`."""

import ast
from pathlib import Path

import pytest

from places import ROOT

OURS = ("transformer", "experiments", "configs", "launch")
CODE = sorted(
    path
    for folder in ("transformer", "experiments", "configs")
    for path in (ROOT / folder).rglob("*.py")
) + [ROOT / "launch.py"]
TEXT = [*CODE, *sorted((ROOT / "tests").glob("*.py")), *sorted(ROOT.glob("*.md"))]

# What a part may import of ours beside itself; the longest name that fits a module is its part.
CORE = ("transformer.errors", "transformer.storage.files", "transformer.storage.reading")
ALLOWED = {
    "transformer.errors": (),
    "transformer.storage.files": (),
    "transformer.storage.reading": ("transformer.errors",),
    "transformer.progress": (),
    "transformer.signals": (),
    "transformer.model": CORE,
    "transformer.data": CORE,
    "transformer.losses": CORE,
    "transformer.decode": CORE,
    "transformer.optim": CORE,
    "transformer.storage.checkpoint_files": CORE,
    "transformer.storage.checkpoint": (*CORE, "transformer.storage.checkpoint_files"),
    "transformer.storage.compile_cache": CORE,
    "transformer.metrics": (*CORE, "transformer.losses"),
    "transformer.analysis.alignment": CORE,
    "transformer.metrics.classification": CORE,
    "transformer.analysis.statistics": (),
    "transformer.train_step": (
        *CORE,
        "transformer.losses",
        "transformer.metrics",
        "transformer.optim",
    ),
    "transformer.tasks": (
        *CORE,
        "transformer.analysis.alignment",
        "transformer.metrics.classification",
        "transformer.data",
        "transformer.decode",
        "transformer.analysis.statistics",
        "transformer.losses",
        "transformer.metrics",
        "transformer.model",
    ),
    "transformer.member": (
        *CORE,
        "transformer.storage.checkpoint",
        "transformer.metrics",
        "transformer.model.stack",
        "transformer.optim",
        "transformer.tasks",
        "transformer.train_step",
    ),
    "transformer.train": (
        *CORE,
        "transformer.member",
        "transformer.metrics",
        "transformer.progress",
        "transformer.signals",
        "transformer.tasks",
        "transformer.train_step",
    ),
    "transformer.population": (
        *CORE,
        "transformer.data",
        "transformer.member",
        "transformer.tasks",
        "transformer.train",
        "transformer.train_step",
    ),
    "transformer": (),
    "experiments": ("transformer", "configs"),
    "launch": ("transformer", "experiments"),
    "configs": (),
}


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def within(module: str, part: str) -> bool:
    return module == part or module.startswith(part + ".")


def part_of(module: str) -> str:
    return max((part for part in ALLOWED if within(module, part)), key=len)


def imports(source: str) -> set[str]:
    """The modules of ours that a source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative import"
            # `from transformer import optim` imports a module, `from transformer.optim import x`
            # may not: what is a folder decides.
            folder = ROOT.joinpath(*node.module.split("."))
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= set(names) if folder.is_dir() else {node.module}
    return {name for name in found if name.split(".")[0] in OURS}


def wrong_imports(module: str, source: str) -> set[str]:
    part = part_of(module)
    allowed = (part, *ALLOWED[part])
    return {name for name in imports(source) if not any(within(name, a) for a in allowed)}


@pytest.mark.parametrize("path", CODE, ids=module_name)
def test_imports_go_one_way(path):
    assert wrong_imports(module_name(path), path.read_text()) == set()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("transformer.model.layers", "from transformer.data.parallel.batches import Batch"),
        ("transformer.model.layers", "def f():\n    import transformer.data.pairs"),
        ("transformer.losses", "from transformer import optim"),
        ("transformer.decode", "from transformer.model import layers"),
        ("transformer.train", "from transformer.model import layers"),
        ("transformer.train", "from transformer.data.parallel.batches import Batch"),
        ("transformer.tasks.translation", "from transformer.train import Trainer"),
        ("transformer.tasks.base", "from experiments import run"),
        ("experiments.run", "import launch"),
        ("configs.base", "from transformer import optim"),
    ],
)
def test_an_import_the_other_way_would_be_seen(module, source):
    assert len(wrong_imports(module, source)) == 1


def test_configs_import_nothing_but_configs_and_their_container():
    for path in (ROOT / "configs").rglob("*.py"):
        modules = {
            node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        assert modules <= {"configs", "configs.sweeps", "ml_collections"}, path


def test_no_file_is_named_utils():
    assert CODE
    assert not [path for path in TEXT if path.stem.strip("_") in ("util", "utils", "helpers")]


@pytest.mark.parametrize("path", TEXT, ids=lambda path: path.name)
def test_nothing_is_put_off(path):
    marks = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
    assert not [mark for mark in marks if mark in path.read_text()]


@pytest.mark.parametrize("path", CODE, ids=module_name)
def test_files_and_functions_stay_small_and_files_say_what_they_are(path):
    source = path.read_text()
    assert source.count("\n") < 400
    tree = ast.parse(source)
    if source.strip():
        assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            assert not body or body[-1].end_lineno - body[0].lineno < 50, node.name
