"""A run starts from another's weights, of every task, and goes on without it, bit for bit."""

import logging
import shutil

import jax
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

import tiny_classifier
import tiny_language_model
from runs import identical, lines, newest_state, toy_config
from source_settings import refused
from task_runs import text_config
from transformer import tasks
from transformer.config import complete
from transformer.data.tokenizer import load_tokenizer
from transformer.errors import UserError
from transformer.optim.parameters import named_leaves
from transformer.runs import workdir
from transformer.runs.run import RUN, Run, read_run
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun
from transformer.training.start import check_source, named_tables, start_from

TABLE = "target_embedding/table"
LAST = {"evaluate.checkpoint": "last"}


def task_of(config, folder=None):
    return tasks.REGISTRY[config.task](config, folder=folder)


def save_source(config, folder):
    """A run's folder with one checkpoint, of random parameters, which it returns by name."""
    task = task_of(config)
    Run(folder, config).claim()
    task.save_assets(folder)
    run, draw = TrainingRun(task, config, folder), np.random.default_rng(0).normal
    shapes = task.predictor.param_shapes()
    state = run.fresh_state(jax.tree.map(lambda x: draw(size=x.shape).astype(x.dtype), shapes))
    run.save(1, state)
    run.close()
    return named_leaves(jax.device_get(state.params))


def task_from(config, folder, source, **changes):
    """The task of a run that starts from another."""
    config = complete(config)
    config.train.init_from, config.seed = str(source), 7
    config.update_from_flattened_dict(changes)
    check_source(Run(folder, config))
    folder.mkdir(exist_ok=True)
    return config, task_of(config)


def loaded(config, folder, source, **changes):
    """The first parameters if the seed drew zeros, the task, and the record of the start."""
    config, task = task_from(config, folder, source, **changes)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), task.predictor.param_shapes())
    params, record = start_from(Run(folder, config), task.predictor, zeros)
    return named_leaves(jax.device_get(params)), task, record["init_from"]


def started(config, folder, source, **changes):
    """The parameters before and after those of the source are loaded, and the task."""
    config, task = task_from(config, folder, source, **changes)
    run = TrainingRun(task, config, folder)
    fresh = run.fresh_state()
    state = run.restore()
    run.close()
    assert int(state.step) == 0
    assert identical(state.opt_state, fresh.opt_state)
    return *(named_leaves(jax.device_get(s.params)) for s in (fresh, state)), task


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """The config of a source that copies letters, its folder and its parameters."""
    folder = tmp_path_factory.mktemp("source")
    config = toy_config(folder / "cache", **{"evaluate.checkpoint": "last"})
    return config, folder / "run", save_source(config, folder / "run")


def test_a_translator_starts_from_all_weights_and_says_so(translator, tmp_path, caplog):
    config, source, theirs = translator
    with caplog.at_level(logging.INFO):
        fresh, ours, _ = started(config, tmp_path / "run", source)
    assert ours.keys() == theirs.keys()
    assert all(identical(ours[name], theirs[name]) for name in ours)
    assert not identical(fresh[TABLE], theirs[TABLE])  # another seed drew them
    start = read_run(tmp_path / "run")["init_from"]
    assert start["loaded"] == start["parameters"] == sum(x.size for x in theirs.values())
    assert (start["folder"], start["steps"], start["frozen"]) == (str(source), [1], 0)
    said = caplog.records[-1].getMessage()
    assert f"starts from {source}, weights of step 1: {start['loaded']:,} of" in said


@pytest.mark.parametrize(("initial", "size"), [("keep", 9), ("grow", 50), ("new", 50)])
def test_rows_of_embeddings_follow_their_pieces_into_another_vocabulary(
    translator, tmp_path, initial, size
):
    config, source, theirs = translator
    # Of fewer sentences than letters, and numbers besides.
    letters = load_tokenizer(source / "tokenizer.model").pieces(range(20))
    text = "\n".join(f"{a[1:]} {i} x{i}" for i in range(9) for a in letters[6:18]) + "\n"
    (tmp_path / "text").write_text(text)
    keys = {"data.source": "files", "data.path": str(tmp_path), "data.train_source": "text",
            "data.train_target": "text", "tokenizer.initial": initial, "data.max_oov_rate": 1.0,
            "tokenizer.vocab_size": size}  # fmt: skip
    ours, task, record = loaded(config, tmp_path / "run", source, **keys)
    _, old = named_tables(task_of(config).predictor, unflatten_dict(theirs, sep="/"))[TABLE]
    _, new = named_tables(task.predictor, unflatten_dict(ours, sep="/"))[TABLE]
    if initial == "new":
        assert new[: len(old)] != old
    else:
        assert new[: len(old)] == old
    assert (len(new) > len(old)) == (initial != "keep")
    for i, piece in enumerate(new):
        row = theirs[TABLE][old.index(piece)] if piece in old else np.zeros(8)
        np.testing.assert_array_equal(ours[TABLE][i], row)
    rows = {"carried": len(set(new) & set(old)), "new": len(set(new) - set(old))}
    assert record["tables"] == ({} if initial == "keep" else {TABLE: rows})


