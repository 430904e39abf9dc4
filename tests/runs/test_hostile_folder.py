"""A run's folder that a stranger sent reads, writes and runs nothing outside of itself."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.command.command import forget_places
from experiments.process import modes
from places import ROOT
from tiny_run import command, refused, unsealed, without_pictures
from transformer.files import write_json
from transformer.runs.workdir import load_config
from transformer.tasks.translation import TranslationTask

pytestmark = pytest.mark.full


def change_config(folder: Path, change) -> None:
    path = folder / "config.json"
    config = unsealed(path)
    change(config)
    path.write_text(json.dumps(config))


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
    if mode.fits(TranslationTask) and mode.workdir and mode.name not in modes.READ_TEXT
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
    text = (copy / "held_out" / "test.jsonl").read_text()
    marked = text.replace('"source": "', '"source": "<script>alert(2)</script> ', 1)
    (copy / "held_out" / "test.jsonl").write_text(marked)
    (copy / "held_out" / "digests.json").unlink()
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


def test_the_folder_itself_its_checkpoints_and_links_within_may_be_links(copy, tmp_path):
    shutil.move(copy / "checkpoints", tmp_path / "large")
    (copy / "checkpoints").symlink_to(tmp_path / "large")
    (copy / "again.json").symlink_to("results.json")
    (tmp_path / "link").symlink_to(copy)
    ended = command("--mode=translate", f"--workdir={tmp_path / 'link'}", stdin=b"a b\n")
    assert ended.code == 0, ended.err
    # Training would write and delete there.
    (tmp_path / "large/7.orbax-checkpoint-tmp").mkdir()
    before = sorted((tmp_path / "large").rglob("*"))
    longer = f"--workdir={copy}", "--config.train.steps=60"
    refused(*longer, says=("checkpoints is a symbolic link out", "--linked_checkpoints trains"))
    assert sorted((tmp_path / "large").rglob("*")) == before
    with without_pictures():
        assert command(*longer, "--linked_checkpoints").code == 0
    assert (tmp_path / "large/60").exists()


@pytest.mark.parametrize("name", ["results.json", "held_out"])
def test_a_link_out_of_the_folder_and_a_pipe_are_refused(copy, tmp_path, name):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("the user's")
    os.rename(copy / name, tmp_path / "moved")
    (copy / name).symlink_to(tmp_path / "outside")
    refused(
        f"--workdir={copy}", says=(f"{copy / name} is a symbolic link out of the run's folder",)
    )
    (copy / name).unlink()
    os.mkfifo(copy / name)
    refused(f"--workdir={copy}", says=(f"{copy / name} is a pipe or a device",))
    assert (tmp_path / "outside/file").read_text() == "the user's"


@pytest.mark.parametrize("key", ["sweep.storage", "data.cache_dir"])
def test_a_sweep_of_a_stranger_names_no_place_to_write_to(copy, tmp_path, key):
    sweep, place = tmp_path / "sweep", f"sqlite:///{tmp_path / 'elsewhere'}"
    sweep.mkdir()
    config = unsealed(copy / "config.json")
    if key == "sweep.storage":
        config["sweep"]["storage"] = place
    trials = [{"seed": 0} | ({} if key == "sweep.storage" else {key: place})]
    write_json(sweep / "sweep.json", {"command": "x", "config": config, "trials": trials})
    refused(f"--workdir={sweep}", says=(place, "only you may name such a place"))
    assert [path.name for path in sweep.iterdir()] == ["sweep.json"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_resumed_training_prepares_no_dataset_in_a_folder_of_a_stranger(copy, tmp_path):
    for folder, kept in ((tmp_path / "empty", ""), (tmp_path, str(tmp_path))):
        (tmp_path / "wmt").mkdir(exist_ok=True)
        config = load_config(copy)
        config.data.update(tfds_name="wmt/de-en", tfds_dir=str(folder))
        config.data.corpora = ({"name": "a", "tfds_dir": str(tmp_path / "empty")},)
        forget_places(config, training=True)
        assert config.data.tfds_dir == kept
        assert dict(config.data.corpora[0]) == {"name": "a"}


UNPICKLING = re.compile(
    r"import.*\b(pickle|dill|cloudpickle|joblib|shelve|marshal)\b|read_pickle|allow_pickle=(?!False)"
)


def test_nothing_is_unpickled():
    paths = [*(ROOT / "transformer").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]
    assert len(paths) > 100
    assert not [path for path in paths if UNPICKLING.search(path.read_text("utf-8"))]
    for line in ("import json, pickle as p", "np.load(file, allow_pickle=trusted)"):  # controls
        assert UNPICKLING.search(line)
