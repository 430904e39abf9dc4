"""A line of the table of modes is all that the command line needs to know of a mode."""

import dataclasses
import json
import sys
from types import SimpleNamespace

import pytest
from absl import flags

from configs import quickstart
from experiments.command import main
from experiments.command.command import Command, run_command
from experiments.process.modes import MODES, Mode, Options
from transformer import tasks
from transformer.errors import UserError

ECHO = Mode("echo", "modes.echo", "say it again", "translate")


def echo(run):
    """The mode that is added."""
    return [run.folder / "mine.txt"]


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(MODES, ECHO.name, ECHO)
    monkeypatch.setitem(sys.modules, "experiments.modes.echo", SimpleNamespace(echo=echo))


@pytest.mark.full
@pytest.mark.parametrize("task", tasks.REGISTRY)
@pytest.mark.parametrize("mode", MODES.values(), ids=lambda mode: mode.name)
def test_every_mode_has_a_function_for_each_task_that_it_fits(mode, task):
    if mode.fits(tasks.REGISTRY[task]):
        assert callable(mode.load(task))
    else:
        with pytest.raises(UserError, match=f"--mode={mode.name} is not for config.task={task}: "):
            mode.load(task)


def test_every_option_is_read_by_modes_of_the_table():
    modes = [field.metadata["modes"] for field in dataclasses.fields(Options)]
    assert all(modes)
    assert set().union(*modes) <= MODES.keys()


def test_a_mode_of_the_table_is_run(added, tmp_path, capsys):
    values = flags.FlagValues()
    main.define_flags(values)
    main.parse(["launch.py", "--workdir=x", "--mode=echo"], values)
    assert values.mode == "echo"
    assert "echo: say it again" in values["mode"].help
    config = quickstart.get_config()
    config.data.cache_dir = str(tmp_path / "cache")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert run_command(Command("echo", str(tmp_path), None, [], Options())) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mine.txt'}\n"


def test_a_task_without_a_mode_is_told_those_that_it_has(added):
    with pytest.raises(UserError, match="--mode=classify is not for") as e:
        MODES["classify"].load("translation")
    fitting = str(e.value).partition(": use ")[2].split(", ")
    assert "echo" in fitting
    assert not {"train", "classify"} & {*fitting}
