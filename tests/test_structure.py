"""The rules of `tools/structure.py` see what breaks them; `make lint` applies them."""

import re
import subprocess
from pathlib import Path

import pytest

from places import ROOT
from tools import structure, words

MODULES = structure.read_all()
# Limits that an issue lets this commit raise, and by how much.
RAISED: dict[str, float] = {  # markup, word links of translations, glossaries: 700 lines, 2 pages
    **{"data": 559, "inference": 191, "operations": 52, "command": 16},
    **{"MAX_TOTAL": 235, "MAX_DOCS": 1_400},
}


def with_line(module: str, line: str, modules=MODULES) -> dict[str, structure.Module]:
    """The modules, with a line at the end of one, which may be new."""
    path = Path(*module.split(".")).with_suffix(".py")
    source = modules[module].source if module in modules else ""
    path = modules[module].path if module in modules else path
    return modules | {module: structure.read(path, f"{source}\n{line}\n")}


@pytest.mark.parametrize(
    ("rule", "module", "line"),
    [
        (structure.wrong_imports, "transformer.model.layers", "import transformer.data.pairs"),
        (structure.wrong_imports, "experiments.evaluate.run", "import launch"),
        (structure.wrong_imports_of_the_core, "transformer.optim.schedules", "import clu"),
        (structure.wrong_imports_of_configs, "configs.base", "def f():\n    import jax"),
        (structure.flags_in_messages, "transformer.errors", 'print(f"{x}: set --name to 3")'),
        (structure.names_of_tasks, "transformer.errors", 'config.task == "x"'),
        (structure.long_code, "transformer.errors", "def f():\n" + "    x = 1\n" * 51),
        (structure.circles, "experiments.results.table", "import experiments.evaluate.run"),
    ],
)
def test_what_breaks_a_rule_is_seen(rule, module, line):
    assert not [*rule(MODULES)]
    assert len([*rule(with_line(module, line))]) == 1


def test_a_module_that_only_another_folder_imports_is_seen():
    assert not [*structure.strangers(MODULES)]
    name = "transformer.runs.clocks"
    apart = with_line(name, "")
    loop = apart["transformer.training.loop"]
    apart[loop.name] = loop._replace(imports=loop.imports | {name})
    assert [*structure.strangers(apart)] == [
        "transformer/runs/clocks.py: only transformer.training.loop imports it: move it there"
    ]


def test_a_room_over_its_limit_is_seen():
    assert structure.sizes(MODULES)[1] == []
    big = with_line("transformer.model.losses", "x = 1\n" * 1000)
    assert [line.split(":")[0] for line in structure.sizes(big)[1]][:1] == ["model"]


def limits(rooms: str, structure: str) -> dict[str, float]:
    """The limits in the texts of `tools/rooms.py` and `tools/structure.py` by name."""
    found = re.findall(r'^    "(\w+)": Room\([^()]*?([\d_]+),?\s*\)', rooms, re.M)
    for names, numbers in re.findall(r"^(MAX_[A-Z_, ]+) = ([\d_., ]+)", structure, re.M):
        found += zip(names.split(", "), numbers.split(", "), strict=True)
    return {name: float(number) for name, number in found}


def test_no_commit_raises_a_limit():
    names = ("tools/rooms.py", "tools/structure.py")
    show = [["git", "-C", str(ROOT), "show", f"HEAD~1:{name}"] for name in names]
    before = [subprocess.run(each, capture_output=True, text=True) for each in show]
    if any(each.returncode for each in before):
        pytest.skip("the commit before is not here")
    now, earlier = (
        limits(*((ROOT / n).read_text() for n in names)),
        limits(*(b.stdout for b in before)),
    )
    assert {"model", "services", "MAX_TOTAL", "MAX_ROOMS", "MAX_TESTS"} <= now.keys()
    raised = {name: now[name] - earlier.get(name, now[name]) for name in now}
    assert {name: by for name, by in raised.items() if by > RAISED.get(name, 0)} == {}


@pytest.mark.parametrize("word", words.WORDS)
def test_a_word_that_crept_in_is_seen_and_its_replacement_is_not(word):
    replacement, examples = words.WORDS[word]
    lines = examples.split("; ")
    assert words.strange(word, "\n".join(lines)) == lines
    assert words.strange(word, replacement) == []
