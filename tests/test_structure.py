"""Imports go one way, files stay small, and nothing is put off or put into `utils`."""

import ast
from pathlib import Path

import pytest

from places import ROOT

OURS = ("transformer", "experiments", "studies", "configs", "launch")
CODE = sorted(
    path
    for folder in ("transformer", "experiments", "studies", "configs")
    for path in (ROOT / folder).rglob("*.py")
) + [ROOT / "launch.py"]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEXT = [*CODE, *TESTS, *sorted(ROOT.glob("*.md"))]
PACKAGE = ("__init__.py", "py.typed")
MAX_FILES = 14  # of a folder, those of PACKAGE apart
MAX_LINES, MAX_BODY = 400, 50  # of a file, and of a function without its docstring

# What a part may import of ours besides itself; the longest name that fits a module is its part.
# Within these bounds no two rooms import one another, see below.
BASE = ("transformer.errors", "transformer.storage")
ALLOWED = {
    "transformer": (),
    "transformer.storage": ("transformer.errors", "transformer.metrics.registry"),
    "transformer.products": (),
    "transformer.model": (*BASE, "transformer.products"),
    "transformer.model.config": BASE,  # and no registry, so that every part of a model can read it
    "transformer.data": BASE,
    "transformer.losses": ("transformer.products",),
    "transformer.decoding": BASE,
    "transformer.optim": BASE,
    "transformer.metrics": ("transformer.losses",),
    "transformer.progress": ("transformer.metrics.registry",),
    "transformer.analysis": BASE,
    "transformer.train_step": (
        *BASE,
        "transformer.losses",
        "transformer.metrics",
        "transformer.model.parameters",
        "transformer.optim",
    ),
    "transformer.inference": (
        *BASE,
        "transformer.analysis",
        "transformer.data",
        "transformer.decoding",
        "transformer.losses",
        "transformer.model",
    ),
    "transformer.tasks": (
        *BASE,
        "transformer.analysis",
        "transformer.data",
        "transformer.decoding",
        "transformer.inference",
        "transformer.losses",
        "transformer.metrics",
        "transformer.model",
    ),
    # The run that another one starts from is opened as by every mode.
    "transformer.finetuning": (
        *BASE,
        "transformer.keys",
        "transformer.config",
        "transformer.inference",
        "transformer.model.parameters",
        "transformer.records",
        "transformer.tasks",
        "transformer.workdir",
    ),
    "transformer.run": (
        *BASE,
        "transformer.analysis.snapshots",
        "transformer.finetuning",
        "transformer.metrics",
        "transformer.model.parameters",
        "transformer.model.stack",
        "transformer.optim",
        "transformer.run_progress",
        "transformer.tasks",
        "transformer.train_step",
    ),
    "transformer.run_progress": ("transformer.metrics.registry",),
    "transformer.devices.placement": (
        "transformer.data.plan",
        "transformer.data.stream",
        "transformer.losses",
        "transformer.devices.programs",
        "transformer.tasks.base",
        "transformer.train_step",
    ),
    "transformer.devices.programs": ("transformer.signals",),
    "transformer.train": (
        *BASE,
        "transformer.data.plan",
        "transformer.metrics",
        "transformer.devices.placement",
        "transformer.devices.programs",
        "transformer.progress",
        "transformer.run",
        "transformer.signals",
        "transformer.tasks",
        "transformer.train_step",
    ),
    "transformer.keys": (*BASE, "configs", "transformer.model.config"),
    "transformer.config": (
        *BASE,
        "transformer.keys",
        "configs",
        "transformer.data",
        "transformer.decoding",
        "transformer.metrics",
        "transformer.model",
        "transformer.optim",
        "transformer.tasks",
    ),
    "transformer.records": (
        *BASE,
        "transformer.keys",
        "configs",
        "transformer.config",
        "transformer.data.held_out",
        "transformer.metrics",
    ),
    "transformer.trials": (*BASE, "transformer.keys", "transformer.metrics"),
    "transformer.workdir": (
        *BASE,
        "transformer.keys",
        "transformer.config",
        "transformer.inference",
        "transformer.records",
        "transformer.tasks",
        "transformer.trials",
    ),
    "transformer.api": (
        *BASE,
        "transformer.analysis",
        "transformer.config",
        "transformer.data",
        "transformer.inference",
        "transformer.keys",
        "transformer.tasks",
        "transformer.workdir",
    ),
    "experiments": ("transformer", "configs"),
    "studies": ("transformer", "experiments", "configs"),
    "launch": ("experiments.command.main",),
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
            # may not: what is a file decides.
            base = ROOT.joinpath(*node.module.split("."))
            for alias in node.names:
                inner = base / alias.name
                is_module = inner.with_suffix(".py").is_file() or inner.is_dir()
                found.add(f"{node.module}.{alias.name}" if is_module else node.module)
    return {name for name in found if name.split(".")[0] in OURS}


def wrong_imports(module: str, source: str) -> set[str]:
    part = part_of(module)
    allowed = (part, *ALLOWED[part])
    return {name for name in imports(source) if not any(within(name, a) for a in allowed)}


@pytest.mark.parametrize("path", CODE, ids=module_name)
def test_a_part_imports_what_it_may(path):
    assert wrong_imports(module_name(path), path.read_text()) == set()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("transformer.model.layers", "from transformer.data.parallel.batches import Batch"),
        ("transformer.model.layers", "def f():\n    import transformer.data.pairs"),
        ("transformer.model.config", "from transformer.model.layers import ACTIVATIONS"),
        ("transformer.losses", "from transformer import optim"),
        ("transformer.decoding", "from transformer.model import layers"),
        ("transformer.train", "from transformer.model import layers"),
        ("transformer.train", "from transformer.data.parallel.batches import Batch"),
        ("transformer.inference.translator", "from transformer.tasks.base import Task"),
        ("transformer.tasks.translation", "from transformer.train import Trainer"),
        ("transformer.tasks.base", "from experiments import run"),
        ("transformer.api.run", "from experiments.attention import page"),
        ("experiments.run", "import launch"),
        ("experiments.benchmark.table", "from studies import cooccurrence"),
        ("configs.base", "from transformer import optim"),
    ],
)
def test_an_import_the_other_way_would_be_seen(module, source):
    assert len(wrong_imports(module, source)) == 1


