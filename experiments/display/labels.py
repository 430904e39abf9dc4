"""Tokens and words as labels in figures, in fonts that have their letters."""

import contextlib
import functools
import logging
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

# matplotlib is imported in functions: it takes a third of a second.
logger = logging.getLogger(__name__)

MAX_LABEL_LENGTH = 20  # characters
LINE_HEIGHT = 1.2  # multiple of the font size
# A token is plain text: otherwise '$x_1$' would be typeset as a formula.
AS_TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}


def visible(token: str, covered: frozenset[str]) -> str:
    """Returns a token as a label: every character is visible, and none is drawn as an empty box.

    `∅` stands for an empty token, `␣` for blanks unless all are inside, and a code point such as
    `⟨4E2D⟩` for a letter that is invisible or not `covered` by the fonts. Beyond
    `MAX_LABEL_LENGTH`, `…` marks a cut.
    """
    shown, blank = [], " " if token == token.strip(" ") else "␣"
    for character in token:
        if character == " ":
            shown.append(blank)
        elif character in covered and (character.isprintable() or character in "\u200c\u200d"):
            shown.append(character)
        else:
            shown.append(f"⟨{ord(character):04X}⟩")
    text = "".join(shown) or "∅"
    if len(text) > MAX_LABEL_LENGTH:
        text = text[: MAX_LABEL_LENGTH - 1] + "…"
    # A combining mark at the front would be drawn on the character before the label.
    return "◌" + text if unicodedata.combining(text[0]) else text


def labels_of(texts: Sequence[str], size: float) -> tuple[list[str], dict[str, Any]]:
    """Returns texts as labels, and their matplotlib options at this size in points."""
    families, covered = fonts_for(frozenset("".join(texts)))
    style = {"fontfamily": families, "fontsize": size, **AS_TEXT}
    return [visible(text, covered) for text in texts], style


def text_widths(texts: Iterable[str], style: dict[str, Any]) -> list[float]:
    """Returns the widths of drawn texts in inches."""
    from .plotting import DOTS_PER_INCH, new_figure

    figure = new_figure(1, 1)
    renderer = cast(Any, figure.canvas).get_renderer()
    drawn = [figure.text(0, 0, text, **style) for text in texts]
    return [text.get_window_extent(renderer).width / DOTS_PER_INCH for text in drawn]


@functools.lru_cache(maxsize=8)
def fonts_for(characters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Returns the font families for these characters, and the characters that they cover.

    The machine's other fonts are opened, one by one, only for characters that DejaVu Sans, which is
    part of matplotlib, lacks. If no font has a letter, this is logged.
    """
    families = ["DejaVu Sans"]
    covered = characters & _characters_of("DejaVu Sans")
    for family in _installed_families() if covered != characters else []:
        if more := (characters - covered) & _characters_of(family):
            families.append(family)
            covered |= more
    if any(map(str.isalpha, characters - covered)):
        _name_missing_fonts()
    return families, covered


@functools.cache
def _name_missing_fonts() -> None:
    """Logs once that no font has some of the letters."""
    logger.warning(
        "warning: no installed font has some letters of the text, so that pictures show their code "
        "points: install fonts (on Debian `apt-get install fonts-noto-core fonts-noto-cjk`), or "
        "open the HTML pages, which need no such font"
    )


@functools.cache
def _installed_families() -> list[str]:
    """Returns the machine's upright regular fonts by name, Noto Sans first, none in colour."""
    import matplotlib
    from matplotlib import font_manager

    # matplotlib caches its list of fonts, which lacks those installed since.
    listed = {str(entry.fname) for entry in font_manager.fontManager.ttflist}
    for path in {*font_manager.findSystemFonts()} - listed:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            font_manager.fontManager.addfont(path)
    # matplotlib's own further fonts are for formulas, with their own encodings of glyphs.
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
    """Returns the characters in a family's regular face; none if it cannot be opened."""
    from matplotlib import font_manager

    try:
        face = font_manager.FontProperties(family=[family])
        font = font_manager.get_font(font_manager.findfont(face, fallback_to_default=False))
    except (OSError, RuntimeError, ValueError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()
