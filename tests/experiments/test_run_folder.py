"""A run's folder that is damaged, was sent by a stranger, or is gone on with by its name alone."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from configs import base
from experiments import modes, run
from experiments.command import safety
from experiments.report import numbers
from places import ROOT
from runs import without_search
from tiny_run import STEPS, command, refused, shared_run, without_pictures
from transformer import records, workdir
from transformer.errors import UserError
from transformer.inference import segments
from transformer.inference.segments import source_language
from transformer.keys import assign, flatten


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


@pytest.fixture
def copy(tiny, tmp_path):
    """A copy of the run's folder, to be changed."""
    return tiny.copy(tmp_path / "copy")


def change_config(folder: Path, change) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


# -- going on by --workdir alone


def test_a_run_goes_on_by_its_folder_alone_and_remembers_what_is_set(tiny, copy, tmp_path):
    cache = f"--config.data.cache_dir={tmp_path / 'cache'}"
    longer = [f"--workdir={copy}", "--config.train.steps=41", "--config.decode.beam_size=2", cache]
    with without_pictures(), without_search():
        ended = command(*longer)
    assert ended.code == 0, ended.err
    assert f"resuming from step {STEPS}" in ended.out
    kept = workdir.load_config(copy)
    assert (kept.train.steps, kept.decode.beam_size) == (41, 2)
    again = command(f"--workdir={copy}", cache)
    assert (again.code, again.err) == (0, "")
    assert f"{copy} is finished, 41 steps" in again.out
    says = ("model.num_heads (there 2, here 4)", "name this one alone, without a config")
    refused(f"--config={tiny.config}", *longer, "--config.model.num_heads=4", says=says)


def test_the_folder_may_be_below_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    refused("--workdir=~/runs/x", "--mode=report", says=str(tmp_path / "runs/x"))


def test_a_finished_run_forgets_what_was_set_to_no_effect(copy, tmp_path):
    before = (copy / "config.json").read_bytes()
    beam = "--config.decode.beam_size=2"
    ended = command(f"--workdir={copy}", beam, f"--config.data.cache_dir={tmp_path / 'cache'}")
    assert "is finished" in ended.out
    assert (copy / "config.json").read_bytes() == before


def test_a_folder_without_a_run_cannot_go_on(tmp_path):
    says = ("--config is missing", f"{tmp_path} has none")
    refused(f"--workdir={tmp_path}", says=says)


FREE = """name data.path data.fetch data.cache_dir data.prefetch data.tfds_dir train.steps
train.epochs train.minutes train.log_every train.evaluate_every train.save_minutes train.keep_last
train.patience train.max_nonfinite_steps"""


def test_what_a_started_run_may_change_changes_neither_model_nor_order_nor_optimizer(tmp_path):
    workdir.claim(tmp_path, base.get_config())
    allowed = []
    for key, value in flatten(base.get_config()).items():
        config = base.get_config()
        other = {
            bool: lambda x: not x,
            str: lambda x: f"{x}x",
            list: lambda x: [*x, *(x or [{}])],
        }
        assign(config, key, other.get(type(value), lambda x: x + 1)(value))
        with contextlib.suppress(UserError):
            workdir.check_same_run(tmp_path, config, training=True)
            allowed.append(key)
    groups = ("decode.", "evaluate.", "sweep.")
    free = {key for key in allowed if not key.startswith(groups)}
    assert free == {*FREE.split()} & {*flatten(base.get_config())}
    assert {key.split(".")[0] for key in allowed} >= {"decode", "evaluate", "sweep"}


def test_a_run_is_used_with_another_form_of_attention_but_not_trained_on_with_it(tmp_path):
    workdir.claim(tmp_path, base.get_config())
    config = base.get_config()
    config.model.attention_implementation = "chunked"
    workdir.check_same_run(tmp_path, config)
    with pytest.raises(UserError, match="there 'plain', here 'chunked'"):
        workdir.check_same_run(tmp_path, config, training=True)


# -- a stranger's folder

WATCHED = """
import json, os, sys
seen = []
def watch(event, arguments):
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.listdir", "os.scandir"):
        for each in arguments[:2]:
            if isinstance(each, str | bytes | os.PathLike):
                seen.append(os.path.abspath(os.fsdecode(each)))
sys.addaudithook(watch)
sys.path[:0] = [{root!r}, {tests!r}]
from tiny_run import command
for arguments in {commands!r}:
    del seen[:]
    ended = command(*arguments, stdin=b"a b\\ta b\\n")
    near = sorted({{path for path in seen if path.startswith({outside!r})}})
    print(json.dumps([arguments[0], ended.code, ended.out + ended.err, near]))
"""
MODES = [
    mode
    for mode in modes.TABLE
    if mode.fits("translation") and mode.workdir and mode.name not in modes.READ_TEXT
]


