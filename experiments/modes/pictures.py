"""The `attention` mode for image models; the `classify` mode is in `classification`."""

import logging
from collections.abc import Iterator
from pathlib import Path

from transformer.analysis.attention import Attention
from transformer.inference.base import Variables
from transformer.model.build import has_heads
from transformer.runs.run import Run, known_results
from transformer.tasks.pictures import PictureTask
from ..attention import draw
from ..process.modes import Options
from .classification import draw_results

logger = logging.getLogger(__name__)

EXAMPLES = 6  # number of images shown after training


def attention(run: Run, options: Options) -> list[Path]:
    """Plots the attention of all heads over an image and its question; returns the files."""
    picture = options.needed("picture", "translation", "hide_eos")
    trained = run.load_trained()
    classifier = trained.predictor
    line = "\t".join(filter(None, (picture, options.sentence)))
    maps = classifier.attention(trained.variables, line)
    name = f"{Path(picture).stem} {options.sentence or ''}"
    place = draw.text_folder(run.folder, name, picture)
    files = draw.draw_attention(maps, trained.steps, place, run.folder, options)
    [[best, *_]] = classifier.predict(trained.variables, [line])
    title = f"{options.sentence or Path(picture).name}  {best.label} ({best.probability:.2f})"
    return [*files, *draw_picture(maps, title, place)]


def draw_picture(maps: Attention, title: str, place: Path) -> list[Path]:
    """Plots the attention of the class token and of words over the image; returns the files."""
    from ..attention.heat_maps import heads_figure, words_figure, words_of
    from ..display.plotting import save_figure

    figures = {}
    if not maps.target_tokens:  # otherwise, the class token predicts no class
        figures["over_picture"] = heads_figure(maps, title)
    if words_of(maps)[0]:
        figures["words_over_picture"] = words_figure(maps, title)
    return [save_figure(figure, place / f"{name}.png") for name, figure in figures.items()]


def show(task: PictureTask, variables: Variables, folder: Path) -> Iterator[Path]:
    """Prints predictions for a few test images; yields figures of the results."""
    classifier, items = task.predictor, task.items("test")
    numbers = task.spread("test", EXAMPLES)
    probabilities = classifier.probabilities(variables, [items[i] for i in numbers])
    examples = [task.text.held_out["test"][i] for i in numbers]
    answers = [classifier.labels[row.argmax()] for row in probabilities]
    for item, answer, row in zip(examples, answers, probabilities, strict=True):
        logger.info(f"  picture    {item.name}")
        if item.question:
            logger.info(f"  question   {item.question}")
        logger.info(f"  class      {item.label}")
        logger.info(f"  predicted  {answer} ({row.max():.3f})\n")
    yield from draw_results(task, variables, folder)
    if not has_heads(task.config.model):
        return
    from ..attention.heat_maps import examples_figure
    from ..display.plotting import save_figure

    looks, pixels = classifier.looks(variables, [items[i] for i in numbers]), task.text.pixels
    maps, figures = classifier.attention_of(variables, items[numbers[0]]), folder / "figures"
    title = f"{examples[0].question or examples[0].name}  {answers[0]}"
    head = known_results(folder)["test"].get("pointing_head", (1, 1))
    drawn = examples_figure(examples, pixels["test"], answers, looks, tuple(head))
    yield save_figure(drawn, figures / "examples.png")
    yield from draw_picture(maps, title, figures)
    yield from draw.show_attention(maps, folder)
