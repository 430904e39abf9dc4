"""Every config loads fast, has only base's keys, says how to run it, and describes a model."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from ml_collections import ConfigDict

from configs import base
from experiments.process.config import override
from experiments.results import run_tables as tables
from experiments.sweep.study import SAMPLERS
from places import ROOT
from tools import key_table
from transformer import checks as config
from transformer import tasks
from transformer.config import flatten
from transformer.config.keys import KEYS
from transformer.data.cleaning.rules import rules_of
from transformer.data.documents import sources as documents
from transformer.data.labelled import sources as labelled
from transformer.data.parallel import sources as parallel
from transformer.data.pictures import sources as pictures
from transformer.model import build, layers
from transformer.model import config as model_config
from transformer.model.classifier import BAG, POOLINGS
from transformer.model.config import ModelConfig
from transformer.model.positions import registry as positions
from transformer.model.recurrent import attention, cells
from transformer.tasks.base import model_fields

FILES = sorted(path for path in (ROOT / "configs").glob("*.py") if path.stem != "__init__")


# What may stand after the colon, besides nothing.
ARGUMENTS = {
    **{"imdb": ["bigrams"], "own_text": ["hour"], "tatoeba": ["deu"], "ted_ru_en": ["files"]},
    **{"mnist": ["digits"], "scenes_vqa": ["text_only", "bag_of_patches", "cnn_lstm"]},
}


def load(path: Path, *arguments: str) -> ConfigDict:
    return importlib.import_module(f"configs.{path.stem}").get_config(*arguments)


def flat_types(config: ConfigDict) -> dict[str, type]:
    types = {}
    for key, value in config.items():
        if isinstance(value, ConfigDict):
            types |= {f"{key}.{inner}": kind for inner, kind in flat_types(value).items()}
        else:
            types[key] = type(value)
    return types


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
    assert flat_types(config) == flat_types(usual)
    assert config.is_locked
    assert config.name == path.stem
    if path.stem != "base":
        assert config.to_dict() | {"name": "base"} != usual.to_dict()
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert f"python launch.py --config=configs/{path.name} --workdir=" in text
        assert text.split("\n")[0].endswith(".")
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


# The names that a key may have, of the keys whose comment lists them.
IN_TABLES = ("task", "data.fetch", "evaluate.moses")  # whose choices the comment does not list
CHOICES = {
    **{k: set(config.choices_of(k)) for k, a in KEYS.items() if a.choices and k not in IN_TABLES},
    "model.architecture": {*build.REGISTRY, BAG},
    "model.pooling": set(POOLINGS),
    "model.cell": set(cells.REGISTRY),
    "model.recurrent_attention": set(attention.REGISTRY),
    "model.activation": set(layers.ACTIVATIONS),
    "model.matmul_dtype": set(model_config.DTYPES),
    "model.positions": set(positions.REGISTRY),
    "data.source": {
        *("any", *parallel.REGISTRY, *labelled.REGISTRY, *documents.REGISTRY, *pictures.REGISTRY),
    },
    "sweep.search": {"grid", *SAMPLERS},
}


def listed(comment: str) -> set[str]:
    """The first word of each part of `a (Source) | b: explained | c`, up to a semicolon."""
    plain = re.sub(r"\(.*?\)|\[.*?\]", "", comment)
    lists = [clause.split("|") for clause in plain.split(";") if "|" in clause]
    return {re.findall(r"\w+", part)[0] for parts in lists for part in parts}


def test_a_comment_lists_the_choices_that_there_are():
    lists = {}
    for key, comment, above, _ in key_table.comments():
        if names := listed(comment) or listed(above):
            lists[key] = names
    names = {"auto", "ja", "ko", *sacrebleu.BLEU.TOKENIZERS}
    assert lists.pop("evaluate.sacrebleu_tokenizer") <= names
    assert set(config.choices_of("sweep.search")) == {"grid", *SAMPLERS}
    assert lists == CHOICES


@pytest.mark.full
def test_the_page_of_variants_lists_the_choices_that_there_are():
    page = (ROOT / "docs/sweeps.md").read_text()
    keys = {key.split(".")[-1] for key in flat_types(base.get_config())}
    rows = re.findall(r"^\| `model\..*", page, re.MULTILINE)
    assert any("`alibi`" in row for row in rows)  # a control
    for row in rows:
        _, chosen, names, _ = row.split("|")
        of_keys = (CHOICES.get(f"model.{key}", set()) for key in re.findall(r"\w+", chosen))
        told = {part for name in re.findall(r"`(.+?)`", names) for part in name.split("+")}
        assert (told - keys) | {"none"} == set().union({"none"}, *of_keys), chosen
    assert set(re.findall(r"`(?:--config.sweep.search=)?(\w+)`", page)) >= set(SAMPLERS)


@pytest.mark.parametrize(
    ("text", "languages"),
    [("en,de", ("en", "de")), ("en,", ("en", "")), (",de", ("", "de")), ("('en', '')", ("en", ""))],
)
def test_one_of_two_languages_may_be_empty_on_the_command_line(text, languages):
    experiment = base.get_config()
    override(experiment, "data.languages", text)
    assert experiment.data.languages == languages
    assert rules_of(experiment.data).languages == languages
    again = base.get_config()  # by the command that the report prints
    override(again, "data.languages", tables._as_flag(list(languages)))
    assert again.data.languages == languages
