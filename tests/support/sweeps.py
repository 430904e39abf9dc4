"""Runs that never trained: synthetic texts, scored as a run scores its own."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from configs import base
from experiments.results.systems import Comparison, SweepTrial
from experiments.results.table import build_tables, describe
from tiny_run import command, refused
from transformer.files import digest_file, write_arrays
from transformer.metrics.text import corpus_scores
from transformer.runs.run import SCORES

WORDS = "the old letter on this chair was read by a friend who never came home again"


def sentences(count: int, longest: int = 14) -> list[str]:
    """Sentences of 3 to `longest` words; always the same."""
    rng, words = np.random.default_rng(5), WORDS.split()
    lengths = rng.integers(3, longest + 1, count)
    return [" ".join(rng.choice(words, length)) for length in lengths]


def translations(references: list[str], errors: float, seed: int) -> list[str]:
    """The references, with this share of their words replaced."""
    rng = np.random.default_rng([seed, 7])

    def spoil(text):
        return " ".join("wrong" if rng.random() < errors else word for word in text.split())

    return [spoil(text) for text in references]


def curve(errors: float, seed: int) -> list[dict]:
    """Lines of a metrics file that end near what these errors score."""
    rng = np.random.default_rng([seed, 11])
    lines = []
    for step in range(100, 1300, 100):
        decay = np.exp(-step / 400)
        noise = rng.normal(0, 0.3, 2)
        loss, bleu = 1 + errors + 3 * decay + 0.1 * noise[0], 90 * (1 - errors) * (1 - decay)
        lines.append({"step": step, "split": "train", "loss": loss - 0.1})
        lines.append({"step": step, "split": "validation", "loss": loss, "bleu": bleu + noise[1]})
    return lines


def write_trial(root, number, values, errors=0.2, references=None, hypotheses=None, **changes):
    """Writes a trial's folder and returns the trial.

    Args:
      errors: share of wrong words.
      references: of the test set; 40 sentences where it is None.
      hypotheses: translations, in place of spoilt references.
      changes: of results.json; `test={"bleu": 1.0}` changes the one number of the test scores.
    """
    references = sentences(40) if references is None else references
    seed = values.get("seed", 0)
    found = hypotheses or translations(references, errors, 100 * number + seed)
    texts = {"test": found, "test.source": references, "test.reference": references}
    files = {f"translations/{name}.txt": lines for name, lines in texts.items()}
    scores = {"loss": 1.5, "nll": 1.2, "perplexity": 3.3, "accuracy": 0.8, "seconds": 2.0}
    scores |= corpus_scores(found, references) | {"sentences": len(found)}
    results = {"validation": scores, "test": scores | changes.pop("test", {}), **changes}
    trial = _write(root, number, values, results, curve(errors, 100 * number + seed), files)
    write_counts(trial.folder, corpus_scores(found, references, final=True)["counts"])
    return trial


def write_language_model(
    root: Path, number: int, values: dict, nll: float, splits=("validation", "test"), **changes
) -> SweepTrial:
    """Writes a language model's folder; a seed moves its nll, `changes` are of every split."""
    seed = values.get("seed", 0)
    nll += 0.01 * np.random.default_rng([seed, 13]).normal()
    scores = {
        **{"loss": nll + 0.1, "nll": nll, "accuracy": 0.9 - 0.2 * nll, "tokens": 1000},
        **{"perplexity": math.exp(nll), "perplexity_signature": "context:8|vocabulary:ab"},
        **{"word_perplexity": math.exp(4 * nll), "word_perplexity_signature": "context:8"},
        **{"bits_per_byte": nll / math.log(2), "bits_per_byte_signature": "context:8"},
        **changes,
    }
    lines = [
        line | {"nll": line["loss"] - 1, "accuracy": 1 / line["loss"]}
        for line in curve(nll - 1, 100 * number + seed)
    ]
    return _write(root, number, values, dict.fromkeys(splits, scores), lines, {})


