"""Runs to compare that never trained: synthetic outputs in folders as trained runs write them."""

import json
from pathlib import Path

from configs import base
from sweeps import sentences, write_classifier, write_language_model, write_trial

REFERENCES = sentences(60)


def add_config(folder: Path, task: str, seed: int = 0) -> Path:
    """Makes a folder a run of a task."""
    config = base.get_config()
    config.task, config.seed = task, seed
    if task != "translation":
        config.train.best_metric = "loss"
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


def translator(root: Path, number: int, errors: float = 0.2, **options) -> Path:
    """Writes a translator with this share of wrong words; see `sweeps.write_trial`."""
    options = {"references": REFERENCES, **options}
    return add_config(
        write_trial(root, number, {"seed": number}, errors, **options).folder, "translation", number
    )


def classifier(root: Path, number: int, wrong) -> Path:
    """Writes a classifier that is wrong on these of 40 texts."""
    return add_config(write_classifier(root, number, {}, wrong).folder, "classification", number)


def language_model(root: Path, number: int, nats: float, words: int = 1, **scores) -> Path:
    """Writes a language model with about this loss of each token.

    Args:
      words: of a token.
      scores: changes of its results.
    """
    folder = write_language_model(root, number, {"seed": number}, nats, **scores).folder
    (folder / "likelihoods").mkdir()
    lines = []
    for i, text in enumerate(REFERENCES):
        tokens = -(-len(text.split()) // words) + 1
        lines.append(f"{-nats * tokens * (1 + 0.01 * (i % 7)):.4f}\t{tokens}\t{text}⏎\n")
    (folder / "likelihoods/test.tsv").write_text("".join(lines))
    return add_config(folder, "language_model", number)
