"""The losses of the first 50 steps of each task are those on file, which change only on purpose.

PYTHONPATH=.:tests/support python tests/training/golden/test_golden.py   (writes them again)
"""

import json
import sys
import tempfile
from pathlib import Path

import pytest

import transformer
from places import ROOT
from tiny_run import without_pictures

FILE = Path(__file__).with_name("golden_losses.json")
# Other options of the compiler change 1e-7, and other processors hardly more; another dropout mask,
# batch or initial weight changes a loss by 1% or more.
TOLERANCE = 1e-4
CHANGES = {
    "model.d_model": 16,
    "model.d_ff": 24,
    "model.num_heads": 2,
    "model.head_size": 0,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "data.train_size": 300,
    "data.validation_size": 20,
    "data.test_size": 12,
    "data.batch_tokens": 512,
    "data.num_buckets": 2,
    "optimizer.warmup_steps": 5,
    "train.steps": 50,
    "train.log_every": 10,
    "train.evaluate_every": 50,
    "evaluate.average_last_n": 1,
    "evaluate.bootstrap": 0,
    "evaluate.snapshot_sentences": 0,
    "evaluate.snapshot_statistics": 0,
}
PAGES = {
    "translation": ("quickstart.py", {"tokenizer.vocab_size": 300}),
    "language_model": ("next_word.py", {"data.context": 16, "data.batch_tokens": 64}),
    "classification": ("toy_reviews.py", {}),
    "captioning": ("scenes_captions.py", {}),
    "image_classification": ("mnist.py:digits", {"data.batch_tokens": 1024}),
    "visual_question_answering": ("scenes_vqa.py", {}),
}


def losses(task: str, folder: Path) -> dict[str, float]:
    """Trains a run; returns the training losses by step, and the last validation loss."""
    page, changes = PAGES[task]
    changes = {**CHANGES, **changes, "data.cache_dir": str(folder / "cache")}
    with without_pictures():
        transformer.train(f"{ROOT}/configs/{page}", folder / "run", changes)
    lines = map(json.loads, (folder / "run/metrics.jsonl").read_text("utf-8").splitlines())
    named = ((line.get("split", "train"), line) for line in lines)
    return {f"{name} {line['step']}": line["loss"] for name, line in named if "loss" in line}


@pytest.mark.full
@pytest.mark.parametrize("task", PAGES)
def test_a_training_has_the_losses_on_file(task, tmp_path):
    golden = json.loads(FILE.read_text("utf-8"))[task]
    assert losses(task, tmp_path) == pytest.approx(golden, rel=TOLERANCE)


@pytest.mark.full
def test_another_seed_has_other_losses(tmp_path, monkeypatch):
    monkeypatch.setitem(CHANGES, "seed", 7)
    golden = json.loads(FILE.read_text("utf-8"))["translation"]
    differ = {k: abs(v / golden[k] - 1) for k, v in losses("translation", tmp_path).items()}
    assert max(differ.values()) > 100 * TOLERANCE


def write() -> None:
    """Writes the losses of this version of the code."""
    golden = {}
    for task in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            golden[task] = losses(task, Path(folder))
    FILE.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write())
