"""Letters that no font has are told of with fonts to install, which are then used at once."""

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from experiments.display import labels

pytestmark = pytest.mark.full
REJANG = "\ua930"


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Installs a font of one letter on a machine that has matplotlib's own alone."""
    files, manager = [], font_manager.fontManager
    own = [entry for entry in manager.ttflist if "mpl-data" in str(entry.fname)]
    monkeypatch.setattr(manager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: files)

    def build(letter):
        font, glyph = FontBuilder(1000), TTGlyphPen(None).glyph()
        font.setupGlyphOrder([".notdef", "letter"])
        font.setupCharacterMap({ord(letter): "letter"})
        font.setupGlyf({".notdef": glyph, "letter": glyph})
        font.setupHorizontalMetrics({".notdef": (500, 0), "letter": (500, 0)})
        font.setupHorizontalHeader(ascent=800, descent=-200)
        font.setupNameTable({"familyName": "Noto Sans Rejang", "styleName": "Regular"})
        font.setupOS2(usWeightClass=400)
        font.setupPost()
        font.save(tmp_path / "rejang.ttf")
        files.append(str(tmp_path / "rejang.ttf"))

    yield build
    forget()


def forget():
    for cached in (
        labels.fonts_for,
        labels._installed_families,
        labels._characters_of,
        labels._name_missing_fonts,
    ):
        cached.cache_clear()


def test_letters_without_a_font_are_told_of_and_a_font_is_used_once_it_is_there(install, said):
    forget()
    for characters in ("a" + REJANG, "中こ한ｱ"):
        assert labels.fonts_for(frozenset(characters))[0] == ["DejaVu Sans"]
    assert "`apt-get install fonts-noto-core fonts-noto-cjk`" in said[0]
    install(REJANG)
    forget()
    fonts = labels.fonts_for(frozenset("a" + REJANG))
    assert fonts == (["DejaVu Sans", "Noto Sans Rejang"], {"a", REJANG})
    assert len(said) == 1
