"""Damaged files and links in a run, a sweep, a cache and an archive: named or without effect."""

import contextlib
import os
import random
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from experiments.display.training_curves import read_curves
from experiments.sweep import study, trial_configs
from log_lines import heard
from tiny_run import command, shared_run, unsealed
from transformer.data import held_out
from transformer.data.token_store import cached_arrays
from transformer.errors import UserError
from transformer.files import SEAL, OddFileError, read_json, write_json
from transformer.optim.parameters import named_leaves
from transformer.runs import json_files, workdir
from transformer.runs.run import Run

SECONDS = 20  # for one use of a folder
FULL = (pytest.mark.full, pytest.mark.slow)


@contextlib.contextmanager
def in_time():
    """Fails what takes too long, as the reading of a pipe does."""

    def late(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def use_run(folder: Path) -> list:
    """All that modes use of a run, apart from pictures."""
    workdir.check_folder(folder)
    config, results = workdir.load_config(folder), json_files.known_results(folder)
    if name := json_files.damaged_text(folder, results):
        raise UserError(f"{name} is damaged")
    trained = Run(folder, config).load_trained()
    params = {k: np.asarray(v).tobytes() for k, v in named_leaves(trained.variables).items()}
    recorded = json_files.read_run(folder)
    pairs = [held_out.read_pairs(folder, split) for split in ("validation", "test")]
    curves = read_curves(folder / "metrics.jsonl")
    if not curves:  # as the report says
        raise UserError("metrics.jsonl: nothing to draw")
    read = recorded, pairs, repr(curves)
    return [config.to_json(), results, params, trained.steps, *read]


def use_sweep(folder: Path) -> list:
    workdir.check_folder(folder)
    experiment, trials = trial_configs.load_sweep(folder), sorted(folder.glob("trials/*"))
    return [
        experiment and (experiment.config.to_json(), experiment.trials),
        study.identity(folder, ""),
        [(workdir.load_config(own).to_json(), json_files.known_results(own)) for own in trials],
    ]


def use_cache(folder: Path) -> list:
    arrays = {"a": np.arange(99), "b": np.ones(7)}
    found = cached_arrays(folder / "text", lambda _: (arrays, {}))[0]
    return [(name, array.tolist()) for name, array in sorted(found.items())]


USES = {"run": use_run, "sweep": use_sweep, "cache": use_cache}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of each, undamaged."""
    root, run = tmp_path_factory.mktemp("whole"), shared_run(tmp_path_factory).workdir
    shutil.copytree(run, root / "run")
    for seed in (0, 1):
        trial = shutil.copytree(run, root / f"sweep/trials/{seed:03d}")
        shutil.rmtree(trial / "checkpoints")
        write_json(trial / "config.json", {**unsealed(trial / "config.json"), "seed": seed})
    content = {"command": "c", "config": unsealed(run / "config.json"), "trials": [{"seed": 0}]}
    write_json(root / "sweep/sweep.json", content)
    study.identity(root / "sweep", "name")
    use_cache(root / "cache")
    return root


def damage(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    kind = rng.choice(["bit", "bit", "bits", "cut", "empty", "pipe", "sparse"])
    place = rng.randrange(len(data)) if data else 0
    for _ in range({"bit": 1, "bits": 8}.get(kind, 0) * bool(data)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
        return
    path.write_bytes({"cut": data[:place], "empty": b""}.get(kind, data))
    if kind == "sparse":
        os.truncate(path, 40 * 2**30)


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=FULL)])
def test_a_damaged_file_anywhere_is_named_or_changes_nothing(count, whole, tmp_path):
    rng = random.Random(count)
    clean = {kind: use(whole / kind) for kind, use in USES.items()}
    ended = dict.fromkeys(("named", "harmless"), 0)
    for _ in range(count):
        kind = rng.choice(list(USES))
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        folder = shutil.copytree(whole / kind, tmp_path / "copy")
        path = rng.choice(sorted(p for p in folder.rglob("*") if p.is_file()))
        damage(path, rng)
        with in_time(), heard() as said:
            try:
                same = USES[kind](folder) == clean[kind]
            except (UserError, OddFileError):
                ended["named"] += 1
            else:
                ended["harmless"] += 1
                assert same or said, path
    assert min(ended.values()) > 0
    print(ended)


def test_json_of_any_depth_is_named(tmp_path):
    for depth in range(900, 1010):  # at one of them it can be read, but not written for its digest
        (tmp_path / "deep").write_text(f'{{"{SEAL}": "", "x": {"[" * depth}{"]" * depth}}}')
        with pytest.raises(UserError, match=r"not what was written|nested too deep"):
            read_json(tmp_path / "deep", dict, "restore it")


@pytest.mark.parametrize("count", [8, pytest.param(60, marks=FULL)])
def test_nothing_is_written_through_a_link_and_no_pipe_is_waited_for(count, whole, tmp_path):
    rng, outside = random.Random(count), tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"the user's")
    os.mkfifo(tmp_path / "pipe")
    before = {path: path.read_bytes() for path in outside.rglob("*")}
    for number in range(count):
        kind = ("sweep", "run", "cache")[number % 3]
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        folder = shutil.copytree(whole / kind, tmp_path / "copy")
        paths = sorted(path for path in folder.rglob("*") if path.name != "checkpoints")
        path = rng.choice([path for path in paths if kind != "cache" or path.is_file()])
        if kind == "sweep" and number < 9:
            path = folder / ("lock", "trials", "study.db")[number // 3]
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(rng.choice([outside, outside / "file", tmp_path / "pipe", "/dev/zero"]))
        with in_time(), heard():
            if kind == "cache":
                use_cache(folder)
            else:
                ended = command(f"--workdir={folder}")
                assert ended.code == 2
                assert str(path) in ended.err
        assert {each: each.read_bytes() for each in outside.rglob("*")} == before