@pytest.fixture
def hostile(copy, tmp_path):
    """A run whose config names places of the reader's machine, which `outside` stands for."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("train.en", "train.de"):
        (outside / name).write_text("secret\n" * 40)

    def change(config):
        config["name"] = "<script>alert(1)</script>$\\frac{[/b]"
        config["sweep"]["storage"] = f"sqlite:///{outside}/study.db"
        config["data"] |= {
            "source": "files",
            "path": str(outside),
            "cache_dir": str(outside / "cache"),
            "tfds_dir": str(outside / "tfds"),
            "validation_source": f"{outside}/train.en",
            "validation_target": f"{outside}/train.de",
        }

    change_config(copy, change)
    # What some programs that open pictures take for a program.
    (copy / "figures" / "map.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    text = (copy / "held_out" / "test.jsonl").read_text()
    marked = text.replace('"source": "', '"source": "<script>alert(2)</script> ', 1)
    (copy / "held_out" / "test.jsonl").write_text(marked)
    return copy


@pytest.mark.slow
def test_no_mode_reads_or_writes_where_a_stranger_s_config_says(hostile, tmp_path):
    outside = tmp_path / "outside"
    before = sorted(outside.rglob("*"))
    commands = [
        [f"--mode={mode.name}", f"--workdir={hostile}"]
        + ["--sentence=a b"] * ("sentence" in mode.flags)
        for mode in MODES
    ]
    commands.append(
        ["--mode=train", f"--workdir={hostile}", "--config.train.steps=41"]
    )  # a control
    program = WATCHED.format(
        root=str(ROOT),
        tests=str(ROOT / "tests" / "support"),
        commands=commands,
        outside=str(outside),
    )
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "JAX_PLATFORMS": "cpu"}
    environment["JAX_COMPILATION_CACHE_DIR"] = str(home / "xla")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *uses, train = map(json.loads, done.stdout.splitlines())
    for mode, code, said, near in uses:
        assert (code, near) == (0, []), (mode, said)
    assert sorted(outside.rglob("*")) == before
    # Training reads its text, and says so; the cache is the reader's own.
    assert f"reads {outside}/train.en, {outside}/train.de" in train[2]
    assert str(outside / "train.en") in train[3]
    assert str(outside / "cache") not in train[3]
    page = (hostile / "report.html").read_text(encoding="utf-8")
    assert "alert(1)" in page
    assert "alert(2)" in page
    assert "<script>alert" not in page
    assert "map.png (cannot be read)" in page


@pytest.mark.parametrize(
    ("changes", "language"),
    [
        ({"train_source": "/secret/x.de", "train_target": "/secret/x.en"}, "de"),
        ({"train_source": "../x.fr.gz", "train_target": "x.en"}, "fr"),
        ({"train_source": "/secret/x.en", "train_target": "", "source_field": "ru"}, "ru"),
        ({"train_source": "/secret.de/text", "train_target": "x.en"}, ""),
    ],
)
def test_a_run_used_by_its_folder_alone_knows_the_language_but_no_place(changes, language):
    config = base.get_config()
    config.data.update({"source": "files", "path": "/secret", **changes})
    assert source_language(config) == language
    assert "/" in str(config.data.to_dict())  # the control
    safety.forget_places(config, training=False)
    assert source_language(config) == language
    assert "/" not in str(config.data.to_dict())


def test_translate_splits_by_the_rules_of_the_training_file_s_language(copy, monkeypatch):
    files = {"source": "files", "train_source": "x.de", "train_target": "x.en"}
    change_config(copy, lambda config: config["data"].update(files))
    languages = set()
    split = segments.split_sentences

    def spy(text, language):
        languages.add(language)
        return split(text, language)

    monkeypatch.setattr(segments, "split_sentences", spy)
    ended = command("--mode=translate", f"--workdir={copy}", stdin=b"a b. c d.\n")
    assert (ended.code, languages) == (0, {"de"}), ended.err


@pytest.mark.parametrize("name", ["results.json", "figures", "held_out/test.jsonl", "translations"])
def test_a_link_out_of_the_folder_is_refused_and_nothing_is_written_through_it(
    copy, tmp_path, name
):
    outside = tmp_path / "outside"
    shutil.move(copy / name, outside)
    (copy / name).symlink_to(outside)
    before = outside.stat().st_mtime_ns
    for mode in ("evaluate", "report", "translate", "positions"):
        says = (str(copy / name), "is a symbolic link out of the run's folder", str(outside))
        refused(f"--mode={mode}", f"--workdir={copy}", says=says, stdin=b"a\n")
    assert outside.stat().st_mtime_ns == before


def test_the_folder_itself_its_checkpoints_and_links_within_may_be_links(copy, tmp_path):
    shutil.move(copy / "checkpoints", tmp_path / "large")
    (copy / "checkpoints").symlink_to(tmp_path / "large")
    (copy / "again.json").symlink_to("results.json")
    (tmp_path / "link").symlink_to(copy)
    ended = command("--mode=translate", f"--workdir={tmp_path / 'link'}", stdin=b"a b\n")
    assert ended.code == 0, ended.err


def test_a_score_that_fetches_a_model_is_not_a_stranger_s_to_choose(copy):
    change_config(copy, lambda config: config["evaluate"].update(sacrebleu_tokenizer="flores200"))
    says = ("sacrebleu_tokenizer='flores200'", "from the network")
    refused("--mode=evaluate", f"--workdir={copy}", says=says)


def test_nothing_is_unpickled():
    for path in [*(ROOT / "transformer").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]:
        text = path.read_text()
        assert "import pickle" not in text, path
        assert "allow_pickle=True" not in text, path


# -- damage

DAMAGE = {
    "empty": b"",
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "a number": b"3",
    "no keys": b"{}",
    "cut": b'{"step": 4',
    "not UTF-8": b'{"a": "\xff"}',
    "nested": b"[" * 100_000,
    "a long number": b'{"step": ' + b"9" * 5000 + b"}",
}
READ_BY = {
    "config.json": ("translate", "report", "evaluate", "train"),
    "results.json": ("report", "train"),
    "data.json": ("report", "evaluate"),
    "environment.json": ("report", "evaluate"),
    "held_out/validation.jsonl": ("evaluate",),
    "held_out/test.jsonl": ("evaluate", "heads", "align"),
}


def with_other_leaves(value, change):
    """Yields JSON in which one leaf after another, or a whole branch, is changed or missing."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        changed = value.copy()
        changed[key] = change(inner)
        yield changed
        if isinstance(inner, dict | list):
            for each in with_other_leaves(inner, change):
                changed = value.copy()
                changed[key] = each
                yield changed


