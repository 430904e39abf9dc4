"""Every config loads fast, has only base's keys, says how to run it, and describes a model."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from configs import base
from places import ROOT
from tools import key_table
from transformer import tasks
from transformer.checks import check
from transformer.config import flatten
from transformer.config.keys import KEYS
from transformer.model.classifier import BAG
from transformer.model.config import ModelConfig
from transformer.tasks.base import model_fields

FILES = sorted(path for path in (ROOT / "configs").glob("*.py") if path.stem != "__init__")


# What may stand after the colon, besides nothing.
ARGUMENTS = {
    **{"imdb": ["bigrams"], "own_text": ["hour"], "tatoeba": ["deu"], "ted_ru_en": ["files"]},
    **{"mnist": ["digits"], "scenes_vqa": ["text_only", "bag_of_patches", "cnn_lstm"]},
}


def load(path: Path, *arguments: str) -> ConfigDict:
    return importlib.import_module(f"configs.{path.stem}").get_config(*arguments)


def types_of(config: ConfigDict) -> dict[str, type]:
    return {key: type(value) for key, value in flatten(config).items()}


@pytest.mark.full
def test_all_configs_load_in_milliseconds_and_without_jax():
    # In one process, after ml_collections: what is ours is what is measured.
    code = (
        "import sys, time, importlib, ml_collections\n"
        "for name in sys.argv[1:]:\n"
        "    start = time.process_time()\n"
        "    importlib.import_module(f'configs.{name}').get_config()\n"
        "    assert time.process_time() - start < 0.1, name\n"
        "assert not {'jax', 'flax', 'numpy'} & set(sys.modules), sys.modules\n"
        "import jax\n"
        "assert 'jax' in sys.modules\n"
    )
    names = [path.stem for path in FILES]
    subprocess.run([sys.executable, "-c", code, *names], cwd=ROOT, env={**os.environ}, check=True)


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        (path, [each] if each else [])
        for path in FILES
        for each in ["", *ARGUMENTS.get(path.stem, [])]
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "".join(value),
)
def test_a_config_has_the_keys_of_base_gives_its_command_and_describes_a_model(path, arguments):
    config, usual = load(path, *arguments), base.get_config()
    assert types_of(config) == types_of(usual)
    assert config.is_locked
    assert config.name == path.stem
    if path.stem != "base":
        assert config.to_dict() | {"name": "base"} != usual.to_dict()
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert f"python launch.py --config=configs/{path.name} --workdir=" in text
        assert text.split("\n")[0].endswith(".")
    check(config)
    tasks.REGISTRY[config.task].without_text(config).check_model()
    if config.model.architecture == BAG or config.model.patch_size:
        return
    size = config.tokenizer.vocab_size
    # Vocabularies of two languages seldom have one size.
    other = size if config.tokenizer.joint else size - 1
    sizes = {"source_vocab_size": size, "target_vocab_size": other}
    model = ModelConfig(**sizes, **model_fields(config.model))
    assert model.head_width * config.model.num_heads == config.model.d_model
    assert config.data.max_tokens <= config.model.max_length


def test_every_key_is_explained_by_a_comment():
    comments = {key: own or last for key, own, _, last in key_table.comments()}
    assert comments.keys() == KEYS.keys() == flatten(base.get_config()).keys()
    assert all(comments.values())
