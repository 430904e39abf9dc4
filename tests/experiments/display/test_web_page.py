"""Pages hold their data unharmed, and nothing in the data can harm a page."""

import base64
import json
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.display import web_page


def page_of(value):
    data = {"encodings": [], "value": value}
    return web_page.render("positions.html", title="", width=16, last=1, phasors=data)


def test_json_says_what_it_was_given_and_cannot_end_its_script():
    text = '</script><!-- & \u2028"\\▁naïve 中'
    [written] = re.findall(r'id="phasors">(.*?)</script>', page_of(text), re.DOTALL)
    assert json.loads(written)["value"] == text
    assert not set(written) & set("<>&")


def test_json_refuses_what_browsers_cannot_read():
    with pytest.raises(ValueError, match="not JSON compliant"):
        page_of(float("nan"))


@pytest.mark.parametrize("kind", ["int8", "uint16"])
def test_integers_arrive_in_their_own_type(kind):
    limits = np.iinfo(kind)
    array = np.array([[limits.min, 1, 2], [3, 77, limits.max]], kind)
    encoded = web_page.encode_array(array)
    read = np.frombuffer(base64.b64decode(encoded[kind]), np.dtype(kind).newbyteorder("<"))
    np.testing.assert_array_equal(read.reshape(encoded["shape"]), array)


def test_a_figure_stands_in_the_page_in_its_colours():
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1], color="#0072B2")
    drawn = str(web_page.figure_svg(figure, "a", 'a < "b"'))
    assert drawn.startswith("<svg viewBox=")
    assert 'aria-label="a &lt; &quot;b&quot;"' in drawn
    assert "var(--blue)" in drawn
    assert "#0072b2" not in drawn
    assert "http" not in drawn
    assert drawn == web_page.figure_svg(figure, "a", 'a < "b"')


def test_a_page_is_one_file_with_escaped_values(tmp_path):
    page = web_page.write_page(tmp_path / "new" / "a.html", "page.html", title="a < b")
    text = page.read_text(encoding="utf-8")
    assert "<title>a &lt; b</title>" in text
    assert "--paper" in text  # the styles are inside
    assert "http" not in text
    assert [path.name for path in page.parent.iterdir()] == ["a.html"]
