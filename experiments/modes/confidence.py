"""The `confidence` mode: fits a translator's confidence to its validation set, and tests it."""

from pathlib import Path
from typing import Any

import numpy as np
import rich.table
import sacrebleu

from transformer.data import held_out
from transformer.data.corpora import parts_of
from transformer.errors import UserError
from transformer.files import write_json
from transformer.inference import confidence as fits
from transformer.inference.inspection import Inspector
from transformer.runs.loaded import LoadedRun
from transformer.runs.run import Run
from ..process.modes import Options
from ..process.text_io import print_table

COLUMNS = "wrong", "wrong of the least sure 10%", "calibration error", "of perfect probabilities"
LEAST_CHRF, RESAMPLES = 60, 100


def confidence(run: Run, options: Options) -> list[Path]:
    """Fits the probabilities of words and lines, and tests them; returns the JSON and a figure.

    A line is right if its sentence chrF is `least_chrf` or more, a word if the reference has it.
    """
    if not held_out.path_of(run.folder, "validation").exists():
        raise UserError(f"{run.folder} has no held-out text: fit confidence where it was trained")
    loaded = LoadedRun(run)
    least = LEAST_CHRF if options.least_chrf is None else options.least_chrf
    fitted, tested = (_samples(loaded, split, least) for split in ("validation", "test"))
    weights, points, tests = {}, {}, {}
    table = rich.table.Table("", *COLUMNS, title=f"{run.folder}, test set")
    for name, (groups, right) in tested.items():
        weights[name] = fits.fit(*fitted[name], name)
        points[name] = fits.predict(weights[name], groups), np.array(right)
        tests[name] = _measure(*points[name])
        table.add_row(f"{len(right):,} {name}", *map("{:.1%}".format, tests[name].values()))
    write_json(path := run.folder / fits.FILE, {**weights, "least_chrf": least, "test": tests})
    print_table(table)
    return [path, _draw(points, run.folder / "figures" / "confidence.png")]


def _samples(loaded: LoadedRun, split: str, least_chrf: int) -> dict[str, tuple[list, list]]:
    """Returns (log-probabilities of tokens, whether it is right) for all words and all lines."""
    parts = parts_of(loaded.config.data, split)
    pairs = [pair for part in parts for pair in held_out.read_pairs(loaded.folder, part)]
    sources, metric = [pair.source for pair in pairs], sacrebleu.CHRF()
    texts, model = loaded.translate(sources), loaded.trained
    tokens = Inspector(model.predictor, model.variables).next_tokens(sources, texts, 1, 1.0)
    words, lines = ([], []), ([], [])
    for pair, text, of_text in zip(pairs, texts, tokens, strict=True):
        of_words, of_line = fits.group_tokens(text, of_text)
        words[0].extend(of_words)
        words[1].extend(fits.match_words(text, pair.target))
        lines[0].append(of_line)
        lines[1].append(metric.sentence_score(text, [pair.target]).score >= least_chrf)
    return {"words": words, "lines": lines}


def _measure(probabilities: Any, right: Any) -> dict[str, float]:
    """Returns the numbers of the table, from 0 to 1; the last one is the mean of simulations."""
    least = np.argsort(probabilities, kind="stable")[: max(1, len(right) // 10)]
    draws = np.random.default_rng(0).random((RESAMPLES, len(right))) < probabilities
    error, *perfect = (fits.calibration_error(probabilities, x) for x in (right, *draws))
    numbers = 1 - right.mean(), 1 - right[least].mean(), error, np.mean(perfect)
    return {name: round(float(x), 4) for name, x in zip(COLUMNS, numbers, strict=True)}


def _draw(points: dict[str, tuple[Any, Any]], path: Path) -> Path:
    """Draws the fraction that is right over the mean probability, for each bin."""
    from ..display import plotting  # importing matplotlib takes a third of a second

    figure = plotting.new_figure(3.4, 3.2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    for number, (name, both) in enumerate(points.items()):
        bins = np.array_split(np.argsort(both[0], kind="stable"), fits.BINS)
        x, y = ([side[each].mean() for each in bins if len(each)] for side in both)
        plotting.curve(axes, x, y, label=name, markersize=4, **plotting.look(number))
    axes.set(xlabel="probability", ylabel="fraction that is right")
    axes.legend(**plotting.LEGEND)
    return plotting.save_figure(figure, path)
