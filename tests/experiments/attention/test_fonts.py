"""Letters without a font are named with fonts to install, and an installed font is used."""

import pytest
from matplotlib import font_manager

from experiments.display import labels

REJANG = "\ua930"


@pytest.fixture(autouse=True)
def forget():
    def clear():
        for cached in (labels.fonts_for, labels._warn_once):
            cached.cache_clear()

    clear()  # other tests draw letters that this machine may lack
    yield
    clear()


def test_fonts_are_added_for_letters_that_they_alone_have_and_missing_letters_are_named_once(
    monkeypatch, said
):
    letters = {"DejaVu Sans": "ab", "Noto Sans A": "b", "Noto Sans Rejang": REJANG}
    monkeypatch.setattr(labels, "_characters_of", lambda family: frozenset(letters[family]))
    monkeypatch.setattr(labels, "_installed_families", lambda: list(letters)[1:])
    fonts = labels.fonts_for(frozenset("a" + REJANG))
    assert fonts == (["DejaVu Sans", "Noto Sans Rejang"], {"a", REJANG})
    assert labels.fonts_for(frozenset("b")) == (["DejaVu Sans"], {"b"})
    assert said == []
    for missing in ("a中", "こ"):
        assert labels.fonts_for(frozenset(missing))[1] <= {"a"}
    [line] = said
    assert "`apt-get install fonts-noto-core fonts-noto-cjk`" in line


def test_fonts_of_formulas_are_left_out():
    own = {entry.name for entry in font_manager.fontManager.ttflist if "STIX" in entry.name}
    assert own
    assert not own & {*labels._installed_families()}
    assert "x" in labels._characters_of("DejaVu Sans")
    assert labels._characters_of("no such font") == frozenset()
