"""A run starts from another's weights, of every task, and goes on without it, bit for bit."""

import logging
import shutil

import jax
import numpy as np
import pytest

import tiny_classifier
import tiny_language_model
import tiny_run
from experiments.command import safety
from experiments.report import numbers
from experiments.run import train
from experiments.sweeps.plan import plan_trial
from runs import identical, lines, newest_state, toy_config
from tiny_run import refused, shared_run
from transformer import records, tasks, workdir
from transformer.data.tokenizer import load_tokenizer
from transformer.errors import UserError
from transformer.finetuning.source import check_fit, check_source, start_from, table_rows
from transformer.keys import complete
from transformer.run import Run
from transformer.storage.checkpoint_files import named_leaves
from transformer.storage.files import write_json
from transformer.tasks.translation import TranslationTask
from transformer.train import Trainer

TABLE = "target_embedding/table"


def text_config(module, folder, rows, **changes):
    """A config of lines that it writes to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "train.tsv" if module is tiny_classifier else "text"
    (folder / name).write_text("".join(f"{row}\n" for row in rows))
    scope = {}
    exec(module.CONFIG.replace("PATH", str(folder)), scope)
    config = scope["get_config"]()
    config.evaluate.checkpoint = "last"
    config.update_from_flattened_dict(changes)
    return config


def task_of(config, folder=None):
    return tasks.REGISTRY[config.task](config, folder=folder)


def save_source(config, folder):
    """A run's folder with one checkpoint, of random parameters, which it returns by name."""
    task = task_of(config)
    workdir.claim(folder, config)
    task.save_assets(folder)
    run, draw = Run(task, config, folder), np.random.default_rng(0).normal
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
    check_source(config, folder)
    folder.mkdir(exist_ok=True)
    return config, task_of(config)


def loaded(config, folder, source, **changes):
    """The parameters with which such a run starts if its seed drew zeros, and its task."""
    config, task = task_from(config, folder, source, **changes)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), task.predictor.param_shapes())
    return named_leaves(jax.device_get(start_from(config, task.predictor, zeros, folder))), task


def started(config, folder, source, **changes):
    """The parameters before and after those of the source are loaded, and the task."""
    config, task = task_from(config, folder, source, **changes)
    run = Run(task, config, folder)
    fresh = run.fresh_state()
    state = run.start_state(fresh)
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
    start = records.read_start(tmp_path / "run" / records.START)
    assert start["loaded"] == start["parameters"] == sum(x.size for x in theirs.values())
    assert (start["folder"], start["steps"], start["frozen"]) == (str(source), [1], 0)
    said = caplog.records[-1].getMessage()
    assert f"starts from {source}, checkpoint 1: {start['loaded']:,} of" in said
    assert f"{TABLE}: {len(theirs[TABLE])} rows by piece, 0 new" in said


def test_a_start_from_the_same_weights_keeps_their_scores(translator, tmp_path):
    config, source, _ = translator
    place = tmp_path / "run" / records.START
    loaded(config, tmp_path / "run", source)
    scores = {"search": {}, "splits": {"test": {"loss": 1.0, "sentences": 3}}}
    write_json(place, records.read_start(place) | {"scores": scores})
    loaded(config, tmp_path / "run", source)
    assert records.read_start(place)["scores"] == scores
    loaded(config, tmp_path / "run", source, **{"train.init_pattern": "^encoder"})
    assert "scores" not in records.read_start(place)  # the control


