"""Points of a sweep that never ran: made-up translations, scored as a run scores its own."""

import json
from pathlib import Path

import numpy as np

from experiments.sweep_results import Point
from transformer.metrics import corpus_scores

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


def write_point(
    root: Path,
    number: int,
    values: dict,
    errors: float = 0.2,
    state: str = "complete",
    references: list[str] | None = None,
    hypotheses: list[str] | None = None,
    **changes,
) -> Point:
    """Writes a point's folder and returns the point.

    Args:
      errors: share of wrong words.
      references: of the test set; 40 sentences where it is None.
      hypotheses: translations, in place of spoilt references.
      changes: of results.json; `test={"bleu": 1.0}` changes the one number of the test scores.
    """
    folder = root / f"point_{number}"
    point = Point(number, values, folder, state)
    if state != "complete":
        return point
    references = sentences(40) if references is None else references
    seed = values.get("seed", 0)
    found = hypotheses or translations(references, errors, 100 * number + seed)
    texts = {"test": found, "test.source": references, "test.reference": references}
    (folder / "translations").mkdir(parents=True)
    for name, lines in texts.items():
        path = folder / "translations" / f"{name}.txt"
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    scores = {"loss": 1.5, "nll": 1.2, "perplexity": 3.3, "accuracy": 0.8, "seconds": 2.0}
    scores |= corpus_scores(found, references) | {"sentences": len(found)}
    results = {
        "validation": scores,
        "test": scores | changes.pop("test", {}),
        "step": 1200,
        "averaged_steps": [1200],
        "parameters": 123_456,
        "wall_seconds": 90.0,
        **changes,
    }
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    lines = "".join(json.dumps(line) + "\n" for line in curve(errors, 100 * number + seed))
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return point
