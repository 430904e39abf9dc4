"""A run or sweep names the file that registered its variant, and never has it executed."""

import json
import logging
from pathlib import Path

import pytest

from configs import base
from experiments.process.config import executed
from experiments.sweep.trial_configs import load_sweep, save_sweep
from transformer import variants
from transformer.errors import UserError
from transformer.model.positions.registry import REGISTRY
from transformer.runs.run import Run
from transformer.runs.workdir import load_config

pytestmark = pytest.mark.full


def execute_module(name):
    with executed(Path(name)):
        pass


CODE = """
from helper import Binary
from transformer.model.positions.registry import REGISTRY
REGISTRY["my_binary"] = Binary
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A file that registers an encoding of a file next to it; both are forgotten after the test."""
    monkeypatch.setattr(variants, "VARIANT_FILES", {})
    monkeypatch.syspath_prepend(tmp_path)
    base = "from transformer.model.positions.base import NoPositions\n"
    (tmp_path / "helper.py").write_text(f"{base}class Binary(NoPositions): pass\n")
    (tmp_path / "mine.py").write_text(CODE)
    execute_module(str(tmp_path / "mine.py"))
    yield tmp_path / "mine.py"
    REGISTRY.pop("my_binary", None)


def forget():
    """Forgets what was registered, as another process has never known it."""
    variants.VARIANT_FILES.clear()
    REGISTRY.pop("my_binary")


def change(module):
    """Changes the file and runs it, as another process does; returns the entry of a new run."""
    module.write_text(f"{CODE}# changed\n")
    execute_module(module)
    return variants.VARIANT_FILES["my_binary"]


def test_a_run_needs_the_file_that_registered_its_encoding_and_names_it(module, tmp_path):
    config = base.get_config()
    config.model.positions = "sinusoidal+my_binary"
    Run(tmp_path / "run", config).claim()
    assert load_config(tmp_path / "run").model.positions == "sinusoidal+my_binary"
    forget()
    with pytest.raises(UserError, match=r"needs 'my_binary', which .*mine\.py registered: --mod"):
        load_config(tmp_path / "run")
    execute_module(str(module))
    load_config(tmp_path / "run")
    Run(tmp_path / "plain", base.get_config()).claim()
    assert not (tmp_path / "plain/variants.json").exists()


def test_a_sweep_needs_the_file_of_an_encoding_that_only_a_trial_sets(module, tmp_path):
    (tmp_path / "sweep").mkdir()
    save_sweep(tmp_path / "sweep", base.get_config(), [{"model.positions": "my_binary"}])
    assert load_sweep(tmp_path / "sweep").is_sweep
    forget()
    with pytest.raises(UserError, match=r"mine\.py registered: --module=FILE"):
        load_sweep(tmp_path / "sweep")


def test_a_file_that_has_changed_is_named_once_for_each_run_and_sweep(module, tmp_path, caplog):
    config = base.get_config()
    config.model.positions = "my_binary"
    folders = [tmp_path / name for name in ("run", "sweep/trials/000", "sweep/trials/001")]
    for folder in folders:
        Run(folder, config).claim()
    change(module)
    logging.getLogger("transformer").propagate = True
    for folder in folders:
        load_config(folder)
    said = f"{module} has changed since the training of 'my_binary'"
    assert caplog.messages == [f"warning: {tmp_path / x}: {said}" for x in ("run", "sweep")]


def test_a_resumed_run_keeps_the_file_of_its_training(module, tmp_path):
    config = base.get_config()
    config.model.positions = "my_binary"
    Run(tmp_path, config).claim()
    first, new = variants.read(tmp_path), change(module)
    Run(tmp_path, config).claim()  # nothing is trained yet
    assert variants.read(tmp_path) == {"my_binary": new} != first
    (tmp_path / "checkpoints/8").mkdir(parents=True)
    module.write_text(CODE)
    execute_module(module)
    Run(tmp_path, config).claim()
    assert variants.read(tmp_path) == {"my_binary": new}


def test_a_name_is_registered_once_but_for_its_file(module, tmp_path):
    built_in = REGISTRY["sinusoidal"]
    wrong = tmp_path / "wrong.py"
    for name, owner in (("sinusoidal", "the library"), ("my_binary", str(module))):
        wrong.write_text(CODE.replace("my_binary", name))
        says = rf"wrong\.py cannot be used: line 4: '{name}' is already registered by {owner}:"
        with pytest.raises(UserError, match=says):
            execute_module(wrong)
    assert REGISTRY["sinusoidal"] is built_in
    execute_module(module.parent / "." / module.name)


def test_a_cell_can_run_again_and_be_put_into_a_file(module, tmp_path, caplog):
    forget()
    for number in range(2):
        exec(compile(CODE, f"<cell {number}>", "exec"), {})
    config = base.get_config()
    config.model.positions = "my_binary"
    Run(tmp_path / "run", config).claim()
    logging.getLogger("transformer").propagate = True
    load_config(tmp_path / "run")
    assert "run: 'my_binary' may have changed since the training: only files have" in caplog.text
    execute_module(module)
    assert str(module) in variants.VARIANT_FILES["my_binary"]
    forget()
    with pytest.raises(UserError, match="which code of a notebook or prompt registered: --module"):
        load_config(tmp_path / "run")


def test_no_file_that_a_run_names_is_executed(tmp_path):
    (tmp_path / "evil.py").write_text(f"import os; os.mkdir({str(tmp_path / 'executed')!r})")
    Run(tmp_path / "run", base.get_config()).claim()
    named = {"x": f"{tmp_path / 'evil.py'} with sha256 {'0' * 64}"}
    (tmp_path / "run/variants.json").write_text(json.dumps(named))
    with pytest.raises(UserError, match=r"evil\.py"):
        load_config(tmp_path / "run")
    assert not (tmp_path / "executed").exists()
    execute_module(str(tmp_path / "evil.py"))  # the control
    assert (tmp_path / "executed").exists()
