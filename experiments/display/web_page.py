"""Self-contained HTML pages: styles, scripts, numbers and images are in a single file.

Templates are in `experiments/web` and its subfolders, and extend `page.html`.
"""

import base64
import html
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import markupsafe
import numpy as np

from transformer.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE_FOLDER = Path(__file__).parents[1] / "web"
# Maps colours in figures to CSS colours of the page.
THEME_COLOURS = {
    "#000000": "currentColor",
    "#e6e6e6": "var(--line)",
    "#0072b2": "var(--blue)",
    "#d55e00": "var(--orange)",
    "#009e73": "var(--green)",
}


def write_page(path: Path, template: str, **values: Any) -> Path:
    """Renders a page and writes it to `path`, creating missing parent folders; returns `path`."""
    text = render(template, **values)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def render(template: str, **values: Any) -> str:
    """Renders a template to a page or text; templates pass data to scripts with `tojson`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(
            [TEMPLATE_FOLDER, *filter(Path.is_dir, TEMPLATE_FOLDER.iterdir())]
        ),
        autoescape=jinja2.select_autoescape(),  # pages, not texts
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compact = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    environment.policies["json.dumps_kwargs"] = compact
    return environment.get_template(template).render(**values)


def paragraphs(template: str, **values: Any) -> list[str]:
    """Returns the paragraphs of a rendered text, each as one line."""
    texts = render(template, **values).split("\n\n")
    return [" ".join(text.split()) for text in texts if text.strip()]


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """Returns an array as JSON-compatible data: its shape, and its values keyed by dtype name.

    Floats are converted to float32. Values are little-endian base64 in C order, which takes a third
    of the space of decimal numbers.
    """
    kind = "<f4" if array.dtype.kind == "f" else array.dtype.newbyteorder("<")
    numbers = np.ascontiguousarray(array, dtype=kind)
    return {
        "shape": list(numbers.shape),
        numbers.dtype.name: base64.b64encode(numbers.tobytes()).decode("ascii"),
    }


def shortened(text: str, most: int) -> str:
    """Returns a text, truncated with an ellipsis if it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def figure_svg(figure: "Figure", name: str, caption: str) -> markupsafe.Markup:
    """Returns a figure as an inline SVG element, with a caption for screen readers.

    `name` makes the SVG ids unique on the page. Colours in `THEME_COLOURS` are replaced.
    """
    text = io.StringIO()
    import matplotlib  # the import takes a third of a second

    with matplotlib.rc_context({"svg.hashsalt": name}):  # makes the ids reproducible
        figure.savefig(text, format="svg", transparent=True)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    for of_figure, of_page in THEME_COLOURS.items():
        svg = svg.replace(of_figure, of_page)
    # Remove the metadata, and the comments, which repeat the text that the glyphs show.
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    view = next(re.finditer(r'viewBox="[^"]*"', svg))[0]
    # Without `fill`, glyphs that have no colour would be black.
    opening = f'<svg {view} fill="currentColor" role="img" aria-label="{html.escape(caption)}">'
    return markupsafe.Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, svg))
