"""Pages of the stored models, which the site contains: `live/<name>.html`."""

import itertools
import tempfile
from pathlib import Path

import transformer
from experiments.attention.draw import Example, write_explorer
from experiments.process.modes import Options

SCENES = Path(__file__).parent / "scenes"  # images
QUESTIONS = (
    "what shape is the red thing ?",
    "is the green circle left of the red square ?",
    "what colour is the thing closest to the red circle ?",
)  # about the images


def make_pages() -> dict[str, str]:
    """Returns the HTML of each page, keyed by name.

    The page `quickstart` contains its translation model. The others show the attention of a model:
    `captions` for a few images, `scenes` for a question about each.
    """
    images = [str(image) for image in sorted(SCENES.glob("*.png"))]
    questions = [f"{image}\t{question}" for image, question in zip(images, QUESTIONS, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        place = transformer.load("quickstart").export("html", Path(folder) / "quickstart")
        pages = {"quickstart": place / "index.html"}
        for name, lines in {"captions": images, "scenes": questions}.items():
            run = transformer.load(name)
            labels = (f"image {number}" for number in itertools.count(1))
            first, *rest = [Example((next(labels),), (run.attention(line),)) for line in lines]
            pages[name] = write_explorer(Path(folder) / f"{name}.html", first, rest, Options())
        return {name: page.read_text("utf-8") for name, page in pages.items()}