def room(module: str) -> str:
    """The folder of a module; where that has folders of its own, the module itself."""
    path = ROOT.joinpath(*module.split("."))
    folder = path if path.is_dir() else path.parent
    has_rooms = any(folder.glob("*/__init__.py"))
    return module if has_rooms or folder == ROOT else module_name(folder)


def arrows(files: dict[str, str]) -> dict[str, set[str]]:
    """Which rooms the modules of a room import, of {module: source}."""
    found: dict[str, set[str]] = {}
    for module, source in files.items():
        found.setdefault(room(module), set()).update(map(room, imports(source)))
    return {name: others - {name} for name, others in found.items()}


def circle(graph: dict[str, set[str]]) -> set[str]:
    """What is left of rooms when those that import none that is left are taken away."""
    left = set(graph)
    while free := {name for name in left if not graph[name] & left}:
        left -= free
    return left


def test_no_two_rooms_import_one_another_not_even_around_others():
    files = {module_name(path): path.read_text() for path in CODE}
    assert circle(arrows(files)) == set()
    # As it would be if the report of a run opened one of a sweep.
    files["experiments.report.page"] += "\nfrom experiments.sweeps import study"
    expected = {"experiments.report", "experiments.run", "experiments.sweeps.sweep"}
    files["experiments.sweeps.study"] += "\nfrom experiments import run"
    assert expected <= circle(arrows(files))


# Modules apart from their one importer that are no doors, and why.
AT_HOME = {
    "transformer.metrics.text": "the scores of texts lie with the other metrics",
    "transformer.decoding.sampling": "sampling and search know no model and lie in one folder",
    "transformer.model.recurrent.model": "a door; `build` also checks names behind it",
}


