"""The rules of `tools/structure.py` see what breaks them; `make lint` applies them."""

from pathlib import Path

import pytest

from tools import structure, words

MODULES = structure.read_all()


def with_line(module: str, line: str, modules=MODULES) -> dict[str, structure.Module]:
    """The modules, with a line at the end of one, which may be new."""
    path = Path(*module.split(".")).with_suffix(".py")
    source = modules[module].source if module in modules else ""
    path = modules[module].path if module in modules else path
    return modules | {module: structure.read(path, f"{source}\n{line}\n")}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("transformer.model.layers", "from transformer.data.batches import Batch"),
        ("transformer.model.layers", "def f():\n    import transformer.data.pairs"),
        ("transformer.decoding.sampling", "from transformer.model import layers"),
        ("transformer.tasks.base", "from experiments.evaluate import run"),
        ("experiments.evaluate.run", "import launch"),
        ("configs.base", "from transformer import optim"),
    ],
)
def test_an_import_the_other_way_is_seen(module, line):
    assert not [*structure.wrong_imports(MODULES)]
    assert len([*structure.wrong_imports(with_line(module, line))]) == 1


@pytest.mark.parametrize("line", ["import ml_collections", "from transformer.model import build"])
def test_an_import_that_opens_the_core_shelf_is_seen(line):
    rule = structure.wrong_imports_of_the_core
    assert not [*rule(MODULES)]
    assert len([*rule(with_line("transformer.optim.schedules", line))]) == 1
    assert not [*rule(with_line("transformer.model.recurrent.cells", line))]  # is outside


def test_a_config_that_imports_more_than_configs_is_seen():
    rule = structure.wrong_imports_of_configs
    assert not [*rule(MODULES)]
    assert len([*rule(with_line("configs.base", "def f():\n    import jax, os.path"))]) == 2


def test_a_circle_of_folders_is_seen_even_around_others():
    assert not [*structure.circles(MODULES)]
    circular = with_line("experiments.results.report_page", "from ..sweep import study")
    circular = with_line(
        "experiments.sweep.study", "from experiments.evaluate import run", circular
    )
    (line,) = structure.circles(circular)
    assert {"experiments.results", "experiments.evaluate"} <= {*line.split(":")[0].split(", ")}


def test_a_module_that_only_another_folder_imports_is_seen():
    assert not [*structure.strangers(MODULES)]
    apart = with_line("transformer.runs.clocks", "")
    apart = with_line("transformer.training.loop", "import transformer.runs.clocks", apart)
    # Its file must be there for the import to be one of a module.
    train = apart["transformer.training.loop"]
    name = "transformer.runs.clocks"
    apart["transformer.training.loop"] = train._replace(imports=train.imports | {name})
    assert [*structure.strangers(apart)] == [
        "transformer/runs/clocks.py: only transformer.training.loop imports it: move it there"
    ]


@pytest.mark.parametrize("head", ["def f():", "async def f():", "class C:\n    def f(self):"])
def test_a_long_function_a_long_file_and_a_file_without_docstring_are_seen(head):
    def broken(statements: int) -> list[str]:
        indent = "        " if "class" in head else "    "
        body = [f'"""{"Says what it does. " * 3}', '"""', *["x = 1"] * statements]
        source = f'"""A file."""\n{head}\n' + "".join(f"{indent}{line}\n" for line in body)
        return [*structure.long_code({"m": structure.read(Path("m.py"), source)})]

    assert broken(structure.MAX_BODY) == []  # the docstring is not counted
    assert broken(structure.MAX_BODY + 1) == ["m.py: f has 51 lines, of 50 at most"]
    long = structure.read(Path("m.py"), "x = 1\n" * structure.MAX_LINES)
    assert len([*structure.long_code({"m": long})]) == 2


def test_a_flag_in_a_message_of_the_library_is_seen_and_in_a_docstring_is_not():
    rule = structure.flags_in_messages
    assert not [*rule(MODULES)]
    assert [*rule(with_line("transformer.errors", 'print(f"{x}: set --name={y} to 3")'))]
    assert not [*rule(with_line("transformer.errors", '"""Of `--name`."""\nf"a -- b, x--y, -n"'))]


def test_a_comparison_of_the_name_of_a_task_is_seen_and_one_of_its_facts_is_not():
    def broken(line: str) -> list[str]:
        return [*structure.names_of_tasks({"m": structure.read(Path("m.py"), line)})]

    for line in (
        'config.task == "x"',
        'task in ("x", y)',
        '"x" != a.task',
        "match task:\n case _: 0",
    ):
        assert broken(line)
    for line in ("task.reads == PAIRS", "config.task != other.task", '"score" in task.operations'):
        assert not broken(line)


def test_a_room_over_its_limit_is_seen():
    assert structure.sizes(MODULES)[1] == []
    big = with_line("transformer.model.losses", "x = 1\n" * 1000)
    assert [line.split(":")[0] for line in structure.sizes(big)[1]][:1] == ["model"]


@pytest.mark.parametrize("word", words.WORDS)
def test_a_word_that_crept_in_is_seen_and_its_replacement_is_not(word):
    replacement, examples = words.WORDS[word]
    lines = examples.split("; ")
    assert words.strange(word, "\n".join(lines)) == lines
    assert words.strange(word, replacement) == []
