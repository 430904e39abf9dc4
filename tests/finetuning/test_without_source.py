"""A run that started from another one needs no more of it once it is trained."""

import pytest

from tiny_run import command, shared_run
from transformer import workdir
from transformer.storage.files import write_json


@pytest.mark.parametrize(
    "change", [{"train.init_pattern": "^encoder"}, {"tokenizer.initial": "grow"}]
)
def test_a_trained_run_is_used_without_the_name_of_its_source(change, tmp_path_factory, tmp_path):
    copy = shared_run(tmp_path_factory).copy(tmp_path / "copy")
    config = workdir.load_config(copy)
    config.update_from_flattened_dict({"train.init_from": "/gone", **change})
    write_json(copy / "config.json", config.to_dict())
    ended = command("--mode=translate", f"--workdir={copy}", stdin=b"a b\n")
    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 1