def test_names_that_the_pattern_leaves_out_are_drawn_by_the_seed(translator, tmp_path):
    config, source, theirs = translator
    keys = {"train.init_pattern": "^encoder", "train.freeze": "embedding"}
    ours, _ = loaded(config, tmp_path / "run", source, **keys)
    for name in ours:
        expected = theirs[name] if name.startswith("encoder") else np.zeros_like(theirs[name])
        assert identical(ours[name], expected), name
    start = records.read_start(tmp_path / "run" / records.START)
    assert TABLE in start["new"]
    assert start["frozen"] == theirs[TABLE].size
    assert "decoder_layers_0" in (line := records.start_line(start))
    assert f"{theirs[TABLE].size:,} parameters frozen" in line


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
    ours, task = loaded(config, tmp_path / "run", source, **keys)
    old = table_rows(task_of(config).predictor, theirs_tree(theirs))[TABLE]
    new = table_rows(task.predictor, theirs_tree(ours))[TABLE]
    if initial == "new":
        assert new[: len(old)] != old
    else:
        assert new[: len(old)] == old
    assert (len(new) > len(old)) == (initial != "keep")
    for i, piece in enumerate(new):
        row = theirs[TABLE][old.index(piece)] if piece in old else np.zeros(8)
        np.testing.assert_array_equal(ours[TABLE][i], row)
    rows = records.read_start(tmp_path / "run" / records.START)["tables"][TABLE]
    assert rows["carried"] == len(set(new) & set(old))
    assert rows["new"] == len(set(new) - set(old))


def theirs_tree(flat):
    """Parameters by name as a tree."""
    tree = {}
    for name, x in flat.items():
        *modules, last = name.split("/")
        place = tree
        for module in modules:
            place = place.setdefault(module, {})
        place[last] = x
    return tree


def test_a_language_model_starts_from_another_with_a_vocabulary_that_grew(tmp_path):
    module, words = tiny_language_model, tiny_language_model.LINES * 10
    config = text_config(module, tmp_path / "old", words)
    theirs = save_source(config, tmp_path / "source")
    more = text_config(module, tmp_path / "new", [f"{line} three" for line in words])
    keys = {"tokenizer.initial": "grow"}
    ours, task = loaded(more, tmp_path / "run", tmp_path / "source", **keys)
    size = len(theirs[TABLE])
    np.testing.assert_array_equal(ours[TABLE][:size], theirs[TABLE])
    assert not ours[TABLE][size:].any()
    assert task.text.tokenizer.pieces(range(size, task.text.tokenizer.vocab_size)) == ["▁three"]


@pytest.mark.parametrize("architecture", ["transformer", "bag_of_embeddings"])
def test_a_classifier_of_other_classes_needs_a_new_output(architecture, tmp_path):
    keys = {"model.architecture": architecture, "model.bigram_buckets": 11}
    rows = tiny_classifier.ROWS
    config = text_config(tiny_classifier, tmp_path / "old", rows, **keys)
    theirs = save_source(config, tmp_path / "source")
    ours, _ = loaded(config, tmp_path / "same", tmp_path / "source")
    assert all(identical(ours[name], theirs[name]) for name in theirs)
    rows = [row.replace("good\t", "praise\t") for row in rows]
    other = text_config(tiny_classifier, tmp_path / "new", rows, **keys)
    says = r"its classes are bad, good, not bad, praise: .*init_pattern='\^\(\?!output/\)'"
    with pytest.raises(UserError, match=says):
        loaded(other, tmp_path / "run", tmp_path / "source")
    with pytest.raises(UserError, match=r"init_pattern='\^\(\?!output/\)\.\*\?\(\?:kernel\)'"):
        loaded(other, tmp_path / "run", tmp_path / "source", **{"train.init_pattern": "kernel"})
    keys = {"train.init_pattern": "^(?!output/)"}
    ours, _ = loaded(other, tmp_path / "run", tmp_path / "source", **keys)
    assert not ours["output/kernel"].any()
    table = next(name for name in ours if name.endswith("table"))
    assert identical(ours[table], theirs[table])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model.d_model": 16}, ("8 × 8 in that run", "that run has model.d_model=8 (here 16)")),
        (
            {"model.num_encoder_layers": 2},
            ("encoder_layers_1/", "absent in that run", "init_pattern='^(?!encoder_layers_1/)'"),
        ),
        ({"model.architecture": "recurrent"}, ("run of config.model.architecture=transformer",)),
        (
            {"tokenizer.joint": False, "model.tied_embeddings": "none"},
            ("config.tokenizer.joint=False", "has True: set config.tokenizer.joint=True"),
        ),
        (
            {"train.init_from": "/nowhere"},
            ("init_from=/nowhere does not exist: name the folder of a run",),
        ),
        ({"train.init_pattern": "encodr"}, ("train.init_pattern has 'encodr'", "encoder_layers")),
    ],
)
def test_a_run_that_does_not_fit_is_refused_in_one_line(translator, tmp_path, changes, says):
    config, source, _ = translator
    with pytest.raises(UserError) as error:
        loaded(config, tmp_path / "run", source, **changes)
    assert "\n" not in str(error.value)
    assert all(part in str(error.value) for part in says), error.value
    assert not (tmp_path / "run" / records.START).exists()


