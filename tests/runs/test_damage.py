"""What is damaged in a run's folder is named with the fix, and no good checkpoint is lost."""

import json
import shutil

import pytest
from run_folders import corrupt_file, translate

from runs import lines, without_search
from tiny_run import command, content, forget_weights, refused, unsealed, without_pictures
from transformer.runs.run import Run


def test_a_damaged_newest_checkpoint_is_named_and_stays(tiny, copy):
    forget_weights(copy)
    corrupt_file(copy / "checkpoints" / "40")
    before = content(copy / "checkpoints")
    says = ("checkpoints/40 is damaged", "delete that folder to go on from the one before")
    refused(f"--config={tiny.config}", f"--workdir={copy}", "--config.train.steps=60", says=says)
    refused("--mode=translate", f"--workdir={copy}", says=says, stdin=b"a\n")
    assert content(copy / "checkpoints") == before
    shutil.rmtree(copy / "checkpoints" / "40")
    assert Run(copy).load_trained().steps == [20]


def test_a_folder_without_a_run_or_without_a_checkpoint_is_named(copy, tmp_path):
    refused("--mode=translate", f"--workdir={tmp_path / 'no'}", says=("no has no run", "train"))
    assert not (tmp_path / "no").exists()
    shutil.rmtree(copy / "checkpoints")
    assert translate(copy).code == 0  # with the weights that were stored apart
    forget_weights(copy)
    refused("--mode=translate", f"--workdir={copy}", says=(str(copy), "no checkpoint"))
    (copy / "checkpoints").mkdir()
    refused("--mode=evaluate", f"--workdir={copy}", says=(str(copy), "no checkpoint"))


def test_a_finished_run_whose_checkpoints_are_gone_is_neither_trained_nor_changed(tiny, copy):
    before, metrics = (copy / "results.json").read_bytes(), lines(copy)
    shutil.rmtree(copy / "checkpoints")
    says = (f"{copy} has results.json but no checkpoints", "delete results.json and weights.json")
    refused(f"--config={tiny.config}", f"--workdir={copy}", says=says)
    assert ((copy / "results.json").read_bytes(), lines(copy)) == (before, metrics)
    for name in ("results.json", "weights.json"):
        (copy / name).unlink()
    Run(copy).refuse_results()  # control


def test_a_damaged_tokenizer_is_named(copy):
    (copy / "tokenizer.model").write_text("garbage")
    says = ("tokenizer", "is not a sentencepiece model")
    refused("--mode=translate", f"--workdir={copy}", says=says)


def test_a_config_that_does_not_fit_the_checkpoints_is_refused(copy):
    path = copy / "config.json"
    config = unsealed(path)
    config["model"]["d_ff"] = 12
    path.write_text(json.dumps(config))
    refused(
        "--mode=translate",
        f"--workdir={copy}",
        says=("config.json", "feed_forward", "[8]", "[12]"),
    )


DAMAGE = {
    "empty": b"",
    "a list": b"[]",
    "no keys": b"{}",
    "cut": b'{"step": 4',
    "not UTF-8": b'{"a": "\xff"}',
    "nested": b"[" * 100_000,
}
READ_BY = {
    "config.json": ("translate", "report", "evaluate", "train"),
    "results.json": ("report", "train"),
    "run.json": ("report", "evaluate"),
    "held_out/validation.jsonl": ("evaluate",),
    "held_out/test.jsonl": ("evaluate", "intervene", "align"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", READ_BY)
def test_damage_is_named_with_the_fix_in_every_mode_that_reads_it(copy, tmp_path, name):
    arguments = [f"--workdir={copy}", f"--config.data.cache_dir={tmp_path / 'cache'}"]
    for damage, data in DAMAGE.items():
        if (name, damage) == ("run.json", "no keys"):
            continue  # which says that nothing was recorded
        (copy / name).write_bytes(data)
        for mode in READ_BY[name]:
            ended = refused(f"--mode={mode}", *arguments, says=name, stdin=b"a\n")
            assert len(ended.err.splitlines()) == 1, (damage, mode)
            assert len(ended.err) < 600, (damage, mode)
            assert any(word in ended.err for word in ("restore", "delete it")), (damage, mode)


@pytest.mark.full
def test_lines_of_the_metrics_that_are_damaged_are_passed_over(copy, tmp_path):
    path = copy / "metrics.jsonl"
    lines = ["[]", '"x"', "null", '{"step": "9", "loss": 1}', '{"step": 9, "loss": "1"}', "{"]
    damaged = "\n".join(lines).encode() + b'\n{"step": 1, "split": "$\\\\frac", "loss": 3}\n\xff\n'
    path.write_bytes(path.read_bytes() + damaged)
    assert command("--mode=report", f"--workdir={copy}").code == 0
    with without_pictures(), without_search():
        ended = command(
            f"--workdir={copy}", "--config.train.steps=41", f"--config.data.cache_dir={tmp_path}"
        )
    assert ended.code == 0, ended.err
