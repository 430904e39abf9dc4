"""The command, the report and the folder of a run that starts from another's weights."""

import jax
import pytest

import tiny_run
from experiments.command import command as commands
from experiments.evaluate.run import train
from experiments.results import run_tables as tables
from experiments.sweep.trial_configs import plan_trial
from tiny_run import command, refused
from transformer.errors import UserError
from transformer.files import write_json
from transformer.runs import workdir
from transformer.runs.run import Run, known_results
from transformer.tasks.translation import TranslationTask

TABLE = "target_embedding/table"


def test_the_command_refuses_before_any_text_is_read(tiny, tmp_path):
    arguments = f"--config={tiny.config}", f"--workdir={tmp_path / 'run'}"
    nowhere = f"--config.train.init_from={tmp_path / 'nowhere'}"
    says = (f"config.train.init_from={tmp_path}/nowhere does not exist", "name the folder of a run")
    refused(*arguments, nowhere, "--config.data.source=files", says=says)
    assert not (tmp_path / "run").exists()
    other = f"--config={tiny.config}", f"--workdir={tiny.workdir}", "--config.seed=3"
    refused(*other, says=(f"config.train.init_from={tiny.workdir} starts from its weights",))
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
    told = commands.describe_text(Run(tmp_path / "run", config))
    assert f"reads {tmp_path}/secret, named in {tmp_path}/run/config.json" == told
    commands.forget_places(config, training=True)
    assert config.train.init_from
    commands.forget_places(config, training=False)
    assert config.train.init_from == ""
    (tmp_path / "run" / "checkpoints" / "5").mkdir(parents=True)
    assert commands.describe_text(Run(tmp_path / "run", config)) is None


@pytest.mark.slow
@pytest.mark.parametrize("initial", ["keep", "grow", "new"])
def test_a_whole_run_starts_trains_and_is_scored(tiny, tmp_path, initial):
    config = workdir.load_config(tiny.workdir)
    config.update_from_flattened_dict(
        {"train.init_from": str(tiny.workdir), "tokenizer.initial": initial, "train.steps": 3,
         "data.cache_dir": str(tmp_path / "cache")}
    )  # fmt: skip
    assert train(config, tmp_path / "run") is None
    results = known_results(tmp_path / "run")
    assert results[tables.START]["folder"] == str(tiny.workdir)
    initial_loss = known_results(tiny.workdir)["validation"]["loss"]
    assert results["validation"]["loss"] < initial_loss + 0.05
    task = TranslationTask(config)
    untrained = task.draw_params(jax.random.key(0))
    loss = task.evaluate(untrained, "validation", final=False)["loss"]
    assert loss > initial_loss + 0.1  # a control
    if initial == "keep":
        assert train(config, tmp_path / "run") is None
        assert known_results(tmp_path / "run") == results
    assert "starts from" in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_a_trained_run_is_used_without_the_name_of_its_source(tiny, tmp_path):
    copy = tiny.copy(tmp_path / "copy")
    config = workdir.load_config(copy)
    config.update_from_flattened_dict({"train.init_from": "/gone", "tokenizer.initial": "grow"})
    write_json(copy / "config.json", config.to_dict())
    ended = command("--mode=translate", f"--workdir={copy}", stdin=b"a b\n")
    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 1