def test_a_run_that_does_not_fit_is_refused_before_it_is_there(translator, tmp_path):
    config, source, _ = translator
    for changes in ({"model.d_model": 16}, {"train.init_pattern": "encodr"}):
        with pytest.raises(UserError) as error:
            loaded(config, tmp_path / "run", source, **changes)
        own, task = task_from(config, tmp_path / "run", source, **changes)
        with pytest.raises(UserError) as earlier:
            check_fit(own, task.predictor)
        assert str(earlier.value) == str(error.value)
    own, task = task_from(config, tmp_path / "run", source)
    check_fit(own, task.predictor)  # the control


def test_what_a_model_may_have_otherwise_is_taken_and_other_settings_are_told(
    translator, tmp_path, caplog
):
    config, source, theirs = translator
    free = {"model.max_length": 20, "model.dropout_residual": 0.3, "train.label_smoothing": 0.0,
            "optimizer.learning_rate": 0.3}  # fmt: skip
    ours, _ = loaded(config, tmp_path / "a", source, **free)
    assert all(identical(ours[name], theirs[name]) for name in theirs)
    assert "trained with" not in caplog.text
    loaded(config, tmp_path / "b", source, **{"model.activation": "gelu"})
    assert "was trained with model.activation=relu (here gelu)" in caplog.text


def test_a_run_that_was_broken_off_goes_on_bit_for_bit_without_its_source(tmp_path):
    module, words, source = tiny_language_model, tiny_language_model.LINES * 10, tmp_path / "source"
    theirs = save_source(text_config(module, tmp_path / "old", words), source)
    config = text_config(
        module, tmp_path / "new", [f"{line} three" for line in words],
        **{"train.init_from": str(source), "tokenizer.initial": "grow", "train.steps": 4,
           "train.freeze": "layers", "train.ema_decay": 0.9, "train.evaluate_every": 2,
           "optimizer.name": "adamw", "optimizer.weight_decay": 0.1, "optimizer.clip_norm": 0.5,
           "train.learning_rate_factors": (("table", 0.5),), "model.dropout_residual": 0.2}
    )  # fmt: skip

    step = None

    def go_on(folder, stop=False):
        nonlocal step
        task = task_of(config, folder)
        workdir.claim(folder, config)
        task.save_assets(folder)
        trainer = Trainer([Run(task, config, folder)], None, step, snapshots=False)
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
    check_source(config, broken)
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
        check_source(config, tmp_path / "fresh")


# -- the command, the report and the folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


def test_the_command_refuses_before_any_text_is_read(tiny, tmp_path):
    arguments = f"--config={tiny.config}", f"--workdir={tmp_path / 'run'}"
    nowhere = f"--config.train.init_from={tmp_path / 'nowhere'}"
    says = (f"config.train.init_from={tmp_path}/nowhere does not exist", "name the folder of a run")
    refused(*arguments, nowhere, "--config.data.source=files", says=says)
    assert not (tmp_path / "run").exists()
    other = f"--config={tiny.config}", f"--workdir={tiny.workdir}", "--config.seed=3"
    refused(*other, says=(f"config.train.init_from={tiny.workdir} starts from its weights",))
    itself = f"--config.train.init_from={tiny.workdir}"
    refused(*other, itself, says=("is the folder of this run itself", "folder of its own"))
    narrow = f"--config.train.init_from={tiny.workdir}", "--config.model.d_model=8"
    refused(*arguments, *narrow, says=("in that run", "that run has model.d_model"))
    assert not (tmp_path / "run" / "config.json").exists()


