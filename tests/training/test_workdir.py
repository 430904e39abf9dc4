"""A run's folder: what is in it, what happens when part of it is damaged, going on in it."""

import json
import re
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from configs import base
from experiments import run
from experiments.tasks import translation as translating
from places import ROOT
from runs import without_search
from tiny_run import STEPS, command, forget_weights, refused, shared_run, without_pictures
from transformer import tasks, workdir
from transformer.data.tokenizer import load_tokenizer
from transformer.errors import UserError
from transformer.storage.checkpoint import Checkpoints
from transformer.storage.step_files import MetricsWriter
from transformer.tasks.translation import TranslationTask
from transformer.train import Trainer

TEXTS = ("", ".source", ".reference")  # of a split: its translations and what they are read with
SOURCES = {"translation": "copy", "language_model": "copy", "classification": "toy_reviews"}
SMALL = {
    "tokenizer.kind": "word",
    "tokenizer.vocab_size": 60,
    "data.max_oov_rate": 1.0,
    "data.context": 16,
    "model.d_model": 8,
    "model.num_heads": 2,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


@pytest.fixture
def copy(tiny, tmp_path):
    """A copy of the run's folder, to be changed."""
    return tiny.copy(tmp_path / "copy")


def content(folder):
    """All files below a folder and their bytes."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def steps(folder):
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


def translate(folder, *arguments):
    return command("--mode=translate", f"--workdir={folder}", *arguments, stdin=b"a b\n")


# -- what a run leaves


def test_a_run_leaves_the_files_of_the_design(tiny):
    folder = tiny.workdir
    assert steps(folder) == [20, 40]
    assert not list(folder.rglob("*.partial"))
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {
        "config.json",
        "tokenizer.model",
        "metrics.jsonl",
        "results.json",
        *(f"translations/{split}{kind}.txt" for split in ("validation", "test") for kind in TEXTS),
        "figures/training.png",
        "figures/attention/attention.npz",
        "figures/attention/cross_layer_1.png",
        "data.json",
        "environment.json",
        "translations/test.scores.tsv",
        "report.html",
        "figures/attention/explorer.html",
    } <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    for kind in TEXTS:
        assert len((folder / f"translations/test{kind}.txt").read_text().splitlines()) == 7
    # The task is to copy.
    source, reference = (folder / f"translations/test{kind}.txt" for kind in TEXTS[1:])
    assert source.read_text() == reference.read_text()


def test_line_i_of_the_written_texts_is_sentence_i_whatever_it_holds(tmp_path):
    texts = ["a\nb", "", "c\r\n", "d\u2028e\r", "f"]
    run._write_lines(tmp_path / "texts", texts)
    assert (tmp_path / "texts").read_text() == "a b\n\nc \nd\u2028e \nf\n"


def test_the_table_names_the_steps_whose_weights_are_scored(tiny, capsys):
    results = workdir.load_results(tiny.workdir)
    run.print_results(results, "translation")
    assert "step 40, 4,112 parameters" in capsys.readouterr().out
    later = {**results, "step": 1200}
    for steps, scored in (
        ([1000], "step 1,000"),
        ([900, 1000, 1100], "mean of 3 checkpoints, steps 900 to 1,100"),
    ):
        run.print_results({**later, "averaged_steps": steps}, "translation")
        assert f" {scored}, 4,112 parameters " in capsys.readouterr().out


def test_results_have_the_scores_their_signatures_and_what_they_cost(tiny):
    results = json.loads((tiny.workdir / "results.json").read_text())
    assert set(results) == {
        *("validation", "test", "step", "averaged_steps", "parameters", "wall_seconds"),
        *("tokens_per_second", "flops_per_token", "decode", "weights"),
    }
    # Encoder 4 x 16 x 16 + 2 x 16 x 8, decoder 8 x 16 x 16 + 2 x 16 x 8, logits 20 x 16.
    assert results["flops_per_token"] == 6 * (1280 + 2304 + 320)
    assert results["tokens_per_second"] > 0
    assert (results["step"], results["averaged_steps"]) == (STEPS, [STEPS])
    assert results["parameters"] == 4112  # as the table printed before the training has it
    assert results["wall_seconds"] > 0
    for split, sentences in (("validation", 5), ("test", 7)):
        scores = results[split]
        assert scores["sentences"] == sentences
        assert scores["seconds"] > 0
        assert scores["perplexity"] == pytest.approx(np.exp(scores["nll"]))
        assert scores["loss"] == pytest.approx(scores["nll"])
        assert 0 <= scores["accuracy"] <= 1
        for metric in ("bleu", "chrf"):
            assert 0 <= scores[metric] <= 100
            assert scores[f"{metric}_ci"] >= 0
            assert "version:" in scores[f"{metric}_signature"]


@pytest.mark.slow
def test_evaluate_writes_the_same_scores_again(copy):
    before = json.loads((copy / "results.json").read_text())
    texts = content(copy / "translations")
    for path in ("results.json", "metrics.jsonl"):  # as in a folder copied without its curves
        (copy / path).unlink()
    shutil.rmtree(copy / "translations")
    ended = command("--mode=evaluate", f"--workdir={copy}")
    assert ended.code == 0, ended.err
    assert "no picture of the training" in ended.out
    first, *_ = texts[str(copy / "translations/test.source.txt")].decode().splitlines()
    translation, *_ = texts[str(copy / "translations/test.txt")].decode().splitlines()
    example = f"  source       {first}\n  reference    {first}\n  translation  {translation}\n"
    assert example in ended.out
    assert ended.out.count("  reference    ") == translating.EXAMPLES
    after = json.loads((copy / "results.json").read_text())
    for split in ("validation", "test"):
        before[split].pop("seconds"), after[split].pop("seconds")
        assert before[split].keys() == after[split].keys()
        for name, value in before[split].items():
            if isinstance(value, float):
                assert after[split][name] == pytest.approx(value, rel=1e-5), name
            else:
                assert after[split][name] == value
    before.pop("validation"), before.pop("test")
    assert before.items() <= after.items()
    assert content(copy / "translations") == texts


# -- going on


def test_a_finished_run_says_so_and_does_not_train_again(tiny, copy):
    before = content(copy)
    ended = command(f"--config={tiny.config}", f"--workdir={copy}")
    assert ended.code == 0
    assert f"{copy} is finished, {STEPS} steps" in ended.out
    assert "Raise config.train.steps" in ended.out
    assert "validation at step" not in ended.out
    assert content(copy) == before


def test_a_run_of_another_config_is_left_alone_and_the_keys_that_differ_are_named(tiny, copy):
    before = content(copy)
    ended = refused(
        f"--config={tiny.config}",
        f"--workdir={copy}",
        "--config.model.num_heads=4",
        "--config.data.source=reverse",
        "--config.decode.beam_size=2",
        says=("model.num_heads (there 2, here 4)", "(there 'copy', here 'reverse')", "folder"),
    )
    assert "beam_size" not in ended.err  # it may differ
    assert content(copy) == before
    refused(
        "--mode=translate",
        f"--workdir={copy}",
        "--config.model.d_model=32",
        says="model.d_model (there 16, here 32)",
    )


def test_a_key_newer_than_the_run_has_its_default(copy):
    path = copy / "config.json"
    saved = json.loads(path.read_text())
    del saved["optimizer"]["clip_norm"]
    path.write_text(json.dumps(saved))
    assert workdir.load_config(copy).optimizer.clip_norm == 0.0


@pytest.mark.slow
def test_sigterm_saves_and_leaves_and_the_same_command_goes_on(tiny, copy, monkeypatch):
    arguments = [f"--config={tiny.config}", f"--workdir={copy}", "--config.train.steps=60"]
    write = MetricsWriter.write

    def interrupt(self, step, split, values):
        write(self, step, split, values)
        if step == 50:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsWriter, "write", interrupt)
        handler = signal.getsignal(signal.SIGTERM)
        ended = command(*arguments)
        assert signal.getsignal(signal.SIGTERM) is handler
    assert ended.code == 143, ended.err
    assert "resuming from step 40" in ended.out
    assert "SIGTERM: saved step 50; start the same command again to resume" in ended.out
    assert 50 in steps(copy)
    assert json.loads((copy / "results.json").read_text())["step"] == STEPS

    corrupt_file(copy / "checkpoints" / "50")
    ended = command(*arguments)
    assert ended.code == 0, ended.err
    assert re.search(r"checkpoint \S+/50 is damaged .*going back to the one before", ended.out)
    assert "resuming from step 40" in ended.out
    assert json.loads((copy / "results.json").read_text())["step"] == 60
    assert 60 in steps(copy)
    assert 50 not in steps(copy)
    [aside] = copy.glob("unreadable_50_*")
    assert any(aside.iterdir())
    logged = [json.loads(line)["step"] for line in (copy / "metrics.jsonl").open()]
    assert logged == sorted(logged)
    assert logged.count(50) == 1


def test_an_interrupted_training_ends_with_the_code_of_its_signal(tiny, copy, monkeypatch):
    arguments = [f"--config={tiny.config}", f"--workdir={copy}", "--config.train.steps=60"]
    monkeypatch.setattr(Trainer, "_log", lambda self, *_: signal.raise_signal(signal.SIGINT))
    ended = command(*arguments)
    assert ended.code == 130, ended.err
    assert "SIGINT: saved step 50" in ended.out


HOLD = """
import sys
from pathlib import Path
from transformer import workdir

with workdir.locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_folder_has_one_training_at_a_time_and_a_killed_one_leaves_it_free(tiny, copy):
    arguments = [f"--config={tiny.config}", f"--workdir={copy}", "--config.train.steps=41"]
    command_line = [sys.executable, "-c", HOLD, copy]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command_line, cwd=ROOT, text=True, **pipes)
    assert process.stdout.readline() == "locked\n"
    before = content(copy)
    refused(*arguments, says=(f"another process trains in {copy}", "another folder"))
    assert content(copy) == before
    assert translate(copy).code == 0  # reading is free
    process.kill()
    process.communicate()
    ended = command(*arguments)
    assert ended.code == 0
    metric = workdir.load_config(copy).train.best_metric
    with Checkpoints(copy / "checkpoints", best_metric=metric, read_only=True) as checkpoints:
        best = checkpoints.best_step()  # 40 or 41, by rounding
    assert steps(copy) == {40: [20, 40, 41], 41: [40, 41]}[best]  # two up to it, and the newest


