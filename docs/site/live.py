"""Pages of the stored models, which the site contains: `live/<name>.html`."""

import tempfile
from pathlib import Path

import transformer
from experiments.attention.draw import Example, write_explorer
from experiments.process.modes import Options

SCENES = Path(__file__).parent / "scenes"  # images


def make_pages() -> dict[str, str]:
    """Returns the HTML of each page, keyed by name.

    The page `quickstart` contains its translation model. The page `captions` shows the attention of
    a captioning model for a few images.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = transformer.load("quickstart").export("html", Path(folder) / "quickstart")
        run = transformer.load("captions")
        images = sorted(SCENES.glob("*.png"))
        first, *rest = [Example((image.stem,), (run.attention(str(image)),)) for image in images]
        captions = write_explorer(Path(folder) / "captions.html", first, rest, Options())
        pages = {"quickstart": place / "index.html", "captions": captions}
        return {name: page.read_text("utf-8") for name, page in pages.items()}
