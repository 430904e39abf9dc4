"""The recipe "size" sets keys by the number of pairs, never those of the user, and only once."""

import itertools
import json
import re

import pytest

from configs import base, own_labels, own_text
from configs.recipes import labels
from configs.recipes.size import ROWS
from experiments.process import recipe
from experiments.sweep.trial_configs import plan_trials
from places import ROOT
from tiny_run import command, refused
from transformer.checks import check
from transformer.config import assign, flatten
from transformer.data.parallel import sources
from transformer.errors import UserError
from transformer.files import write_json

PAGE = ROOT / "configs/own_text.py"


def write_pairs(folder, count, name="train"):
    for side, word in (("en", "cat"), ("de", "Katze")):
        lines = [f"{word} {i}" for i in range(count)]
        (folder / f"{name}.{side}").write_text("\n".join(lines) + "\n")


@pytest.fixture
def text(tmp_path):
    """A folder with 8 training pairs after 1,000 that are held out."""
    write_pairs(tmp_path, 1008)
    return tmp_path


def config_of(text, **changes):
    config = own_text.get_config()
    config.update_from_flattened_dict({"data.path": str(text), **changes})
    return config


# By hand: the square root of the product of neighbours, rounded down, is the last of the smaller.
@pytest.mark.parametrize(("last", "row"), [(1_732, 1_000), (17_320, 10_000), (447_213, 200_000)])
def test_a_corpus_takes_the_row_that_is_nearest_in_the_logarithm(last, row):
    rows = [*ROWS]
    assert recipe.nearest_row(last) == row
    assert recipe.nearest_row(last + 1) == rows[rows.index(row) + 1]
    assert recipe.nearest_row(1) == 1_000
    assert recipe.nearest_row(10**9) == 5_000_000


@pytest.mark.parametrize(
    ("page", "table", "row"),
    [(page, t, row) for page, t, _ in recipe.REGISTRY.values() for row in t.ROWS],
)
def test_a_row_describes_a_model_that_can_be(page, table, row):
    config = page.get_config()
    for key, value in recipe.settings_of(row, table).items():
        assign(config, key, value)
    check(config, "model")
    assert config.data.max_tokens <= config.data.batch_tokens


def test_pairs_are_counted_without_those_that_are_held_out(text):
    assert sources.count_train(config_of(text).data) == 8
    write_pairs(text, 3, "test")
    files = {"data.test_source": "test.en", "data.test_target": "test.de"}
    assert sources.count_train(config_of(text, **files).data) == 508


# By hand: a tenth of 1,199 is 119, whose first digit stands for 100; a tenth of 7 is none.
@pytest.mark.parametrize(("pairs", "size"), [(1_199, 100), (5_000, 500), (7, 1)])
def test_a_fifth_of_a_small_text_is_held_out_at_most_unless_the_user_says_more(
    text, said, pairs, size
):
    write_pairs(text, pairs)
    config = config_of(text)
    recipe.apply(config, ())
    assert (config.data.validation_size, config.data.test_size) == (size, size)
    line = f"held out of {pairs:,} examples: data.validation_size={size} data.test_size={size}"
    assert any(own.startswith(line) for own in said)
    config = config_of(text, **{"data.test_size": 2})
    recipe.apply(config, ["data.test_size"])
    assert (config.data.validation_size, config.data.test_size) == (size, 2)


def test_the_row_is_set_and_told_with_its_reason(text, said):
    config = config_of(text)
    recipe.apply(config, ())
    sizes = {"data.validation_size": 100, "data.test_size": 100}
    expected = flatten(config_of(text)) | recipe.settings_of(1_000) | sizes
    assert flatten(config) == expected
    line = said[1]
    assert "recipe for 808 training pairs (1 to 1,732): " in line
    assert "Sennrich and Zhang 2019" in line
    assert "model.d_model=128" in line


def test_keys_of_the_user_win(text, said):
    # One that the command line sets to what the page has anyway, and one that a file changes.
    config = config_of(text, **{"tokenizer.vocab_size": 500})
    recipe.apply(config, ["model.d_model", "data.path"])
    assert (config.model.d_model, config.tokenizer.vocab_size) == (256, 500)
    assert config.model.d_ff == recipe.settings_of(1_000)["model.d_ff"] == 256
    assert said[2] == "your own: model.d_model=256 tokenizer.vocab_size=500"
    assert "model.d_model" not in said[1]


