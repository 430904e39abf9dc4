"""A wrong key, value or config file ends in one line that names it, before anything is written."""

import pytest

from configs import base
from experiments.process.config import override, read_experiment
from tiny_run import refused
from transformer.checks import check
from transformer.config import assign, flatten, set_value
from transformer.config.keys import KEYS
from transformer.errors import UserError


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("model.num_head=4", ("config.model.num_head:", "did you mean config.model.num_heads?")),
        ("model.num_heads=four", ("'four'", "int")),
        ("train.epochs=nan", ("config.train.epochs=nan", "from 0")),
        ("decode.num_best=5", ("num_best=5", "beam_size=4", "raise config.decode.beam_size")),
        ("task=language_model decode.search=beam decode.num_best=5", ("num_best=5", "beam_size=4")),
        ("task=language_model decode.search=mbr", ("search=mbr", "set sample or beam")),
        ("decode.beam_groups=3", ("beam_groups=3", "set config.decode.beam_size to a multiple")),
        ("decode.beam_groups=2 decode.search=sample", ("beam_groups=2", "decode.search=beam")),
        (
            "model.architecture=recurrent model.num_encoder_layers=0",
            ("num_encoder_layers=0", "config.model.num_encoder_layers"),
        ),
        ("train.best_metric=ter", ("'ter'", "bleu")),
        ("train.init_pattern=^encoder", ("'^encoder'", "set config.train.init_from")),
        ("tokenizer.initial=grow", ("tokenizer.initial=grow", "set config.train.init_from")),
        ("data.test_size=0", ("test set is empty", "set config.data.test_size")),
        (
            "model.max_length=5 model.positions=learned",
            ("max_length=5", "set config.model.max_length=13"),
        ),
    ],
)
def test_a_wrong_key_or_value_is_named_before_anything_is_written(refuse, argument, says):
    refuse(*(f"--config.{part}" for part in argument.split()), says=says)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("num_heads=3", "num_heads=3"),
        ("architecture=bag_of_embeddings", "model.architecture=bag_of_embeddings"),
        ("num_heads=2", "/nowhere"),  # a control
    ],
)
def test_a_model_that_cannot_be_is_refused_before_the_text_is_read(refuse, model, says):
    text = ("--config.data.source=files", "--config.data.path=/nowhere")
    refuse(*text, f"--config.model.{model}", says=says)


def test_every_number_of_the_config_has_one_range():
    numbers = [
        key
        for key, value in flatten(base.get_config()).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    assert {key for key, about in KEYS.items() if about.range} == {*numbers}


@pytest.mark.parametrize("key", KEYS)
def test_each_key_refuses_what_it_cannot_be(key):
    about, kind = KEYS[key], type(KEYS[key].default)
    ends = [about.range[0] - 1, about.range[1] + 1] if about.range else []
    wrong = [kind(end) for end in ends if end < float("inf")] + ["zzz"] * bool(about.choices)
    for value in wrong:
        config = base.get_config()
        set_value(config, key, value)
        with pytest.raises(UserError, match=rf"^config\.{key}='?{value}'? is (out of|unknown)"):
            check(config)
    with pytest.raises(UserError, match=rf"^config\.{key}=None must be of type "):
        assign(base.get_config(), key, None)


def test_pages_of_configs_are_found_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_experiment("configs/quickstart.py").config.name == "quickstart"
    assert read_experiment("configs/imdb.py:bigrams").config.model.bigram_buckets > 0
    assert read_experiment("configs/sweeps/heads.py").is_sweep
    with pytest.raises(UserError, match="is not a file: configs/ holds"):
        read_experiment("configs/none.py")
    (tmp_path / "configs").mkdir()
    own = "from configs import own_text\nget_config = own_text.get_config\n"
    (tmp_path / "configs" / "quickstart.py").write_text(own)
    assert read_experiment("configs/quickstart.py").config.name == "own_text"


def test_an_override_has_the_type_of_its_key():
    config = base.get_config()
    for key, text in [
        ("model.num_heads", "4"),
        ("train.epochs", "3"),
        ("tokenizer.joint", "False"),
        ("data.source_field", "3"),
        ("data.tfds_fields", "('ru', en)"),
        ("data.languages", "en,"),
        ("data.path", "a=b"),
    ]:
        override(config, key, text)
    assert config.model.num_heads == 4
    assert (config.train.epochs, type(config.train.epochs)) == (3.0, float)
    assert config.tokenizer.joint is False
    assert config.data.source_field == "3"
    assert config.data.tfds_fields == ("ru", "en")
    assert config.data.languages == ("en", "")
    assert config.data.path == "a=b"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def get_config():\n  return nope\n", ("NameError", "'nope'")),
        ("def get_config():\n  return {}\n", ("dict", "return default_config()")),
        ("c.model.num_head = 4", ("num_head", 'Did you mean "num_heads"')),
        ("c.unlock(); c.model.num_head = 4", "did you mean config.model.num_heads?"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_named_with_the_reason(tmp_path, text, says):
    if text.startswith("c."):
        lines = ["from configs import base", "def get_config():", "  c = base.get_config()"]
        text = "\n".join([*lines, f"  {text}", "  return c", ""])
    path = tmp_path / "mine.py"
    path.write_text(text)
    says = (says,) if isinstance(says, str) else says
    ended = refused(f"--config={path}", f"--workdir={tmp_path / 'w'}", says=(str(path), *says))
    assert len(ended.err.splitlines()) == 1
    assert "Other fields" not in ended.err
    assert not (tmp_path / "w").exists()