@pytest.mark.parametrize("name", READ_BY)
def test_damage_is_named_with_the_fix_in_every_mode_that_reads_it(copy, tmp_path, name):
    arguments = [f"--workdir={copy}", f"--config.data.cache_dir={tmp_path / 'cache'}"]
    for damage, data in DAMAGE.items():
        (copy / name).write_bytes(data)
        for mode in READ_BY[name]:
            ended = refused(f"--mode={mode}", *arguments, says=name, stdin=b"a\n")
            assert len(ended.err.splitlines()) == 1, (damage, mode)
            assert len(ended.err) < 600, (damage, mode)
            assert any(word in ended.err for word in ("restore", "delete it")), (damage, mode)


CHANGES = {
    "as text": lambda value: str(value),
    "null": lambda value: None,
    "huge": lambda value: 10**400,
    "a list": lambda value: [value],
    "negative": lambda value: -value if isinstance(value, int | float) else value,
}


def tables(folder: Path, config) -> None:
    """Makes all tables that a report has of a run's records."""
    if results := records.read_results(folder / "results.json"):
        numbers.main_score(config.task, results)
        numbers.score_table(config.task, results)
        numbers.signatures(results)
        numbers.decode_table(config, results)
        numbers.cost_table(results, "tokens")
        numbers.duration(results["wall_seconds"])
        numbers.class_table(results["validation"])
        run.print_results(results, "translation")
    environment = records.read_environment(folder / "environment.json")
    numbers.started(folder, environment)
    if environment:
        numbers.environment_table(environment)
    if data := records.read_data(folder / "data.json"):
        numbers.split_table(data)
        numbers.cleaning_table(data)
        numbers.batch_table(data)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["results.json", "data.json", "environment.json"])
def test_records_with_any_other_value_are_refused_or_shown(copy, name, change):
    config, refusals = workdir.load_config(copy), []
    tables(copy, config)  # a control
    for damaged in with_other_leaves(json.loads((copy / name).read_text()), CHANGES[change]):
        (copy / name).write_text(json.dumps(damaged))
        try:
            tables(copy, config)
        except UserError as error:
            refusals.append(str(error))
    assert all(str(copy / name) in refusal for refusal in refusals)
    assert refusals or change in ("negative", "as text")


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


# -- paths and what is left over


def test_a_relative_path_opens_a_run(copy, monkeypatch):
    monkeypatch.chdir(copy.parent)
    folder = Path(copy.name)
    used = workdir.load_trained(folder, workdir.load_config(folder)).steps
    assert used == [STEPS]
    with pytest.raises(UserError, match=r"there is no folder .*/nowhere"):
        workdir.load_trained(Path("nowhere"), workdir.load_config(folder))


def test_what_dead_processes_left_half_written_goes_when_training_starts(copy):
    dead, alive = (copy / f"results.json.{n}.partial" for n in (2**22 + 1, os.getppid()))
    mine = copy / "translations" / "partial"
    for path in (dead, alive, mine):
        path.touch()
    workdir.claim(copy, workdir.load_config(copy))
    assert [path.exists() for path in (dead, alive, mine)] == [False, True, True]


def test_evaluate_refuses_a_language_that_moses_does_not_know(copy):
    arguments = "--mode=evaluate", f"--workdir={copy}", "--config.evaluate.moses=xx"
    refused(*arguments, says=("config.evaluate.moses='xx' is unknown", "de,"))