@pytest.mark.full
@pytest.mark.parametrize("architecture", ["transformer", "bag_of_embeddings"])
def test_a_classifier_of_other_classes_needs_a_new_output(architecture, tmp_path):
    keys = {"model.architecture": architecture, "model.bigram_buckets": 11}
    rows = tiny_classifier.ROWS
    config = text_config("classification", tmp_path / "old", rows, **keys)
    theirs = save_source(config, tmp_path / "source")
    ours, *_ = loaded(config, tmp_path / "same", tmp_path / "source")
    assert all(identical(ours[name], theirs[name]) for name in theirs)
    rows = [row.replace("good\t", "praise\t", i % 2) for i, row in enumerate(rows)]
    other = text_config("classification", tmp_path / "new", rows, **keys)
    with pytest.raises(UserError, match=r"output/.* in that run.*init_pattern='\^\(\?!output/\)'"):
        loaded(other, tmp_path / "run", tmp_path / "source")
    keys = {"train.init_pattern": "^(?!output/)"}
    ours, *_ = loaded(other, tmp_path / "run", tmp_path / "source", **keys)
    assert not ours["output/kernel"].any()
    table = next(name for name in ours if name.endswith("table"))
    assert identical(ours[table], theirs[table])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model.d_model": 16}, ("(8, 8) in that run", "that run has model.d_model=8 (here 16)")),
        ({"model.architecture": "recurrent"}, ("run of config.model.architecture=transformer",)),
        (
            {"tokenizer.joint": False, "model.tied_embeddings": "none"},
            ("config.tokenizer.joint=False", "has True: set config.tokenizer.joint=True"),
        ),
    ],
)
def test_a_run_that_does_not_fit_is_refused_in_one_line(translator, tmp_path, changes, says):
    config, source, _ = translator
    with refused(*says):
        loaded(config, tmp_path / "run", source, **changes)
    assert not (tmp_path / "run" / RUN).exists()


def test_what_a_model_may_have_otherwise_is_taken_and_other_settings_are_told(
    translator, tmp_path, caplog
):
    config, source, theirs = translator
    free = {"model.max_length": 20, "model.dropout_residual": 0.3, "train.label_smoothing": 0.0,
            "optimizer.learning_rate": 0.3}  # fmt: skip
    ours, *_ = loaded(config, tmp_path / "a", source, **free)
    assert all(identical(ours[name], theirs[name]) for name in theirs)
    assert "trained with" not in caplog.text
    loaded(config, tmp_path / "b", source, **{"model.activation": "gelu"})
    assert "was trained with model.activation=relu (here gelu)" in caplog.text


@pytest.mark.full
def test_a_run_that_was_broken_off_goes_on_bit_for_bit_without_its_source(tmp_path):
    words, source = tiny_language_model.LINES * 10, tmp_path / "source"
    theirs = save_source(text_config("language_model", tmp_path / "old", words, **LAST), source)
    config = text_config(
        "language_model", tmp_path / "new", [f"{line} three" for line in words],
        **{**LAST, "train.init_from": str(source), "tokenizer.initial": "grow", "train.steps": 4,
           "train.freeze": "layers", "train.ema_decay": 0.9, "train.evaluate_every": 2,
           "optimizer.name": "adamw", "optimizer.weight_decay": 0.1, "optimizer.clip_norm": 0.5,
           "train.learning_rate_factors": (("table", 0.5),), "model.dropout_residual": 0.2}
    )  # fmt: skip

    step = None

    def go_on(folder, stop=False):
        nonlocal step
        task = task_of(config, folder)
        Run(folder, config).claim()
        task.save_assets(folder)
        trainer = Trainer([TrainingRun(task, config, folder)], None, step, snapshots=False)
        step = trainer.train_step
        trainer.on_evaluation = lambda step, numbers: stop
        assert trainer.run()
        return task

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    go_on(whole)
    go_on(broken, stop=True)
    assert workdir.newest_step(broken) == 2
    shutil.rmtree(source)
    config.data.cache_dir = str(tmp_path / "other_cache")
    check_source(Run(broken, config))
    task = go_on(broken)
    assert workdir.newest_step(broken) == 4
    states = [newest_state(task, config, folder) for folder in (whole, broken)]
    assert identical(*states)
    assert lines(whole) == lines(broken)
    for tree in (states[0].params, states[0].ema):
        for name, x in named_leaves(tree).items():
            assert identical(x, theirs[name]) == ("layers" in name), name
    # Control: a run that has not begun needs it.
    with pytest.raises(UserError, match="does not exist"):
        check_source(Run(tmp_path / "fresh", config))
