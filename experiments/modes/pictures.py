"""The `attention` mode for image models; the `classify` mode is in `classification`."""

import logging
from pathlib import Path

from transformer.analysis.attention import Attention
from transformer.errors import UserError
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
    picture = needed_picture(options)
    if options.translation is not None:
        raise UserError("--translation is for translators and captioners: leave it out")
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


def needed_picture(options: Options) -> str:
    """Returns `--picture`; raises UserError if it is missing."""
    if options.picture is None:
        raise UserError("--picture is missing: name the file whose attention is to be drawn")
    if options.hide_eos:
        raise UserError("--hide_eos is for translators: leave it out")
    return options.picture


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


def show(task: PictureTask, variables: Variables, folder: Path) -> None:
    """Prints predictions for a few test images, and plots the results."""
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
    draw_results(task, variables, folder)
    if not has_heads(task.config.model):
        return
    from ..attention.heat_maps import Example, examples_figure
    from ..display.plotting import save_figure

    looks, pixels = classifier.looks(variables, [items[i] for i in numbers]), task.text.pixels
    rows = [
        Example(pixels["test"][item.picture], item.question, item.label, answer, item.boxes, look)
        for item, answer, look in zip(examples, answers, looks, strict=True)
    ]
    maps, figures = classifier.attention_of(variables, items[numbers[0]]), folder / "figures"
    title = f"{examples[0].question or examples[0].name}  {answers[0]}"
    head = known_results(folder)["test"].get("pointing_head", (1, 1))
    drawn = save_figure(examples_figure(rows, tuple(head)), figures / "examples.png")
    for file in (drawn, *draw_picture(maps, title, figures)):
        logger.info(f"wrote {file}")
    draw.show_attention(maps, folder)
