"""Checks the structure of the code for `make lint`: sizes, imports and words.

    python -m tools.structure

Prints the line count and the budget of each room, and each violation of a rule with the file name.
The exit code is 1 if there are violations. Each file is read once, and rules take all modules.
"""

import ast
import importlib.util
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tools.rooms import (
    ALLOWED,
    AT_HOME,
    COMMANDS,
    CORE,
    CORE_LIBRARIES,
    CORE_OURS,
    OUTSIDE,
    ROOMS,
)
from tools.words import strange_words

ROOT = Path(__file__).parents[1]
PACKAGES = ("transformer", "experiments", "configs", "studies", "launch")
SOURCE = ("transformer", "experiments", "studies")  # folders with a line budget
PACKAGE_FILES = ("__init__.py", "py.typed")
MAX_FILES = 14  # maximum number of files in a folder, without PACKAGE_FILES
MAX_LINES, MAX_BODY = 400, 50  # lines of a file, and of a function's body
MAX_TOTAL, MAX_MODULES, MAX_ONE_IMPORTER = 41_824, 244, 34  # goals: 32,500, 225, 40
MAX_ROOMS, MAX_ARROWS = 12, 30  # folders of `experiments`, and imports between them
MAX_CORE = 4_803  # lines of the core; see `rooms.CORE`
MAX_WHOLE_CONFIGS = 35  # functions that take the whole config
MAX_TESTS = 0.8  # lines of tests per line of source; goal: 0.75
MAX_DOCS = 47_122  # words
# Participles that are bad variable names; a noun should say what the value is.
PARTICIPLES = {"found", "kept", "own", "given", "known", "seen", "taken", "made", "done", "left"}
MAX_PARTICIPLES = 52  # goal: 0


class Module(NamedTuple):
    """A source file.

    Attributes:
      name: dotted name of the module.
      path: path relative to the root.
      imports: modules of this repository that are imported anywhere in the file.
    """

    name: str
    path: Path
    source: str
    tree: ast.Module
    imports: frozenset[str]


def read(path: Path, source: str) -> Module:
    """Parses a file as a module; resolves imported names to their modules."""
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    tree = ast.parse(source)
    imports = frozenset(i for i in _imports(tree, path) if i.split(".")[0] in PACKAGES)
    return Module(name, path, source, tree, imports)


