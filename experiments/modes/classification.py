"""The `classify` and `attention` modes for classifiers."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from transformer.data.corpora import Tagger
from transformer.data.pairs import Labelled
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.inference.classifier import ClassPredictor
from transformer.metrics.classification import Reliability
from transformer.runs.run import Run, known_results
from transformer.tasks.classification import ClassificationTask
from ..attention import draw
from ..process.modes import Options
from ..process.text_io import Lines, line_mode
from .translation import answer_lines

logger = logging.getLogger(__name__)

EXAMPLES = 6  # number of texts shown after training
MAX_EXAMPLE_LENGTH = 90  # maximum number of characters shown per text
MAPPED = 500  # maximum number of texts in the embedding map, for which t-SNE takes seconds


@line_mode
def classify(run: Run, lines: Lines) -> Iterator[str]:
    """Yields the most probable class of each line and its probability; a blank line stays blank.

    If `decode.num_best` is greater than one, each input line yields up to that many output lines
    `number<TAB>class<TAB>probability`, with the 1-based number of the input line.
    """
    count = run.config.decode.num_best
    for number, _, best in answer_lines(run, "classify", lines):
        cells = [f"{each.label}\t{each.probability:.6f}" for each in best] or [""]
        yield from (f"{number}\t{cell}" if count > 1 else cell for cell in cells)


def attention(run: Run, options: Options) -> list[Path]:
    """Plots the attention pooling weights and the attention of all heads; returns the files."""
    sentence = options.needed("sentence", "picture", "translation", "hide_eos")
    Tagger(run.config.data, options.source_tag)
    trained = run.load_trained()
    classifier, architecture = trained.predictor, f"architecture={run.config.model.architecture}"
    if classifier.is_blank(sentence):
        raise UserError("--sentence is blank: give the text whose attention is to be drawn")
    place = draw.text_folder(run.folder, sentence)
    maps = classifier.attention(trained.variables, sentence)
    files = []
    if maps.weights:
        files = draw.draw_attention(maps, trained.steps, place, run.folder, options)
    items = [Labelled(sentence, "")]
    files += draw_reading(classifier, trained.variables, items, place / "reading.png")
    if not files:
        raise UserError(
            f"config.model.{architecture} with config.model.pooling={run.config.model.pooling} has "
            "no attention to draw: train a Transformer, or with --config.model.pooling=attention"
        )
    return files


def draw_reading(
    classifier: ClassPredictor, variables: Variables, items: Sequence[Labelled], picture: Path
) -> list[Path]:
    """Plots the attention pooling weight of each token; returns [file], or [] without weights."""
    texts = [item.text for item in items]
    readings = classifier.reading(variables, texts)
    if not readings:
        return []
    from ..attention import class_figures
    from ..display.plotting import save_figure  # importing matplotlib takes a third of a second

    predictions = classifier.predict(variables, texts)
    rows = [
        class_figures.ReadText(tokens, weights, item.label, best[0].label)
        for (tokens, weights), item, best in zip(readings, items, predictions, strict=True)
    ]
    return [save_figure(class_figures.reading_figure(rows), picture)]


def show(task: ClassificationTask, variables: Variables, folder: Path) -> Iterator[Path]:
    """Prints a few test texts with their true and predicted classes; yields figures of results."""
    classifier = task.predictor
    examples = task.examples("test", EXAMPLES)
    # A text without tokens has no prediction.
    examples = [item for item in examples if not classifier.is_blank(item.text)]
    predictions = classifier.predict(variables, [item.text for item in examples])
    for item, best in zip(examples, predictions, strict=True):
        end = "…" if len(item.text) > MAX_EXAMPLE_LENGTH else ""
        logger.info(f"  text       {item.text[:MAX_EXAMPLE_LENGTH]}{end}")
        logger.info(f"  class      {item.label}")
        logger.info(f"  predicted  {best[0].label} ({best[0].probability:.3f})\n")
    yield from draw_results(task, variables, folder)
    yield from draw_reading(classifier, variables, examples, folder / "figures" / "reading.png")
    if examples:
        yield from draw.show_attention(classifier.attention(variables, examples[0].text), folder)


def draw_results(task: ClassificationTask, variables: Variables, folder: Path) -> Iterator[Path]:
    """Plots a confusion matrix, ROC curves, a reliability diagram, and a map of test embeddings."""
    from ..attention import class_figures
    from ..display.plotting import save_figure

    scores, labels = known_results(folder)["test"], task.predictor.labels
    curve = Reliability(**{k: np.array(v) for k, v in scores["reliability"].items()})
    drawn = {
        "confusion": class_figures.confusion_figure(np.array(scores["confusion"]), labels),
        "roc": class_figures.roc_figure(scores["roc"], scores["classes"]),
        "reliability": class_figures.reliability_figure(curve),
    }
    numbers = task.spread("test", MAPPED)
    if len(numbers) > 2:
        items, encoded = task.items("test"), task.text.encoded["test"]
        vectors = task.predictor.embeddings(variables, [items[i] for i in numbers])
        drawn["map"] = class_figures.embedding_map(vectors, encoded.labels[numbers], labels)
    for name, figure in drawn.items():
        yield save_figure(figure, folder / "figures" / f"{name}.png")
