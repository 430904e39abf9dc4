"""A line of the table of modes is all that the command line needs to know of a mode."""

import dataclasses
import json
import re

import pytest
from absl import flags

from configs import quickstart
from experiments.command import main
from experiments.command.command import Command, run_command
from experiments.process.modes import MODES, Mode, readers
from experiments.process.options import Options
from places import ROOT
from transformer import tasks
from transformer.errors import UserError

ECHO = Mode("echo", "test_modes.echo", "say it again", ("token",), "translate")
MISTAKES = {
    "--mode=echo": "translate",
    "--token=x --mode=heads": "--token is for --mode=embeddings, not for heads",
}


def echo(run, options):
    """The mode that is added."""
    return [run.folder / f"{options.token}.txt"]


def parsed(*arguments):
    """Flags that were defined from the table as it stands, and set."""
    values = flags.FlagValues()
    main.define_flags(values)
    main.parse(["launch.py", "--workdir=x", *arguments], values)
    return values


@pytest.fixture
def folder(tmp_path):
    """A folder that holds a translator's config."""
    config = quickstart.get_config()
    config.data.cache_dir = str(tmp_path / "cache")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    return tmp_path


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(MODES, ECHO.name, ECHO)


@pytest.mark.full
@pytest.mark.parametrize("task", tasks.REGISTRY)
@pytest.mark.parametrize("mode", MODES.values(), ids=lambda mode: mode.name)
def test_every_mode_has_a_function_for_each_task_that_it_fits(mode, task):
    if mode.fits(tasks.REGISTRY[task]):
        assert callable(mode.load(task))
    else:
        with pytest.raises(UserError, match=f"--mode={mode.name} is not for config.task={task}: "):
            mode.load(task)


def test_every_option_is_read_by_a_mode_and_every_flag_of_a_mode_is_an_option():
    options = {field.name for field in dataclasses.fields(Options)}
    assert all(map(readers, options))
    assert {flag for mode in MODES.values() for flag in mode.flags} == options


def test_a_mode_of_the_table_is_a_choice_of_the_flag_with_its_help(added):
    values = parsed("--mode=echo", "--token=mine")
    assert (values.mode, values.token) == ("echo", "mine")
    assert "echo: say it again" in values["mode"].help
    assert values["token"].help.startswith("embeddings, echo: print")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_without_its_line_a_mode_and_its_flags_are_refused(mistake):
    with pytest.raises(UserError, match=MISTAKES[mistake]):
        parsed(*mistake.split())


def test_every_mode_has_its_row_in_the_documentation():
    text = (ROOT / "docs/modes.md").read_text(encoding="utf-8")
    assert {*re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)} == {*MODES}


def test_a_mode_of_the_table_is_run_with_its_flags(folder, added, capsys):
    assert run_command(Command("echo", str(folder), None, [], Options(token="mine"))) == 0
    assert capsys.readouterr().out == f"{folder / 'mine.txt'}\n"


def test_a_task_without_a_mode_is_told_those_that_it_has(folder, added):
    with pytest.raises(UserError) as caught:
        run_command(Command("classify", str(folder), None, [], Options()))
    fitting = (name for name, mode in MODES.items() if mode.fits(tasks.REGISTRY["translation"]))
    usable = ", ".join(name for name in fitting if name != "train")
    reason = "--mode=classify is not for config.task=translation"
    assert str(caught.value) == f"{reason}: use {usable}"