def write_classifier(root, number, values, wrong: Sequence[int], **changes) -> SweepTrial:
    """Writes the folder of a classifier that finds no label of the texts numbered `wrong`."""
    count = 40
    labels = ["good" if number % 3 else "bad" for number in range(count)]
    other = {"good": "bad", "bad": "good"}
    found = [other[label] if i in wrong else label for i, label in enumerate(labels)]
    rows = zip(labels, found, sentences(count), strict=True)
    lines = [f"{true}\t{predicted}\t0.812500\t{text}" for true, predicted, text in rows]
    share = 1 - len(wrong) / count
    scores = {
        **{"accuracy": share, "accuracy_signature": "texts", "accuracy_ci": 0.02},
        **{"macro_f1": share - 0.01, "nll": 0.5, "ece": 0.03, "accuracy_negation": share / 2},
        **changes,
    }
    metrics = [
        line | {"accuracy": 1 / line["loss"]} for line in curve(1 - share, values.get("seed", 0))
    ]
    results = {"validation": scores, "test": scores}
    trial = _write(root, number, values, results, metrics, {"predictions/test.tsv": lines})
    write_counts(trial.folder, {"accuracy": [[i not in wrong, 1] for i in range(count)]})
    return trial


def _write(root, number, values, results, metrics, files) -> SweepTrial:
    """Writes a complete run: its scores, its metrics and other files by their lines."""
    folder = root / f"trial_{number}"
    costs = {"step": 1200, "averaged_steps": [1200], "parameters": 123_456, "wall_seconds": 90.0}
    files["results.json"] = [json.dumps(costs | results)]
    files["metrics.jsonl"] = list(map(json.dumps, metrics))
    for name, lines in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return SweepTrial(number, values, folder, "complete")


def write_counts(folder: Path, counts: dict) -> None:
    """Adds the counts behind the scores of the test set to a run, as its evaluation does."""
    write_arrays(folder / SCORES, counts)
    path = folder / "results.json"
    digests = {SCORES: digest_file(folder / SCORES, "")}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": digests}))


def cells(sweep: Comparison) -> list[dict[str, str]]:
    """The texts of each row of the table, by title."""
    table = build_tables(sweep)[0]
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def markdown(sweep: Comparison, title: str, command: str) -> str:
    """The results of a sweep as Markdown."""
    return describe(sweep, title, command).to_markdown()


# -- runs that are compared


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
    options = {"references": sentences(60), **options}
    return add_config(
        write_trial(root, number, {"seed": number}, errors, **options).folder, "translation", number
    )


def classifier(root: Path, number: int, wrong) -> Path:
    """Writes a classifier that is wrong on these of 40 texts."""
    return add_config(write_classifier(root, number, {}, wrong).folder, "classification", number)


def language_model(root: Path, number: int, nats: float, words: int = 1, **scores) -> Path:
    """Writes a language model with about this loss of each token, which has some words."""
    folder = write_language_model(root, number, {"seed": number}, nats, **scores).folder
    (folder / "likelihoods").mkdir()
    lines, counts = [], []
    for i, text in enumerate(sentences(60)):
        tokens = -(-len(text.split()) // words) + 1
        nats_of_text = -nats * tokens * (1 + 0.01 * (i % 7))
        lines.append(f"{nats_of_text:.4f}\t{tokens}\t{len(text) + 2}\t{text}⏎\n")
        counts.append((-nats_of_text, tokens, len(text) + 2))
    (folder / "likelihoods/test.tsv").write_text("".join(lines))
    nll, sizes = np.array(counts)[:, :2], np.array(counts)[:, ::2]
    write_counts(folder, {"nll": nll, "bits_per_byte": sizes / [math.log(2), 1]})
    return add_config(folder, "language_model", number)


def _arguments(systems, flags):
    runs = ",".join(map(str, systems))
    return ["--mode=compare", f"--runs={runs}", *(f"--{k}={value}" for k, value in flags.items())]


def compare(*systems, **flags):
    """The end of the command that compares systems."""
    return command(*_arguments(systems, flags))


def refuse(*systems, says, **flags):
    """Checks that it refuses them, and what it says."""
    return refused(*_arguments(systems, flags), says=says)