def folder_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path if path.is_dir() else path.parent


def strangers(files: dict[str, str]) -> set[str]:
    """The modules that lie apart from their one importer and are no door, of {module: source}.

    A door leads into its folder: it imports a module that no other folder does.
    """
    found = {module: imports(source) & files.keys() for module, source in files.items()}
    importers = {module: [m for m, others in found.items() if module in others] for module in files}
    folders = {module: {folder_of(own) for own in importers[module]} for module in files}
    return {
        module
        for module, own in importers.items()
        if len(own) == 1
        and not within(module, "configs")  # pages that files of settings start from
        and folders[module] != {folder_of(module)}
        and not any(folders[other] == {folder_of(module)} for other in found[module])
    }


def test_a_module_of_one_importer_lies_in_its_folder_or_is_a_door():
    files = {module_name(path): path.read_text() for path in CODE}
    assert strangers(files) == AT_HOME.keys()
    # As it would be if the loop alone imported a file of another folder, or one lost its second.
    files["transformer.storage.clocks"] = ""
    files["transformer.train"] += "\nimport transformer.storage.clocks"
    files["experiments.attention.snapshots"] = ""
    assert strangers(files) - AT_HOME.keys() == {
        "transformer.storage.clocks",
        "transformer.storage.step_files",
    }


def test_no_folder_is_long():
    folders = {path.parent for path in [*CODE, *TESTS]} - {ROOT}
    folders |= {path for path in (ROOT / "experiments" / "web").rglob("*") if path.is_dir()}
    for folder in sorted(folders - {ROOT / "configs"}):  # where each experiment has a page
        files = [f for f in folder.iterdir() if f.is_file() and f.name not in PACKAGE]
        assert len(files) <= MAX_FILES, folder


def modules_of(source: str) -> set[str]:
    """The modules that a source imports, or imports names from, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def test_configs_import_nothing_but_configs_and_their_container():
    paths = [*(ROOT / "configs").rglob("*.py")]
    assert len(paths) > 20
    for path in paths:
        assert modules_of(path.read_text()) <= {"configs", "configs.sweeps", "ml_collections"}, path
    assert modules_of("import configs, jax\ndef f():\n    from os.path import join") == {
        "configs",
        "jax",
        "os.path",
    }


def test_no_file_is_named_utils():
    assert CODE
    assert not [path for path in TEXT if path.stem.strip("_") in ("util", "utils", "helpers")]


@pytest.mark.parametrize("path", TEXT, ids=lambda path: path.name)
def test_nothing_is_put_off(path):
    marks = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
    assert not [mark for mark in marks if mark in path.read_text()]


def too_long(source: str) -> list[str]:
    """The functions of a source that are too long, and "file" if it is so itself."""
    found = ["file"] if source.count("\n") >= MAX_LINES else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and body[-1].end_lineno - body[0].lineno >= MAX_BODY:
                found.append(node.name)
    return found


@pytest.mark.parametrize("path", CODE, ids=module_name)
def test_files_and_functions_stay_small_and_files_say_what_they_are(path):
    source = path.read_text()
    assert too_long(source) == []
    if source.strip():
        assert ast.get_docstring(ast.parse(source))


@pytest.mark.parametrize("function", ["def f():", "async def f():", "class C:\n    def f(self):"])
def test_what_is_long_would_be_seen(function):
    def source(statements: int) -> str:
        indent = "        " if "class" in function else "    "
        lines = [f'"""{"Says what it does. " * 3}', '"""', *["x = 1"] * statements]
        return f"{function}\n" + "".join(f"{indent}{line}\n" for line in lines)

    assert too_long(source(MAX_BODY)) == []  # the docstring is not counted
    assert too_long(source(MAX_BODY + 1)) == ["f"]
    assert too_long("x = 1\n" * (MAX_LINES - 1)) == []
    assert too_long("x = 1\n" * MAX_LINES) == ["file"]