def test_trials_of_a_sweep_are_refused_by_name(tiny, tmp_path):
    config = workdir.load_config(tiny.workdir)
    good = {"train.init_from": str(tiny.workdir)}
    assert plan_trial(config, good, 0, tmp_path).config.train.init_from == str(tiny.workdir)
    with pytest.raises(UserError, match=r"trial 4 of the sweep: .*nowhere does not exist"):
        plan_trial(config, {"train.init_from": "nowhere"}, 4, tmp_path)


def test_a_stranger_s_config_opens_no_other_folder_but_in_training_which_says_so(tmp_path):
    scope = {}
    exec(tiny_run.CONFIG, scope)
    config = scope["get_config"]()
    config.train.init_from = str(tmp_path / "secret")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    told = safety.describe_text(config, tmp_path / "run")
    assert f"reads {tmp_path}/secret, as {tmp_path}/run/config.json says" == told
    safety.forget_places(config, training=True)
    assert config.train.init_from
    safety.forget_places(config, training=False)
    assert config.train.init_from == ""
    (tmp_path / "run" / "checkpoints" / "5").mkdir(parents=True)
    assert safety.describe_text(config, tmp_path / "run") is None


def test_results_and_report_say_where_the_weights_came_from(tiny, tmp_path):
    start = {"folder": "/runs/old", "steps": [20, 40], "parameters": 1000, "loaded": 900,
             "frozen": 10, "new": ["output/kernel"],
             "tables": {TABLE: {"carried": 30, "new": 5}}}  # fmt: skip
    results = {**workdir.known_results(tiny.workdir), numbers.START: start}
    path = tmp_path / "results.json"
    write_json(path, results)
    [line] = [row[1] for row in numbers.cost_table(records.read_results(path), "tokens").rows
              if row[0] == "first weights"]  # fmt: skip
    assert line.startswith("starts from /runs/old, the mean of checkpoints 20, 40: 900 of 1,000")
    assert "30 rows by piece, 5 new; new: output/kernel; 10 parameters frozen" in line
    write_json(path, {**results, numbers.START: start | {"folder": 3}})
    with pytest.raises(UserError, match=r"init_from.folder is 3 instead of a string"):
        records.read_results(path)
    write_json(tmp_path / records.START, start | {"new": [1]})
    with pytest.raises(UserError, match=r"new.0 is 1 instead of a string"):
        records.read_start(tmp_path / records.START)


@pytest.mark.slow
@pytest.mark.parametrize("initial", ["keep", "grow", "new"])
def test_a_whole_run_starts_trains_and_is_scored(tiny, tmp_path, initial):
    config = workdir.load_config(tiny.workdir)
    config.update_from_flattened_dict(
        {"train.init_from": str(tiny.workdir), "tokenizer.initial": initial, "train.steps": 3,
         "data.cache_dir": str(tmp_path / "cache")}
    )  # fmt: skip
    assert train(config, tmp_path / "run") is None
    results = workdir.known_results(tmp_path / "run")
    assert results[numbers.START]["folder"] == str(tiny.workdir)
    first = records.first_scores(results[numbers.START])
    before = workdir.known_results(tiny.workdir)
    assert bool(first) == (results[numbers.START]["loaded"] == results["parameters"])
    own = before["validation"]["loss"]
    assert results["validation"]["loss"] < own + 0.05
    task = TranslationTask(config)
    untrained = task.init_params(jax.random.key(0))
    loss = task.evaluate(untrained, "validation", final=False)["loss"]
    assert loss > own + 0.1  # a control
    if initial == "keep":
        same = ("bleu", "chrf", "bleu_ci", "bleu_signature")
        assert [first["test"][name] for name in same] == [before["test"][name] for name in same]
        assert train(config, tmp_path / "run") is None
        assert workdir.known_results(tmp_path / "run") == results
    assert "starts from" in (tmp_path / "run" / "report.html").read_text("utf-8")
