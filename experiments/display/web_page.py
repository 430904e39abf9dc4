"""Pages in a single file with their styles, scripts, numbers and pictures.

The templates, in `experiments/web` and its folders, extend `page.html`.
"""

import base64
import html
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import markupsafe
import numpy as np

from transformer.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE_FOLDER = Path(__file__).parents[1] / "web"
# Of figures, and what the pages have for them.
THEME_COLOURS = {
    "#000000": "currentColor",
    "#e6e6e6": "var(--line)",
    "#0072b2": "var(--blue)",
    "#d55e00": "var(--orange)",
    "#009e73": "var(--green)",
}


def write_page(path: Path, template: str, **values: Any) -> Path:
    """Writes a page, see `render`; returns `path`, whose folder is made if missing."""
    text = render(template, **values)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def render(template: str, **values: Any) -> str:
    """Returns a page of one file; its template writes data for a script by the filter `tojson`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(
            [TEMPLATE_FOLDER, *filter(Path.is_dir, TEMPLATE_FOLDER.iterdir())]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compact = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    environment.policies["json.dumps_kwargs"] = compact
    return environment.get_template(template).render(**values)


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """Returns an array for a page's script: its shape, and its numbers by the name of their type.

    Floats become float32. They are in base64, little-endian and in C order, a third of what
    decimals would take.
    """
    kind = "<f4" if array.dtype.kind == "f" else array.dtype.newbyteorder("<")
    numbers = np.ascontiguousarray(array, dtype=kind)
    return {
        "shape": list(numbers.shape),
        numbers.dtype.name: base64.b64encode(numbers.tobytes()).decode("ascii"),
    }


def shortened(text: str, most: int) -> str:
    """Returns a text cut to a maximum number of characters, with a mark at the cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def figure_svg(
    figure: "Figure", name: str, caption: str, colours: Mapping[str, str]
) -> markupsafe.Markup:
    """Returns a figure as an element of a page, with a caption that screen readers read out.

    Its name tells its parts from those of the page's other figures. Colours of the figure,
    "#rrggbb" in lower case, are replaced by those of the page.
    """
    text = io.StringIO()
    import matplotlib  # whose import takes a third of a second

    with matplotlib.rc_context({"svg.hashsalt": name}):  # its parts always get the same names
        figure.savefig(text, format="svg", transparent=True)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    for of_figure, of_page in colours.items():
        svg = svg.replace(of_figure, of_page)
    # What only a file of its own needs; comments repeat the text that the letters draw.
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    view = next(re.finditer(r'viewBox="[^"]*"', svg))[0]
    # Black is what a letter without a colour has.
    opening = f'<svg {view} fill="currentColor" role="img" aria-label="{html.escape(caption)}">'
    return markupsafe.Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, svg))