def _imports(tree: ast.AST, path: Path) -> Iterator[str]:
    package = ".".join(path.parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from transformer import optim` imports a module, `from transformer.optim import x`
            # may import another object: this checks whether there is a file.
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            folder = ROOT.joinpath(*name.split("."))
            for inner in (folder / alias.name for alias in node.names):
                is_module = inner.with_suffix(".py").is_file() or inner.is_dir()
                yield f"{name}.{inner.name}" if is_module else name


def _within(module: str, part: str) -> bool:
    return module == part or module.startswith(part + ".")


def wrong_imports(modules: Mapping[str, Module]) -> Iterator[str]:
    """Yields a line for each import that ALLOWED does not list."""
    for module in modules.values():
        part = max((part for part in ALLOWED if _within(module.name, part)), key=len)
        allowed = (part, *ALLOWED[part])
        for name in module.imports:
            if not any(_within(name, each) for each in allowed):
                yield f"{module.path}: imports {name}, which {part} may not"


def in_core(module: str) -> bool:
    """Returns whether a module is in the core."""
    within = any(_within(module, part) for part in CORE)
    return within and not any(_within(module, part) for part in OUTSIDE)


def wrong_imports_of_the_core(modules: Mapping[str, Module]) -> Iterator[str]:
    """Yields a line for each import that the core must not have."""
    for module in filter(lambda module: in_core(module.name), modules.values()):
        for name in _imports(module.tree, module.path):
            first, ours = name.split(".")[0], name in CORE_OURS or in_core(name)
            if not ours and first not in CORE_LIBRARIES | sys.stdlib_module_names:
                yield f"{module.path}: the core shelf imports {name}"


def wrong_imports_of_configs(modules: Mapping[str, Module]) -> Iterator[str]:
    """Yields forbidden imports in configs, which may import two packages that do not load JAX."""
    for module in modules.values():
        names = _imports(module.tree, module.path) if _within(module.name, "configs") else ()
        for name in names:
            if name not in ("ml_collections", "transformer.config"):
                yield f"{module.path}: a config imports {name}"


def circles(modules: Mapping[str, Module]) -> Iterator[str]:
    """Yields a line with the folders that form import cycles, if there are any."""
    graph: dict[str, set[str]] = {}
    for module in modules.values():
        graph.setdefault(_room(module.name), set()).update(map(_room, module.imports))
    others = {name: set(imports) - {name} for name, imports in graph.items()}
    while free := {name for name, imports in others.items() if not imports & others.keys()}:
        others = {name: imports for name, imports in others.items() if name not in free}
    if others:
        yield f"{', '.join(sorted(others))}: import one another"


def _room(module: str) -> str:
    """Returns the folder of a module, or the module itself if its folder has subpackages."""
    folder = _folder(module)
    has_rooms = any(folder.glob("*/__init__.py"))
    return module if has_rooms or folder == ROOT else ".".join(folder.relative_to(ROOT).parts)


def _folder(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path if path.is_dir() else path.parent


def room_arrows(modules: Mapping[str, Module]) -> set[tuple[str, str]]:
    """Returns the pairs (importing folder, imported folder) in `experiments`."""
    inside = [m for m in modules.values() if m.name.startswith("experiments.")]
    pairs = {(_room(m.name), _room(name)) for m in inside for name in m.imports & modules.keys()}
    return {(a, b) for a, b in pairs if a != b and b.startswith("experiments.")}


def importers(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Returns a dict from each module to the modules that import it."""
    result: dict[str, list[str]] = {name: [] for name in modules}
    for module in modules.values():
        for name in module.imports & modules.keys():
            result[name].append(module.name)
    return result


def strangers(modules: Mapping[str, Module]) -> Iterator[str]:
    """Yields modules that are not doors and whose only importer is in another folder.

    A door is an entry point of its folder: it imports a module that no other folder imports.
    """
    users = importers(modules)
    folders = {name: {_folder(user) for user in users[name]} for name in modules}
    for name, module in modules.items():
        is_door = any(
            folders[inner] == {_folder(name)} for inner in module.imports & modules.keys()
        )
        apart = len(users[name]) == 1 and folders[name] != {_folder(name)}
        if apart and not is_door and not _within(name, "configs") and name not in AT_HOME:
            yield f"{module.path}: only {users[name][0]} imports it: move it there"


def long_code(modules: Mapping[str, Module]) -> Iterator[str]:
    """Yields files and functions that are too long, and files without a docstring."""
    for module in modules.values():
        if (lines := module.source.count("\n")) >= MAX_LINES:
            yield f"{module.path}: {lines} lines, of less than {MAX_LINES}"
        if module.source.strip() and not ast.get_docstring(module.tree):
            yield f"{module.path}: no docstring says what it is"
        for node in ast.walk(module.tree):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and (lines := body_lines(node)) > MAX_BODY:
                yield f"{module.path}: {node.name} has {lines} lines, of {MAX_BODY} at most"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the number of lines in a function's body, without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def flags_in_messages(modules: Mapping[str, Module]) -> Iterator[str]:
    """Yields library messages that mention command-line flags."""
    for module in modules.values():
        if _within(module.name, "transformer"):
            prose = [node.value for node in ast.walk(module.tree) if isinstance(node, ast.Expr)]
            flags = [
                node.value
                for node in ast.walk(module.tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                if node not in prose and re.search(r"(?<![\w-])--[a-z]", node.value)
            ]
            if len(flags) != COMMANDS.get(str(module.path), 0):
                yield f"{module.path}: messages name flags of the command: {flags}"


def names_of_tasks(modules: Mapping[str, Module]) -> Iterator[str]:
    """Yields comparisons with a task's name; the code should use a property of the task instead."""
    for module in modules.values():
        for node in ast.walk(module.tree):
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            sides = [node.subject] if isinstance(node, ast.Match) else sides
            names = {getattr(side, "attr", getattr(side, "id", "")) for side in sides}
            literals = [s for s in sides if any(isinstance(n, ast.Constant) for n in ast.walk(s))]
            if "task" in names and (literals or isinstance(node, ast.Match)):
                yield f"{module.path}: compares a task's name: {ast.unparse(sides[0])} ..."


def participles(modules: Mapping[str, Module]) -> int:
    """Returns the number of assignments to variables that are named with a participle."""
    return sum(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PARTICIPLES
        for module in modules.values()
        for node in ast.walk(module.tree)
    )


def whole_configs(modules: Mapping[str, Module]) -> int:
    """Returns the number of functions that take the whole config."""
    return sum(
        isinstance(node, ast.arg) and node.arg == "config" and "ConfigDict" in _type_of(node)
        for name, module in modules.items()
        if not _within(name, "transformer.config")
        for node in ast.walk(module.tree)
    )


def _type_of(argument: ast.arg) -> str:
    return ast.unparse(argument.annotation) if argument.annotation else ""


RULES: tuple[Callable[[Mapping[str, Module]], Iterator[str]], ...] = (
    wrong_imports,
    wrong_imports_of_the_core,
    wrong_imports_of_configs,
    circles,
    strangers,
    long_code,
    flags_in_messages,
    names_of_tasks,
)


def long_folders() -> Iterator[str]:
    """Yields folders with too many files; `configs` is exempt."""
    for place in (*SOURCE, "tests"):
        for folder in filter(Path.is_dir, [ROOT / place, *(ROOT / place).rglob("[!_.]*")]):
            files = [f for f in folder.iterdir() if f.is_file() and f.name not in PACKAGE_FILES]
            if len(files) > MAX_FILES:
                yield f"{folder.relative_to(ROOT)}: {len(files)} files, of {MAX_FILES} at most"


def put_off() -> Iterator[str]:
    """Yields markers of postponed work, and files with meaningless names."""
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    for path in (*texts("*.py"), *ROOT.glob("*.md")):
        if mark := next((mark for mark in marks if mark in path.read_text("utf-8")), ""):
            yield f"{path.relative_to(ROOT)}: {mark}"
        if path.stem.strip("_") in ("util", "utils", "helpers"):
            yield f"{path.relative_to(ROOT)}: a name that says nothing"


def texts(pattern: str) -> list[Path]:
    """Returns the repository's files that match a pattern, including tests."""
    places = (*(p for p in PACKAGES if p != "launch"), "tests", "tools")
    return [ROOT / "launch.py", *(f for place in places for f in (ROOT / place).rglob(pattern))]


def sizes(modules: Mapping[str, Module]) -> tuple[Table, list[str]]:
    """Returns the table of room sizes, and a line for each exceeded limit."""
    lines = dict.fromkeys(ROOMS, 0)
    for module in modules.values():
        fits = {
            len(path.parts): room
            for room, (paths, _, _) in ROOMS.items()
            for path in map(Path, paths.split())
            if path in (module.path, *module.path.parents)
        }
        if fits:
            lines[fits[max(fits)]] += module.source.count("\n")
    tests = sum(f.read_text("utf-8").count("\n") for f in (ROOT / "tests").rglob("*.py"))
    docs = sum(len(f.read_text("utf-8").split()) for f in (ROOT / "docs").rglob("*.md"))
    source = [m for m in modules.values() if m.path.parts[0] in SOURCE]
    users = {name: u for name, u in importers(modules).items() if not _within(name, "configs")}
    alone = sum(len(each) == 1 for each in users.values())
    total = sum(lines.values())
    rows = {room: (lines[room], ROOMS[room].budget, ROOMS[room].limit) for room in ROOMS}
    arrows = room_arrows(modules)
    core = sum(m.source.count("\n") for m in source if in_core(m.name))
    rows |= {
        "core shelf": (core, 5_000, MAX_CORE),
        "rooms of experiments": (len({*itertools.chain(*arrows)}), 13, MAX_ROOMS),
        "arrows between them": (len(arrows), 32, MAX_ARROWS),
        "all lines": (total, 32_500, MAX_TOTAL),
        "modules": (len(source), 225, MAX_MODULES),
        "modules with one importer": (alone, 40, MAX_ONE_IMPORTER),
        "participles as names, as in 'left'": (participles(modules), 0, MAX_PARTICIPLES),
        "functions with the whole config": (whole_configs(modules), 40, MAX_WHOLE_CONFIGS),
        "lines of tests": (tests, round(0.75 * total), round(MAX_TESTS * total)),
        "words of docs": (docs, 36_000, MAX_DOCS),
    }
    table = Table("", "now", "goal", "limit")
    for name, numbers in rows.items():
        table.add_row(name, *(f"{number:,}" for number in numbers))
    over = [
        f"{name}: {n:,}, of {limit:,} at most; "
        f"the limit is in tools/{'rooms' if name in ROOMS else 'structure'}.py"
        for name, (n, _, limit) in rows.items()
        if n > limit
    ]
    return table, over


def read_all() -> dict[str, Module]:
    """Returns the modules of this repository, keyed by name, without tests and tools."""
    paths = sorted(path.relative_to(ROOT) for path in texts("*.py"))
    modules = [
        read(path, (ROOT / path).read_text("utf-8"))
        for path in paths
        if path.parts[0] not in ("tests", "tools")
    ]
    return {module.name: module for module in modules}


def main() -> int:
    """Prints the table and the violations of rules; returns the exit code."""
    modules = read_all()
    table, over = sizes(modules)
    broken = [line for rule in RULES for line in rule(modules)]
    broken += [*over, *long_folders(), *put_off(), *strange_words(ROOT)]
    Console(width=100).print(table)
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
