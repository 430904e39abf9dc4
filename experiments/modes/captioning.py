"""The `caption` and `attention` modes for captioning models."""

from collections.abc import Iterator
from pathlib import Path

from transformer.inference.base import Variables
from transformer.runs.run import Run
from transformer.tasks.captioning import CaptionTask
from ..attention import draw
from ..process.modes import Options
from ..process.text_io import Lines, line_mode
from .pictures import draw_picture
from .translation import show_pairs, write_texts


@line_mode
def caption(run: Run, lines: Lines) -> Iterator[str]:
    """Yields a caption for the image file named in each line; a blank line stays blank.

    If `decode.num_best` is greater than one, the format is that of `--mode=translate`.
    """
    return write_texts(run, "caption", lines)


def attention(run: Run, options: Options) -> list[Path]:
    """Plots the attention of all heads, and of each word over the image; returns the files."""
    picture = options.needed("picture", "hide_eos")
    trained = run.load_trained()
    maps = trained.predictor.attention(trained.variables, picture, options.translation)
    place = draw.text_folder(run.folder, Path(picture).stem, picture, options.translation)
    files = draw.draw_attention(maps, trained.steps, place, run.folder, options)
    return [*files, *draw_picture(maps, Path(picture).name, place)]


def show(task: CaptionTask, variables: Variables, folder: Path) -> Iterator[Path]:
    """Prints captions for a few test images; yields figures of attention for the first image."""
    name, maps = show_pairs(task, variables, "picture", "caption")
    yield from draw.show_attention(maps, folder)
    yield from draw_picture(maps, name, folder / "figures")
