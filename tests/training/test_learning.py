"""A translator learns, from the command line to the score: a toy language, and the quickstart's."""

import json
import subprocess
import sys

import jax
import pytest

from places import ROOT
from tiny_run import command, without_pictures
from transformer.runs.workdir import load_config
from transformer.tasks.translation import TranslationTask

# Sequences of letters become themselves backwards, which takes attention and positions.
CONFIG = """
from configs import base

def get_config():
    config = base.get_config()
    config.model.d_model = 32
    config.model.d_ff = 64
    config.model.num_heads = 2
    config.model.num_encoder_layers = 1
    config.model.num_decoder_layers = 1
    config.model.norm_position = "pre"
    config.model.max_length = 16
    config.model.dropout_embedding = 0.0
    config.model.dropout_residual = 0.0
    config.data.source = "reverse"
    config.data.train_size = 4000
    config.data.validation_size = 20
    config.data.test_size = 100
    config.data.batch_tokens = 1024
    config.data.num_buckets = 1
    config.data.cache_dir = "CACHE"
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 30
    config.optimizer.schedule = "cosine"
    config.optimizer.learning_rate = 1e-2
    config.optimizer.warmup_steps = 50
    config.train.steps = 400
    config.train.label_smoothing = 0.0
    config.train.log_every = 100
    config.train.evaluate_every = 400
    config.decode.beam_size = 1
    config.decode.batch_size = 50
    config.decode.max_extra = 5
    config.evaluate.bootstrap = 0
    config.evaluate.snapshot_sentences = 0
    config.evaluate.snapshot_statistics = 0
    return config
"""


def bleu(folder) -> float:
    return json.loads((folder / "results.json").read_text())["test"]["bleu"]


@pytest.mark.full
def test_a_translator_learns_a_toy_language_and_knows_nothing_of_it_before(tmp_path):
    (tmp_path / "config.py").write_text(CONFIG.replace("CACHE", str(tmp_path / "cache")))
    folder = tmp_path / "run"
    with without_pictures():
        ended = command(f"--config={tmp_path / 'config.py'}", f"--workdir={folder}")
    assert ended.code == 0, ended.err
    assert bleu(folder) > 90  # seeds 0 to 4 have 97.6 to 99.0
    task = TranslationTask.from_folder(folder, load_config(folder))
    untrained = task.evaluate(task.draw_params(jax.random.key(0)), "test", final=False)
    assert untrained["bleu"] < 10


@pytest.mark.slow
def test_the_quickstart_reaches_95_bleu(tmp_path):
    arguments = "--config=configs/quickstart.py", f"--workdir={tmp_path / 'run'}"
    subprocess.run([sys.executable, "launch.py", *arguments], cwd=ROOT, check=True)
    assert bleu(tmp_path / "run") >= 95