# -- damage


def corrupt_file(checkpoint):
    """Cuts the file that holds a checkpoint's parameters in half."""
    [path] = (checkpoint / "params" / "d").iterdir()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


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


def test_another_tokenizer_or_another_text_is_refused_and_replaces_nothing(tiny, copy, tmp_path):
    config = workdir.load_config(copy)
    config.data.seed = 1
    other = TranslationTask(config)
    assert other.fingerprint() != TranslationTask(workdir.load_config(copy)).fingerprint()
    before = content(copy)
    # As if the files of the text had been edited: the config is the same, the text is not.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            TranslationTask, "__init__", lambda self, *_, **__: vars(self).update(vars(other))
        )
        says = ("were trained with the tokenizer", "restore the original text")
        refused(f"--config={tiny.config}", f"--workdir={copy}", says=says)
    assert content(copy) == before
    with pytest.raises(UserError, match=r"validation.jsonl is not the validation text of this"):
        other.save_assets(copy)
    refused("--mode=translate", f"--workdir={copy}", says="restore the original text or tokenizer")


@pytest.mark.slow
def test_another_text_with_the_same_tokenizer_is_refused_and_replaces_nothing(tiny, tmp_path):
    adopted = tiny.workdir / "tokenizer.model"
    words = [piece for piece in load_tokenizer(adopted).pieces(range(4, 12)) if piece.strip("▁")]
    lines = [f"{a} {b} {c}\n" for a in words for b in words for c in words[:3]]
    files = {"train": lines[20:], "validation": lines[:10], "test": lines[10:20]}
    arguments = [
        f"--config={tiny.config}",
        f"--workdir={tmp_path / 'run'}",
        "--config.data.source=files",
        f"--config.data.path={tmp_path}",
        f"--config.tokenizer.model={adopted}",
        "--config.train.steps=4",
        "--config.train.evaluate_every=2",
    ]
    for split, own in files.items():
        (tmp_path / split).write_text("".join(own))
        arguments += [f"--config.data.{split}_{side}={split}" for side in ("source", "target")]
    with without_pictures(), without_search():
        assert (ended := command(*arguments)).code == 0, ended.err
        before = content(tmp_path / "run")
        (tmp_path / "train").write_text("".join(lines[21:]))
        says = (f"the run in {tmp_path / 'run'} was trained on text with", "restore the original")
        refused(*arguments, "--config.train.steps=6", says=says)
        assert content(tmp_path / "run") == before
        # The control: with its own text, from elsewhere, it goes on.
        (tmp_path / "moved").mkdir()
        for split, own in files.items():
            (tmp_path / "moved" / split).write_text("".join(own))
        cache = f"--config.data.cache_dir={tmp_path / 'cache'}"
        place = f"--config.data.path={tmp_path / 'moved'}"
        ended = command(*arguments, place, cache, "--config.train.steps=6")
        assert ended.code == 0, ended.err
    assert max(steps(tmp_path / "run")) == 6


@pytest.mark.parametrize("task", ["translation", "language_model", "classification"])
def test_the_digest_of_a_text_is_that_of_its_tokens(tmp_path, task):
    def digest(changes, cache="cache"):
        config = base.get_config()
        config.task, config.data.source = task, SOURCES[task]
        config.data.cache_dir = str(tmp_path / cache)
        config.data.train_size, config.data.validation_size, config.data.test_size = 300, 20, 20
        config.update_from_flattened_dict({**SMALL, **changes})
        return tasks.REGISTRY[task](config).text_digest()

    own = digest({})
    assert re.fullmatch("[0-9a-f]{24}", own)
    assert digest({}) == digest({}, "another cache") == own
    assert digest({"seed": 5, "data.batch_tokens": 512}) == own
    assert digest({"data.seed": 7}) != own


def test_a_config_that_does_not_fit_the_checkpoints_is_refused(copy):
    path = copy / "config.json"
    path.write_text(path.read_text().replace('"d_ff": 8', '"d_ff": 12'))
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
