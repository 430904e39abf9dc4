"""Pages of the stored models, which the site contains: `live/<name>.html`."""

import tempfile
from pathlib import Path

import transformer
from experiments.attention.draw import Example, write_explorer
from experiments.process.modes import Options

BUNDLES = Path(__file__).parents[1] / "bundles"  # image models; the translation model is packaged
QUESTION = "what shape is the red thing ?"


def make_pages() -> dict[str, str]:
    """Returns the HTML of each page, keyed by name.

    The translation model runs in its page. The pages of the image models show the attention heads
    for a few images.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = transformer.load("quickstart").export("html", Path(folder) / "quickstart")
        pages = {"quickstart": (place / "index.html").read_text("utf-8")}
        for name, question in (("captions", ""), ("scenes", f"\t{QUESTION}")):
            run = transformer.load(BUNDLES / name)
            images = sorted((BUNDLES / "images").glob("*.png"))
            seen = [
                Example((image.stem,), (run.attention(f"{image}{question}"),)) for image in images
            ]
            page = write_explorer(Path(folder) / f"{name}.html", seen[0], seen[1:], Options())
            pages[name] = page.read_text("utf-8")
    return pages
