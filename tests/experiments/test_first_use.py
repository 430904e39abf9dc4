"""What a new user meets first: devices, scored training pairs, tables, folders."""

import types

import numpy as np
import pytest

from configs import base
from experiments.process.process import exit_code
from log_lines import heard
from transformer.data.pairs import Pair
from transformer.data.parallel import training_pairs
from transformer.data.parallel.training_pairs import pair_hash
from transformer.inference.hypotheses import BLANK
from transformer.tasks import translation
from transformer.tasks.translation import TranslationTask


def test_a_device_that_is_not_there_ends_in_one_line(monkeypatch, capsys):
    fault = "raise RuntimeError('no backend')"
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    start = compile(fault, "jax/_src/xla_bridge.py", "exec")  # as jax.devices() raises it
    assert exit_code(lambda: exec(start), "", "") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: JAX_PLATFORMS=cuda finds no device here (no backend)")
    with pytest.raises(AssertionError):  # the control: an error of the program
        exit_code(lambda: exec(compile("assert False", "other.py", "exec")), "", "")


def test_scoring_pairs_of_the_training_text_warns_with_their_number(tmp_path, monkeypatch):
    config, tag = base.get_config(), "<2de>"
    config.data.corpora = ({"name": "a", "source_tag": tag},)
    hashes = np.sort(np.array([pair_hash("a b", "c d"), pair_hash("e", "f")], np.uint64))
    training_pairs.save_hashes(tmp_path, hashes, None)
    for name in ("cut_line", "Segmenter"):
        monkeypatch.setattr(translation, name, lambda *_, **__: None)
    predictor = types.SimpleNamespace(
        source_tokenizer=types.SimpleNamespace(encode=None), max_length=0
    )
    task = types.SimpleNamespace(config=config, predictor=predictor)
    pairs = [Pair(f"{tag} a b", "c d"), Pair(f"{tag} new", "neu")]
    with heard() as said:
        TranslationTask.make_given_text(task, tmp_path, pairs)
        TranslationTask.make_given_text(task, tmp_path, pairs[1:])  # the control
    assert ["trained on 1 of these 2 pairs (50.0%)" in line for line in said] == [True]


def test_translations_during_training_end_at_one_and_a_half_references_and_five_tokens():
    found = []

    class Words:
        def encode(self, texts):
            return [text.split() for text in texts]

    class Predictor:
        target_tokenizer = Words()

        def translate(self, variables, lines, *_, num_best: int, limits: list | None):
            found.append(limits)
            return [[BLANK] for _ in lines]

    text = translation.TranslationText({}, None)
    task = TranslationTask.__new__(TranslationTask)
    task.config, task.text, task.predictor = base.get_config(), text, Predictor()
    pairs = [Pair("x", "a b c d"), Pair("y", "a")]
    for final in (False, True):
        task._translate({}, pairs, final)
    assert found == [[11, 6], None]
