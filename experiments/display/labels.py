"""Labels for tokens and words in figures, with fonts that cover their characters."""

import contextlib
import functools
import logging
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

# matplotlib is imported in functions, since importing it takes a third of a second.
logger = logging.getLogger(__name__)
_warn_once = functools.cache(logger.warning)

MAX_LABEL_LENGTH = 20  # characters
LINE_HEIGHT = 1.2  # multiple of the font size
# Tokens are plain text; otherwise, '$x_1$' would be typeset as a formula.
AS_TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}


def visible(token: str, covered: frozenset[str] | None = None) -> str:
    """Returns a token as a label in which every character is visible, without empty boxes.

    An empty token becomes `∅`. Blanks become `␣` if the token starts or ends with a blank. An
    invisible character, or one that is not `covered` by the fonts (None: they cover all), becomes a
    code point such as `⟨4E2D⟩`. Labels longer than `MAX_LABEL_LENGTH` are truncated with `…`.
    """
    shown = {c for c in token if c.isprintable() or c in "\u200c\u200d"}
    shown = shown if covered is None else shown & covered
    text = "".join(c if c in shown else f"⟨{ord(c):04X}⟩" for c in token) or "∅"
    if token != token.strip(" "):
        text = text.replace(" ", "␣")
    if len(text) > MAX_LABEL_LENGTH:
        text = text[: MAX_LABEL_LENGTH - 1] + "…"
    # A leading combining mark would be drawn over the character before the label.
    return "◌" + text if unicodedata.combining(text[0]) else text


def labels_of(texts: Sequence[str], size: float) -> tuple[list[str], dict[str, Any]]:
    """Returns texts as labels, and matplotlib text options for a font size in points."""
    families, covered = fonts_for(frozenset("".join(texts)))
    style = {"fontfamily": families, "fontsize": size, **AS_TEXT}
    return [visible(text, covered) for text in texts], style


def text_widths(texts: Iterable[str], style: dict[str, Any]) -> list[float]:
    """Returns the widths of rendered texts in inches."""
    from .plotting import DOTS_PER_INCH, new_figure

    figure = new_figure(1, 1)
    renderer = cast(Any, figure.canvas).get_renderer()
    drawn = [figure.text(0, 0, text, **style) for text in texts]
    return [text.get_window_extent(renderer).width / DOTS_PER_INCH for text in drawn]


@functools.lru_cache(maxsize=8)
def fonts_for(characters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Returns font families for the characters, and the characters that the families cover.

    Installed fonts are opened one by one only if characters are missing from DejaVu Sans, which is
    part of matplotlib. A warning is logged if no font covers a letter.
    """
    families = ["DejaVu Sans"]
    covered = characters & _characters_of("DejaVu Sans")
    for family in _installed_families() if covered != characters else []:
        if more := (characters - covered) & _characters_of(family):
            families.append(family)
            covered |= more
    if any(map(str.isalpha, characters - covered)):
        _warn_once(
            "warning: no installed font has some letters of the text, so that pictures show their "
            "code points: install fonts (on Debian `apt-get install fonts-noto-core "
            "fonts-noto-cjk`), or open the HTML pages, which need no such font"
        )
    return families, covered


@functools.cache
def _installed_families() -> list[str]:
    """Returns the names of installed upright regular fonts without colour, Noto Sans first."""
    import matplotlib
    from matplotlib import font_manager

    # matplotlib's cached font list lacks fonts that were installed after it was created.
    listed = {str(entry.fname) for entry in font_manager.fontManager.ttflist}
    for path in {*font_manager.findSystemFonts()} - listed:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            font_manager.fontManager.addfont(path)
    # The other fonts in matplotlib are for formulas, and have special glyph encodings.
    own = Path(matplotlib.get_data_path())
    names = {
        entry.name
        for entry in font_manager.fontManager.ttflist
        if (entry.weight, entry.style) == (400, "normal")
        and not Path(str(entry.fname)).is_relative_to(own)
        and not any(word in entry.name.lower() for word in ("color", "last resort"))
    }
    return sorted(names, key=lambda name: (not name.startswith("Noto Sans"), name))


@functools.cache
def _characters_of(family: str) -> frozenset[str]:
    """Returns the characters of a family's regular font, or an empty set if it is unusable."""
    from matplotlib import font_manager

    try:
        face = font_manager.FontProperties(family=[family])
        font = font_manager.get_font(font_manager.findfont(face, fallback_to_default=False))
    except (OSError, RuntimeError, ValueError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()
