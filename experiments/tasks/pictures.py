"""The modes of models of pictures: `attention`; `classify` is that of texts."""

import logging
from pathlib import Path

from ml_collections import ConfigDict

from experiments.attention import draw
from experiments.options import Options
from experiments.tasks.classification import draw_results, print_kinds
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.runs.workdir import known_results, load_trained
from transformer.tasks.pictures import PictureTask

logger = logging.getLogger(__name__)

EXAMPLES = 6  # pictures shown after training


def attention(config: ConfigDict, folder: Path, options: Options) -> list[Path]:
    """Draws all heads of all layers over a picture, and over its question; returns the files."""
    if options.picture is None:
        raise UserError("--picture is missing: name the file whose attention is to be drawn")
    if options.translation is not None or options.hide_eos:
        raise UserError("--translation and --hide_eos are for translators: leave them out")
    run = load_trained(folder, config)
    classifier = run.predictor
    line = "\t".join(filter(None, (options.picture, options.sentence)))
    maps = classifier.attention(run.variables, line)
    if not maps.weights:
        raise UserError(
            f"config.model.architecture={config.model.architecture} has no attention to draw: "
            "train a Transformer"
        )
    place = draw.text_folder(folder, f"{Path(options.picture).stem} {options.sentence or ''}")
    files = draw.draw_attention(maps, run.steps, place, folder, options)
    from experiments.display.plotting import save_figure
    from experiments.tasks.picture_figures import heads_figure, words_figure  # needs matplotlib

    [[best, *_]] = classifier.predict(run.variables, [line])
    title = (
        f"{options.sentence or Path(options.picture).name}  {best.label} ({best.probability:.2f})"
    )
    files.append(save_figure(heads_figure(maps, title), place / "over_picture.png"))
    if options.sentence:
        files.append(save_figure(words_figure(maps, title), place / "words_over_picture.png"))
    return files


def show(task: PictureTask, variables: Variables, folder: Path) -> None:
    """Prints a few questions of the test set with their answers, and draws the results."""
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
    print_kinds(folder)
    draw_results(task, variables, folder)
    if not classifier.has_heads:
        return
    from experiments.display.plotting import save_figure
    from experiments.tasks.picture_figures import Example, examples_figure, heads_figure

    looks, pixels = classifier.looks(variables, [items[i] for i in numbers]), task.text.pixels
    rows = [
        Example(pixels["test"][item.picture], item.question, item.label, answer, item.boxes, look)
        for item, answer, look in zip(examples, answers, looks, strict=True)
    ]
    maps, figures = classifier.attention_of(variables, items[numbers[0]]), folder / "figures"
    title = f"{examples[0].question or examples[0].name}  {answers[0]}"
    head = known_results(folder)["test"].get("pointing_head", (1, 1))
    for name, figure in {
        "examples": examples_figure(rows, tuple(head)),
        "over_picture": heads_figure(maps, title),
    }.items():
        logger.info(f"wrote {save_figure(figure, figures / f'{name}.png')}")
    draw.show_attention(maps, folder)
