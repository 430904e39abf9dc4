"""Prints the test files of what was changed since the last commit: `make check`.

Of a module `x/y.py` they are those `test_y*.py` that import it, or if there is none, all that
import it, or else all of this name. A module that many test files import is left to `make test`.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILES = 4  # test files of a module: more are not done in seconds


def changed() -> list[Path]:
    """Returns the files that are not as in the last commit, and there."""
    names = "git diff --name-only HEAD; git ls-files --others --exclude-standard"
    listed = subprocess.run(names, shell=True, cwd=ROOT, capture_output=True, check=True, text=True)
    return [path for path in map(Path, listed.stdout.splitlines()) if (ROOT / path).exists()]


def tests_of(path: Path, tests: dict[Path, str]) -> list[Path]:
    """Returns the tests of a file.

    Args:
      tests: the text of each test file.
    """
    if path in tests:
        return [path]
    if path.suffix != ".py" or path.parts[0] == "tests":
        return []
    module = path.parent if path.stem == "__init__" else path.with_suffix("")
    named = [test for test in tests if re.match(rf"test_{module.name}s?(_|$)", test.stem)]
    package, name = map(re.escape, (".".join(module.parts[:-1]), module.name))
    prefix = rf"{package}\." if package else ""
    names = r"(\([^)]*?|[^(\n]*?)"  # of one statement
    imported = re.compile(
        rf"^(from|import) {prefix}{name}\b|^from {package or name} import {names}\b{name}\b", re.M
    )
    importing = [test for test, text in tests.items() if imported.search(text)]
    chosen = [test for test in importing if test in named] or importing or named
    return chosen if len(chosen) <= MAX_FILES else []


def main() -> None:
    files = (ROOT / "tests").rglob("test_*.py")
    tests = {file.relative_to(ROOT): file.read_text("utf-8") for file in files}
    found = {test for path in changed() for test in tests_of(path, tests)}
    print(*sorted(map(str, found)))


if __name__ == "__main__":
    main()