def test_without_a_recipe_nothing_is_read_or_set(said):
    config = config_of("/nowhere", recipe="none")
    recipe.apply(config, ())
    assert flatten(config) == flatten(config_of("/nowhere", recipe="none"))
    assert said == []
    assert base.get_config().recipe == "none"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("recipe", "sizes", "config.recipe='sizes' is unknown: choose one of none, size"),
        ("task", "language_model", "not for task=language_model"),
        ("data.source", "grammar", "data.source=grammar: set config.recipe=none"),
        ("data.train_source", "nope", "nope is not a file"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(text, key, value, says):
    with pytest.raises(UserError, match=re.escape(says)):
        recipe.apply(config_of(text, **{key: value}), ())


@pytest.fixture
def start(text, monkeypatch):
    """Starts a training up to its run's folder; returns the config that it would train."""
    seen = []

    def train(run, processes):
        run.claim()
        seen.append(flatten(run.config))

    monkeypatch.setattr("experiments.evaluate.run.train", train)

    def run(*arguments):
        ended = command(f"--workdir={text / 'run'}", *arguments)
        assert ended.code == 0, ended
        return seen[-1]

    return run


def flags_of(text):
    names = (f"--config.data.train_{s}=train.{e}" for s, e in (("source", "en"), ("target", "de")))
    return [f"--config={PAGE}", f"--config.data.path={text}", *names]


def test_a_run_resumes_with_its_config_or_by_its_folder_alone(text, start):
    own = "--config.model.d_ff=48"
    first = start(*flags_of(text), own)
    assert (first["recipe"], first["model.d_ff"], first["model.d_model"]) == ("size", 48, 128)
    assert start(*flags_of(text), own) == first
    write_pairs(text, 4000)  # its row is another one
    assert start() == first
    says = "num_encoder_layers (there 2, here 3)", "config.recipe=size counts", "without a config"
    refused(f"--workdir={text / 'run'}", *flags_of(text), own, says=says)


def test_other_modes_take_the_values_of_the_run_and_need_no_text(text, start):
    start(*flags_of(text))
    mode = ("--mode=translate", f"--workdir={text / 'run'}", *flags_of("/nowhere"))
    ended = refused(*mode, says="tokenizer")  # the next file that is missing
    assert "another config" not in ended.err
    ended = refused(*mode, "--config.model.d_ff=48", says="model.d_ff (there 256, here 48)")


def test_a_run_that_starts_from_another_has_its_structure_and_the_rest_of_the_row(text):
    changes = {"model.d_model": 72, "model.dropout_residual": 0.7}
    other = config_of(text, **changes, **{"tokenizer.placeholders": False})
    (text / "other").mkdir()
    write_json(text / "other/config.json", other.to_dict())
    config = config_of(text, **{"train.init_from": str(text / "other")})
    recipe.apply(config, [])
    assert (config.model.d_model, config.model.dropout_residual) == (72, 0.3)
    assert not config.tokenizer.placeholders  # which the vocabulary that is kept lacks
    recipe.apply(control := config_of(text), [])
    assert (control.model.d_model, control.tokenizer.placeholders) == (128, True)


def test_each_trial_of_a_sweep_has_the_row_of_its_text(text):
    write_pairs(text, 4100, "other")
    names = {"data.train_source": "other.en", "data.train_target": "other.de"}
    trials = [{}, names, {"recipe": "none"}, {**names, "model.d_ff": 72}]
    planned = [trial.config for trial in plan_trials(config_of(text), trials, text / "sweep")]
    small, large = recipe.settings_of(1_000), recipe.settings_of(3_000)
    layers = [config.model.num_encoder_layers for config in planned]
    assert layers == [2, 3, 3, 3]
    assert small["model.num_encoder_layers"] == 2 != large["model.num_encoder_layers"]
    assert [config.model.d_ff for config in planned] == [256, 256, 1024, 72]


def labelled(text, **changes):
    """A config of labelled texts with the recipe; 300 rows, of the test set two of its own."""
    rows = "".join(f'{"ab"[i % 2]};"A review; the {i}th of it";{i}\n' for i in range(300))
    (text / "train.csv").write_text(rows)
    config = own_labels.get_config()
    config.update_from_flattened_dict({"data.path": str(text / "train.csv"), **changes})
    return config


def test_the_recipe_of_labels_sets_columns_sizes_and_length_by_the_texts(text, said):
    config = labelled(text)
    recipe.apply(config, ())
    columns = {"data.text_field": "1", "data.label_field": "0"}
    sizes = {"data.validation_size": 30, "data.test_size": 30}
    row = recipe.settings_of(300, labels)
    assert flatten(config) == flatten(labelled(text)) | row | columns | sizes
    held_out = "data.validation_size=30 data.test_size=30 (10.0% and 10.0%)"
    assert said[0] == f"held out of 300 examples: {held_out}"
    assert "recipe for 240 training texts (1 to 547): the mean of embeddings" in said[1]
    assert "(configs/recipes/labels.py): " in said[1]
    assert "data.text_field=1 data.label_field=0" in said[1]


def test_what_the_user_sets_of_labels_stays_and_a_test_set_is_not_held_out(text, said):
    own = {"data.text_field": "1,2", "data.label_field": "0"}
    config = labelled(text, **{"data.path": str(text), **own})
    (text / "test.csv").write_text('a;"x y";1\nb;z;2\n')
    recipe.apply(config, ["train.epochs"])
    assert (config.data.text_field, config.data.label_field) == ("1,2", "0")
    assert config.train.epochs == own_labels.get_config().train.epochs
    assert said[0] == "held out of 300 examples: data.validation_size=30 (10.0%)"
    assert "recipe for 270 training texts" in said[1]


@pytest.mark.full
def test_the_first_command_trains_a_folder_of_texts_and_scores_another(tmp_path):
    for i in range(400):
        label = ("pos", "neg")[i % 2]
        file = tmp_path / f"texts/{'train' if i < 320 else 'test'}/{label}/{i}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"The {i}th film is {('a delight', 'so dull')[i % 2]} {i * 7919 % 1009}")
    flags = f"--config={ROOT / 'configs/own_labels.py'}", f"--config.data.path={tmp_path / 'texts'}"
    small = "--config.tokenizer.vocab_size=400", "--config.train.epochs=30"
    run = f"--workdir={tmp_path / 'run'}"
    ended = command(*flags, *small, run, "--config.data.num_buckets=1")
    assert ended.code == 0, ended.err
    scores = json.loads((tmp_path / "run/results.json").read_text())["test"]
    assert scores["auc"] > 0.8
    assert (tmp_path / "run/figures/roc.png").exists()
    page = (tmp_path / "run/report.html").read_text()
    assert "ROC curves of the test set" in page
    assert "AUC (%)" in page
    assert command(run, "--mode=evaluate", f"--input={tmp_path / 'texts/test'}").code == 0
    again = json.loads((tmp_path / "run/evaluations/test/results.json").read_text())
    assert again["test"]["auc"] == pytest.approx(scores["auc"])


@pytest.mark.full
def test_the_page_of_own_text_has_the_rows():
    lines = (ROOT / "docs/own_text.md").read_text().splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("| row |"))) + 2 :]
    rows = itertools.takewhile(lambda line: line.startswith("|"), table)
    found = [[cell.strip() for cell in row.split("|")[1:11]] for row in rows]
    expected = []
    for row in ROWS:
        setting, (_, most) = recipe.settings_of(row), recipe.bounds(row)
        update = setting["data.batch_tokens"] * setting["optimizer.gradient_accumulation_steps"]
        numbers = [setting[f"model.{key}"] for key in ("d_model", "d_ff", "num_heads")]
        layers = "+".join(str(setting[f"model.num_{s}_layers"]) for s in ("encoder", "decoder"))
        pairs = "more" if row == max(ROWS) else f"{'up ' * (row == min(ROWS))}to {most:,}"
        others = [setting["tokenizer.vocab_size"], update, setting["train.epochs"]]
        dropout = str(setting["model.dropout_residual"])
        sizes = [*(f"{n:,}" for n in numbers), layers, dropout, *(f"{n:,}" for n in others)]
        expected.append([f"{row:,}", pairs, *sizes])
    assert found == expected
