"""Picture files of all kinds are squares of bytes, and others are refused in a line."""

import io

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from transformer.data.pictures.patches import ENDINGS, FORMATS, read_picture
from transformer.errors import UserError

RED, WHITE, BLACK = (255, 0, 0), (255, 255, 255), (0, 0, 0)


def save(folder, picture, name="a.png", **options):
    picture.save(folder / name, **options)
    return folder / name


def flat(mode, colour, size=(30, 20)):
    return Image.new(mode, size, colour)


@pytest.mark.parametrize(
    ("picture", "name", "expected"),
    [
        (flat("RGB", RED), "a.png", RED),
        (flat("L", 77), "a.png", (77, 77, 77)),
        (flat("P", 0), "a.gif", BLACK),
        (flat("RGBA", (255, 0, 0, 0)), "a.png", WHITE),  # transparent
        (flat("CMYK", (0, 255, 255, 0)), "a.tif", RED),
        (flat("I;16", 77 * 256), "a.png", (77, 77, 77)),
    ],
)
def test_every_mode_is_read(tmp_path, picture, name, expected):
    pixels = read_picture(save(tmp_path, picture, name), 8, 3)
    assert (pixels.shape, pixels.dtype) == ((8, 8, 3), np.uint8)
    assert np.abs(pixels.astype(int) - expected).max() <= 2
    grey = read_picture(tmp_path / name, 8, 1)
    assert grey.shape == (8, 8, 1)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_read_by_content_and_its_files_by_their_endings(tmp_path, form):
    content = io.BytesIO()
    flat("RGB", RED, (32, 32)).save(content, form)
    assert np.abs(read_picture(content.getvalue(), 8, 3).astype(int) - RED).max() <= 2
    endings = {"JPEG": ".jfif", "TIFF": ".tif", "JPEG2000": ".jp2"}
    assert endings.get(form, f".{form.lower()}") in ENDINGS


def test_no_program_reads_a_picture(monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("it is run"))
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(UserError, match="none of PNG"):
        read_picture(script, 8, 3, name="a")


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_white_is_what_the_bits_in_use_hold(tmp_path, bits):
    values = np.full((8, 8), 2 ** (bits - 1), np.uint16)
    values[0] = 2**bits - 1
    for numbers in (values, values.astype(np.float32), (values / values.max()).astype(np.float32)):
        path = save(tmp_path, Image.fromarray(numbers), "a.tif")
        pixels = read_picture(path, 8, 1)[..., 0]
        assert (pixels[0].min(), set(pixels[1:].ravel())) == (255, {128})


def test_grey_values_that_are_not_numbers_are_refused(tmp_path):
    path = save(tmp_path, Image.fromarray(np.full((8, 8), np.nan, np.float32)), "a.tif")
    with pytest.raises(UserError, match=r"a\.tif cannot be read.*its grey values are from"):
        read_picture(path, 8, 1)


def test_the_middle_is_cut_out_upright(tmp_path):
    picture = flat("RGB", RED, (60, 20))
    picture.paste(BLACK, (20, 0, 40, 20))
    assert read_picture(save(tmp_path, picture), 10, 3)[:, 1:-1].max() == 0
    turned = flat("RGB", BLACK, (20, 20))
    turned.paste(WHITE, (0, 0, 20, 10))  # the upper half, which EXIF turns to the right
    exif = turned.getexif()
    exif[0x0112] = 6
    pixels = read_picture(save(tmp_path, turned, "b.jpg", exif=exif, quality=95), 20, 1)
    assert pixels[:, 12:].min() > 240
    assert pixels[:, :8].max() < 15


def test_handwriting_becomes_as_that_of_mnist(tmp_path):
    paper = flat("L", 230, (300, 200))
    paper.paste(30, (200, 40, 220, 140))  # a stroke, of 20 x 100 pixels
    pixels = read_picture(save(tmp_path, paper), 28, 1, ink=True)[..., 0].astype(float)
    rows, columns = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
    assert (len(rows), len(columns)) == (20, 4)
    assert pixels.max() == 255
    places = np.arange(28) + 0.5
    assert places @ pixels.sum(axis=1) / pixels.sum() == pytest.approx(14, abs=0.5)
    assert places @ pixels.sum(axis=0) / pixels.sum() == pytest.approx(14, abs=0.5)
    with pytest.raises(UserError, match="no ink"):
        read_picture(save(tmp_path, flat("L", 230)), 28, 1, ink=True)


def damaged(folder, kind):
    path = folder / "broken.png"
    if kind == "missing":
        return path
    if kind == "animated":
        frames = flat("RGB", RED), [flat("RGB", WHITE)]
        return save(folder, frames[0], "a.gif", save_all=True, append_images=frames[1])
    if kind == "huge":
        return save(folder, Image.new("1", (10_000, 6_000)), "huge.png")
    whole = save(folder, Image.effect_noise((64, 64), 50), "whole.png").read_bytes()
    content = {"text": b"no picture", "truncated": whole[: len(whole) // 2]}
    path.write_bytes(content[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "is missing"),
        ("text", "cannot be read as a picture"),
        ("truncated", "cannot be read as a picture"),
        ("animated", "has 2 pictures"),
        ("huge", "more than 50,000,000"),
    ],
)
def test_what_is_no_picture_is_refused_with_its_name(tmp_path, kind, message):
    path = damaged(tmp_path, kind)
    with pytest.raises(UserError, match=message) as error:
        read_picture(path, 8, 3)
    assert str(path) in str(error.value)
