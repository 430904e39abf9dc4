"""The recipe "size" sets keys by the number of pairs, never those of the user, and only once."""

import pytest

from configs import own_labels, own_text
from configs.recipes import labels
from experiments.process import recipe
from experiments.sweep.trial_configs import plan_trials
from places import ROOT
from tiny_run import command, refused
from transformer.checks import check
from transformer.config import assign, flatten
from transformer.errors import UserError
from transformer.files import write_json

PAGE = ROOT / "configs/own_text.py"


def write_pairs(folder, count, name="train"):
    for side, word in (("en", "cat"), ("de", "Katze")):
        lines = [f"{word} {i}" for i in range(count)]
        (folder / f"{name}.{side}").write_text("\n".join(lines) + "\n")


@pytest.fixture
def text(tmp_path):
    """A folder with 808 training pairs after 200 that are held out."""
    write_pairs(tmp_path, 1008)
    return tmp_path


def config_of(text, **changes):
    config = own_text.get_config()
    config.update_from_flattened_dict({"data.path": str(text), **changes})
    return config


def test_a_corpus_takes_the_row_that_is_nearest_in_the_logarithm():
    # By hand: the square root of the product of neighbours is between the last two.
    counts = {1: 1_000, 1_732: 1_000, 1_733: 3_000, 447_213: 200_000, 447_214: 1_000_000}
    counts[10**9] = 5_000_000
    assert {count: recipe.nearest_row(count) for count in counts} == counts


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


# By hand: a tenth of 1,199 is 119, whose first digit stands for 100; a tenth of 7 is none.
@pytest.mark.parametrize(("pairs", "size"), [(1_199, 100), (7, 1)])
def test_a_fifth_of_a_small_text_is_held_out_at_most_unless_the_user_says_more(text, pairs, size):
    write_pairs(text, pairs)
    config = config_of(text)
    recipe.apply(config, ())
    assert (config.data.validation_size, config.data.test_size) == (size, size)
    config = config_of(text, **{"data.test_size": 2})
    recipe.apply(config, ["data.test_size"])
    assert (config.data.validation_size, config.data.test_size) == (size, 2)


def test_the_row_is_set_but_for_keys_of_the_user_and_told_with_its_reason(text, said):
    # One that the command line sets to what the page has anyway, and one that a file changes.
    own = {"tokenizer.vocab_size": 500}
    config = config_of(text, **own)
    recipe.apply(config, ["model.d_model", "data.path"])
    own["model.d_model"] = own_text.get_config().model.d_model
    sizes = {"data.validation_size": 100, "data.test_size": 100}
    expected = flatten(config_of(text)) | recipe.settings_of(1_000) | sizes | own
    assert flatten(config) == expected
    assert "recipe for 808 training pairs: " in said[1]
    assert "Sennrich and Zhang 2019" in said[1]
    assert "model.d_ff=256" in said[1]
    assert "model.d_model" not in said[1]
    assert said[2] == "your own: model.d_model=256 tokenizer.vocab_size=500"


def test_a_recipe_for_generated_text_is_refused(text):
    with pytest.raises(UserError, match=r"data\.source=grammar: set config\.recipe=none"):
        recipe.apply(config_of(text, **{"data.source": "grammar"}), ())


def test_a_run_keeps_its_row_when_it_resumes_and_in_other_modes(text, monkeypatch):
    configs = []

    def start(run, processes):
        run.claim()
        configs.append(flatten(run.config))

    monkeypatch.setattr("experiments.evaluate.run.train", start)
    names = (f"--config.data.train_{s}=train.{e}" for s, e in (("source", "en"), ("target", "de")))
    run = f"--workdir={text / 'run'}"
    own = [f"--config={PAGE}", *names, f"--config.data.path={text}", "--config.model.d_ff=48"]
    assert command(run, *own).code == 0
    write_pairs(text, 4000)  # its row is another one
    assert command(run).code == 0
    assert configs[0] == configs[1]
    assert configs[0]["model.d_ff"] == 48
    refused(run, *own, says=("num_encoder_layers (there 2, here 3)", "without a config"))
    own.append("--config.data.path=/nowhere")
    ended = refused(run, "--mode=translate", *own, says="tokenizer")  # the next missing file
    assert "another config" not in ended.err


def test_a_run_that_starts_from_another_has_its_structure_and_the_rest_of_the_row(text):
    changes = {"model.d_model": 72, "model.dropout_residual": 0.7}
    other = config_of(text, **changes, **{"tokenizer.placeholders": False})
    (text / "other").mkdir()
    write_json(text / "other/config.json", other.to_dict())
    config = config_of(text, **{"train.init_from": str(text / "other")})
    recipe.apply(config, [])
    assert (config.model.d_model, config.model.dropout_residual) == (72, 0.3)
    assert not config.tokenizer.placeholders  # the vocabulary of the other run has none


def test_each_trial_of_a_sweep_has_the_row_of_its_text(text):
    write_pairs(text, 4100, "other")
    names = {"data.train_source": "other.en", "data.train_target": "other.de"}
    trials = [{}, names, {"recipe": "none"}, {**names, "model.d_ff": 72}]
    planned = [trial.config for trial in plan_trials(config_of(text), trials, text / "sweep")]
    assert [config.model.num_encoder_layers for config in planned] == [2, 3, 3, 3]
    assert [config.model.d_ff for config in planned] == [256, 256, 1024, 72]


def test_the_recipe_of_labels_sets_columns_sizes_and_length_by_the_texts(text, said):
    rows = "".join(f'{"ab"[i % 2]};"A review; the {i}th of it";{i}\n' for i in range(300))
    (text / "train.csv").write_text(rows)
    config = own_labels.get_config()
    config.data.path = str(text / "train.csv")
    before = flatten(config)
    recipe.apply(config, ())
    columns = {"data.text_field": "1", "data.label_field": "0"}
    sizes = {"data.validation_size": 30, "data.test_size": 30}
    assert flatten(config) == before | recipe.settings_of(300, labels) | columns | sizes
    assert "recipe for 240 training texts: the mean of embeddings" in said[1]
