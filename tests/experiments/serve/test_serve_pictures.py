"""The API and the page of models of pictures: of one that answers questions, and a captioner."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from serving import is_one_line, serving
from test_serve_browser import opened, wait_for

import transformer
from chromium import PHONE, overflow
from experiments.serve import routes
from experiments.serve.routes import Served

QUESTION = "where is the red thing ?"


@pytest.fixture(scope="module")
def captions():
    """The captioner of the package."""
    return transformer.load("captions")


@pytest.fixture(scope="module")
def site(scenes):
    with serving([Served("scenes", scenes)]) as running:
        yield running


def as_url(content, kind="png"):
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def test_heads_are_those_of_the_run(site, scenes, photo):
    picture = as_url(photo.read_bytes())
    found = site.post("attention", {"picture": picture, "text": QUESTION}).json()
    array = found["frames"][0]["weights"]["encoder_self"]
    numbers = np.frombuffer(base64.b64decode(array["float32"]), "<f4").reshape(array["shape"])
    expected = scenes.attention(f"{photo}\t{QUESTION}").weights["encoder_self"]
    np.testing.assert_array_equal(numbers, expected)
    shown = found["picture"]["pixels"].partition(",")[2]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown))))
    np.testing.assert_array_equal(pixels, np.asarray(Image.open(photo)))


def test_a_captioner_says_of_a_picture_what_the_run_says_of_its_file(captions, photo):
    picture, file = as_url(photo.read_bytes()), str(photo)
    with serving([Served("captions", captions)]) as site:
        asked = {"pictures": [picture], "num_best": 2}
        [best] = site.post("caption", asked).json()["captions"]
        [expected] = captions.caption([file], num_best=2)
        assert [each["text"] for each in best] == [each.text for each in expected]
        [[begun]] = site.post("caption", {"pictures": [picture], "prefixes": ["a small"]}).json()[
            "captions"
        ]
        assert begun["text"].startswith("a small")
        target = best[0]["text"]
        asked = {"pictures": [picture], "targets": [target]}
        [entries] = site.post("next_tokens", asked).json()["next_tokens"]
        [of_run] = captions.next_tokens([file], [target])
        assert [each["log_prob"] for each in entries] == [each.log_prob for each in of_run]
        steps = site.post("beam", {"picture": picture}).json()["steps"]
        assert [len(step) for step in steps] == [*map(len, captions.beam(file))]
        asked = {"picture": picture, "target": target}
        frames = site.post("attention", asked).json()["frames"]
        assert frames[0]["weights"].keys() == captions.attention(file, target).weights.keys()
        is_one_line(site.post("caption", {"pictures": [file]}), 400, "pictures[0] is not a data")
        is_one_line(site.post("beam", {"text": file}), 400, "picture is not a data URL")


def refusals(photo):
    """Requests to classify, and what the answer says."""
    picture = as_url(photo.read_bytes())
    yield {"texts": [QUESTION]}, "pictures is missing: give it"
    yield {"pictures": [picture]}, "1 pictures, 0 texts: this run needs a question on each picture"
    yield {"pictures": [picture], "texts": [" "]}, "pictures[0] has no question"
    for wrong in (str(photo), "file:///etc/hostname", "data:image/png;base64,%", picture[5:]):
        yield {"pictures": [wrong], "texts": [QUESTION]}, "pictures[0] is not a data URL: send data"
    for content in (b"", b"GIF89a", photo.read_bytes()[:60]):
        broken = {"pictures": [as_url(content)], "texts": [QUESTION]}
        yield broken, "pictures[0] cannot be read as a picture"


def test_what_is_no_picture_with_a_question_is_refused_in_one_line(site, photo):
    for asked, message in refusals(photo):
        is_one_line(site.post("classify", asked), 400, message)
    asked = {"picture": as_url(photo.read_bytes()), "text": QUESTION, "target": "a"}
    is_one_line(site.post("attention", asked), 400, "are for translators")


def test_many_pixels_in_all_are_refused_before_they_are_read(site, monkeypatch):
    content = io.BytesIO()
    Image.new("1", (4000, 1300)).save(content, "PNG")
    asked = {"pictures": [as_url(content.getvalue())] * 10, "texts": [QUESTION] * 10}
    monkeypatch.setattr(routes, "read_picture", lambda *_, **__: pytest.fail("it is read"))
    is_one_line(site.post("classify", asked), 400, "over 50,000,000 pixels in all")


@pytest.mark.browser
def test_a_picture_and_a_question_on_the_page_give_answers_and_heads(chromium, site, scenes, photo):
    with opened(chromium, site, viewport=PHONE) as page:
        page.fill("#text", QUESTION)
        assert not page.query_selector_all(".answers li")
        page.set_input_files("#photo", photo)
        wait_for(page, "() => document.querySelectorAll('.answers li').length > 0")
        [best] = scenes.classify([f"{photo}\t{QUESTION}"])
        assert page.query_selector(".answers .answer").inner_text() == best
        page.get_by_role("tab", name="Heads").click()
        wait_for(page, "() => document.querySelector('#picture-frame img') !== null")
        wait_for(page, "() => document.getElementById('panel-told').textContent === ''")
        assert overflow(page) <= 0
