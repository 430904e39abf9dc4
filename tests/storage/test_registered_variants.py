"""A run or sweep names the file that registered its variant, and never has it executed."""

import json
import logging
from pathlib import Path

import pytest

from configs import base
from experiments.config import executed
from experiments.sweeps.saved import load_sweep, save_sweep
from transformer.errors import UserError
from transformer.model.positions.registry import REGISTRY
from transformer.storage import variants
from transformer.workdir import claim, load_config


def execute_module(name):
    with executed(Path(name)):
        pass


CODE = """
from beside import Binary
from transformer.model.positions.registry import REGISTRY
REGISTRY["my_binary"] = Binary
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A file that registers an encoding of a file beside it; both are forgotten after the test."""
    monkeypatch.setattr(variants, "SOURCES", {})
    monkeypatch.syspath_prepend(tmp_path)
    beside = "from transformer.model.positions.base import NoPositions\n"
    (tmp_path / "beside.py").write_text(f"{beside}class Binary(NoPositions): pass\n")
    (tmp_path / "mine.py").write_text(CODE)
    execute_module(str(tmp_path / "mine.py"))
    yield tmp_path / "mine.py"
    del REGISTRY["my_binary"]


def test_a_run_needs_the_file_that_registered_its_encoding_and_names_it(module, tmp_path):
    config = base.get_config()
    config.model.positions = "sinusoidal+my_binary"
    claim(tmp_path / "run", config)
    assert load_config(tmp_path / "run").model.positions == "sinusoidal+my_binary"
    variants.SOURCES.clear()  # as in another process
    with pytest.raises(
        UserError, match=r"needs 'my_binary', which .*mine\.py with sha256 [0-9a-f]{64} reg"
    ):
        load_config(tmp_path / "run")
    execute_module(str(module))
    load_config(tmp_path / "run")
    claim(tmp_path / "plain", base.get_config())
    assert not (tmp_path / "plain/variants.json").exists()


def test_a_sweep_needs_the_file_of_an_encoding_that_only_a_trial_sets(module, tmp_path):
    (tmp_path / "sweep").mkdir()
    save_sweep(tmp_path / "sweep", base.get_config(), [{"model.positions": "my_binary"}])
    assert load_sweep(tmp_path / "sweep").is_sweep
    variants.SOURCES.clear()
    with pytest.raises(UserError, match=r"mine\.py with sha256 .*--module=FILE"):
        load_sweep(tmp_path / "sweep")


def test_a_file_that_has_changed_is_named_with_both_digests(module, tmp_path, caplog):
    config = base.get_config()
    config.model.positions = "my_binary"
    claim(tmp_path / "run", config)
    module.write_text(f"{CODE}# changed\n")
    execute_module(str(module))
    logging.getLogger("transformer").propagate = True
    load_config(tmp_path / "run")
    assert "'my_binary' of the training was registered by" in caplog.text


def test_a_file_without_a_digest_differs(module, tmp_path, caplog):
    (tmp_path / "variants.json").write_text('{"my_binary": ""}')
    logging.getLogger("transformer").propagate = True
    variants.check(tmp_path)
    assert "was registered by , now by" in caplog.text


def test_no_file_that_a_run_names_is_executed(tmp_path):
    (tmp_path / "evil.py").write_text(f"import os; os.mkdir({str(tmp_path / 'executed')!r})")
    claim(tmp_path / "run", base.get_config())
    named = {"x": f"{tmp_path / 'evil.py'} with sha256 {'0' * 64}"}
    (tmp_path / "run/variants.json").write_text(json.dumps(named))
    with pytest.raises(UserError, match=r"evil\.py"):
        load_config(tmp_path / "run")
    assert not (tmp_path / "executed").exists()
    execute_module(str(tmp_path / "evil.py"))  # the control
    assert (tmp_path / "executed").exists()
