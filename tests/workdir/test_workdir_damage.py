"""What is damaged in a run's folder is named with the fix, and no good checkpoint is lost."""

import json
import resource
import shutil

import pytest
from run_folders import content, corrupt_file, translate

from tiny_run import command, forget_weights, refused, unsealed
from transformer import workdir


def change_byte(checkpoint):
    """Changes one bit of the file that holds a checkpoint's parameters."""
    [path] = (checkpoint / "params" / "d").iterdir()
    numbers = bytearray(path.read_bytes())
    numbers[len(numbers) // 2] ^= 4
    path.write_bytes(numbers)


def remove_parameters(checkpoint):
    shutil.rmtree(checkpoint / "params")


def empty_all(checkpoint):
    for path in checkpoint.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


def spoil_record(checkpoint):
    (checkpoint / "checkpoint.json").write_text("{")


@pytest.mark.parametrize(
    "corrupt", [corrupt_file, change_byte, remove_parameters, empty_all, spoil_record]
)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(copy, corrupt, said):
    forget_weights(copy)
    corrupt(copy / "checkpoints" / "40")
    used = workdir.load_trained(copy, workdir.load_config(copy)).steps
    assert used == [20]
    assert any(line.startswith("checkpoint 40 is damaged") for line in said)


def test_translate_says_on_stderr_which_checkpoint_is_damaged(copy):
    forget_weights(copy)
    corrupt_file(copy / "checkpoints" / "40")
    ended = translate(copy)
    assert ended.code == 0
    assert "checkpoint 40 is damaged" in ended.err
    assert len(ended.out.splitlines()) == 1


def test_where_no_checkpoint_can_be_read_none_is_deleted(tiny, copy):
    forget_weights(copy)
    for step in (20, 40):
        corrupt_file(copy / "checkpoints" / str(step))
    before = content(copy / "checkpoints")
    says = ("all checkpoints in", "are damaged", "restore a copy")
    refused("--mode=translate", f"--workdir={copy}", says=says, stdin=b"a\n")
    arguments = [f"--config={tiny.config}", f"--workdir={copy}", "--config.train.steps=60"]
    refused(*arguments, says=(*says, "from the beginning"))
    assert content(copy / "checkpoints") == before


def test_a_folder_without_a_run_or_without_a_checkpoint_is_named(copy, tmp_path):
    refused("--mode=translate", f"--workdir={tmp_path / 'no'}", says=("no has no run", "train"))
    assert not (tmp_path / "no").exists()
    shutil.rmtree(copy / "checkpoints")
    assert translate(copy).code == 0  # with the weights that were stored apart
    forget_weights(copy)
    refused("--mode=translate", f"--workdir={copy}", says=(str(copy), "no checkpoint"))
    (copy / "checkpoints").mkdir()
    refused("--mode=evaluate", f"--workdir={copy}", says=(str(copy), "no checkpoint"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.json", '{"model": {', "restore the original"),
        ("config.json", "[]", "restore the original"),
        ("config.json", '{"modle": 1}', "there is no key config.modle"),
        ("config.json", '{"seed": "x"}', "config.seed='x' must be of type int"),
        ("config.json", '{"model": 3}', "there is no key config.model"),
        ("tokenizer.model", None, "restore the file"),
        ("tokenizer.model", "garbage", "is not a sentencepiece model"),
        ("tokenizer.model", "", "is not a sentencepiece model"),
    ],
)
def test_a_damaged_file_is_named_with_the_fix(copy, name, text, says):
    (copy / name).unlink() if text is None else (copy / name).write_text(text)
    refused("--mode=translate", f"--workdir={copy}", says=(name.split(".")[0], says))


def test_damaged_results_are_named_with_the_fix(tiny, copy):
    (copy / "results.json").write_text('{"validation')
    refused(
        f"--config={tiny.config}", f"--workdir={copy}", says=("results.json", "the mode evaluate")
    )


def test_a_config_that_does_not_fit_the_checkpoints_is_refused(copy):
    path = copy / "config.json"
    config = unsealed(path)
    config["model"]["d_ff"] = 12
    path.write_text(json.dumps(config))
    refused(
        "--mode=translate",
        f"--workdir={copy}",
        says=("config.json", "feed_forward", "is (8,), not (12,)"),
    )


def test_a_full_disk_ends_the_run_and_the_checkpoints_before_are_intact(tiny, copy):
    before = content(copy / "checkpoints")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond this; what a checkpoint holds of parameters does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, hard))
    try:
        ended = command(f"--config={tiny.config}", f"--workdir={copy}", "--config.train.steps=45")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ended.code == 2
    line = ended.err.splitlines()[-1]
    assert line.startswith("error: the checkpoint")
    assert "make room there" in line
    assert "kept: steps 20, 40" in line
    assert before.items() <= content(copy / "checkpoints").items()
    assert translate(copy).code == 0
