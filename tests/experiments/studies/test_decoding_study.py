"""Decoding is compared on the same weights, and differences of translations are counted.

Without the packages of requirements-peers.txt, what needs them is skipped.
"""

import dataclasses
import importlib.util

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from experiments.studies import decoding, many_runs, peers
from experiments.studies.command import exit_code
from experiments.studies.ctranslate2 import CTranslate2
from experiments.studies.decoding import Measured, Ours, Setting, System, measure, quality_rows
from experiments.studies.hugging_face import HuggingFace
from runs import toy_config
from tiny_models import TINY as FIELDS
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.inference import search
from transformer.inference.translator import Translator
from transformer.model.config import ModelConfig
from transformer.tasks.translation import TranslationTask
from transformer.workdir import TrainedRun

TINY = ModelConfig(**FIELDS)
PEERS = all(importlib.util.find_spec(name) for name in ("ctranslate2", "transformers", "torch"))
PAIRS = [Pair("a b", "b a", None), Pair("c d e", "e d c", None), Pair("b", "b", None)]


@pytest.mark.parametrize(
    ("key", "value"),
    [("positions", "rotary"), ("norm", "rms"), ("activation", "swiglu"), ("num_kv_heads", 1)],
)
def test_a_model_that_others_do_not_compute_is_refused(key, value):
    peers.check(TINY)
    with pytest.raises(UserError, match=f"model.{key}='?{value}'? cannot be compared"):
        peers.check(dataclasses.replace(TINY, **{key: value}))


def test_the_table_of_positions_is_that_of_the_paper():
    table = peers.position_table(dataclasses.replace(TINY, positions="sinusoidal"))
    assert table.shape == (TINY.max_length, TINY.d_model)
    angle = 3 / 10_000 ** (2 / TINY.d_model)
    np.testing.assert_allclose(table[3, 2:4], [np.sin(angle), np.cos(angle)], rtol=1e-5)


def test_a_missing_package_is_named_with_what_installs_it():
    with pytest.raises(UserError, match=r"no_such_package cannot .*requirements-peers\.txt"):
        peers.imported("no_such_package")


@pytest.mark.parametrize(
    ("run", "arguments"),
    [
        (decoding.run, ["--workdir=nothing", "--beams=1,x"]),
        (decoding.run, ["--workdir=nothing", "--batches=8,x"]),
        (many_runs.run, ["--runs=1,x"]),
    ],
)
def test_a_list_of_numbers_is_read_before_anything_is_loaded(run, arguments, capsys):
    assert exit_code(run, arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    flag, _, _ = arguments[-1].partition("=")
    assert f"{flag}: 'x' is not a whole number between 1 and 10,000" in line


def test_ours_has_the_programs_of_many_sentences(monkeypatch):
    monkeypatch.setattr(search, "MANY", 5000)
    run = TrainedRun(object.__new__(Translator), {})
    config = ConfigDict({"decode": {"length_penalty": "none", "alpha": 1.0}})
    measured = []
    for name, result in {
        **{"load_config": config, "load_trained": run, "peers_of": [], "check_scores": None},
        **{"systems_of": [], "quality_rows": [], "speed_row": ["1", "8"], "print_table": None},
    }.items():
        monkeypatch.setattr(decoding, name, lambda *_, result=result, **__: result)
    monkeypatch.setattr(decoding.held_out, "read_pairs", lambda *_: PAIRS)

    def measure(*_):
        measured.append(search.MANY)
        return Measured([], [[]])

    monkeypatch.setattr(decoding, "measure", measure)
    decoding.run(["--workdir=run", "--beams=1", "--batches=8"])
    assert measured == [0]


def test_systems_take_turns_after_ours_has_compiled():
    calls = []

    def system(name):
        def translate(setting, lines):
            calls.append((name, len(lines)))
            return [f"{name} {line}" for line in lines]

        return System(name, translate)

    lines = [str(i) for i in range(100)]
    found = measure([system(decoding.OURS), system("peer")], Setting(5, 2), lines, 2)
    turns = [(decoding.OURS, 50), ("peer", 50)]
    assert calls == [(decoding.OURS, 50), ("peer", 2), *turns, *turns]
    assert [len(speeds) for speeds in found.speeds] == [2, 2]
    assert found.texts[1][49] == "peer 49"


def test_other_translations_are_counted_with_the_side_that_scores_higher():
    known = {"x": -1.0, "y": -3.0, "z": -2.0}
    found = Measured([[1.0], [1.0]], [["x", "z", "z"], ["x", "y", "x"]])

    def score(sources, texts):
        return [known[text] for text in texts]

    _, row = quality_rows(score, 5, ["ours", "peer"], found, PAIRS)
    assert row[:2] == ["5", "peer"]
    assert row[3:] == ["2", "1", "1"]


@pytest.mark.skipif(not PEERS, reason="needs the packages of requirements-peers.txt")
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tied", ["all", "none"])
def test_peers_give_the_same_scores_and_translations(norm, tied, tmp_path):
    config = toy_config(
        tmp_path / "cache",
        **{"model.norm_position": norm, "model.tied_embeddings": tied},
    )
    config.decode.length_penalty = "average"
    task = TranslationTask(config)
    translator = task.predictor
    params = jax.tree.map(lambda x: 3 * x, jax.jit(translator.init_params)(jax.random.key(7)))
    run = TrainedRun(translator, {"params": params})
    others = [
        CTranslate2(translator, params, tmp_path / "model", "float32", 1, 1),
        HuggingFace(translator, params, 1),
    ]
    pairs = list(task.examples("validation", 5))
    decoding.check_scores(run, others, pairs)  # which raises if they differ
    lines = [pair.source for pair in pairs]
    ours = Ours(run, config.decode)(Setting(1, 2), lines)
    for system in decoding.systems_of(run, config.decode, others)[1:]:
        theirs = system.translate(Setting(1, 2), lines)
        # An untrained model writes on to the limit, which is our own.
        assert [text[: len(own)] for text, own in zip(theirs, ours, strict=True)] == ours
        assert len({*ours}) > 1
