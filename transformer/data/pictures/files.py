"""Reads picture files as squares of bytes, with an error for invalid files; and picture folders."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from transformer.data.files.locate import class_files
from transformer.errors import UserError, one_line
from transformer.files import open_input

# Pillow's names of the formats that are read, in folders, tables and requests. For others that it
# can open, such as EPS, it starts a program.
FORMATS = ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "PPM", "JPEG2000", "TGA", "ICO"]
ENDINGS = [end for end, name in Image.registered_extensions().items() if name in FORMATS]
MAX_BYTES = 2**29  # maximum size of a file
MAX_PIXELS = 50_000_000  # of a file or a request; more is a mistake, or a denial of service
WIDE = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")  # modes with more than 8 bits
DEPTHS = (8, 10, 12, 14, 16, 24, 32)  # bit depths that their values may have
INK = 20  # pixels of the longer side of handwriting, of 28, as in MNIST
MIN_CONTRAST = 32  # between ink and paper, of 255

logger = logging.getLogger(__name__)
logging.getLogger("PIL").setLevel(logging.CRITICAL)  # it logs the errors that it raises

Pixels = UInt8[np.ndarray, "S S C"]


def read_picture(
    file: Path | bytes, side: int, channels: int, ink: bool = False, name: str = ""
) -> Pixels:
    """Returns the centre of a picture file as a square of `side` pixels.

    The picture is rotated as its EXIF data say, and transparent areas become white.

    Args:
      file: its path or its content.
      channels: 3 for red, green and blue; 1 for grey.
      ink: reads handwriting as in MNIST: bright on black, its longer side 20 of 28 pixels, its
        centre of mass in the middle (LeCun et al. 1998, section III.A).
      name: the picture's name in messages; by default the path.
    """
    name = name or str(file)
    picture = _open_picture(file, name)
    if ink:
        return _center_ink(picture.convert("L"), side, name)
    square = ImageOps.fit(picture, (side, side), Image.Resampling.BILINEAR)
    pixels = np.asarray(square.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(side, side, channels)


def count_pixels(content: bytes, name: str) -> int:
    """Returns the number of pixels in a picture's header; Pillow reads ICO files completely."""
    with _open_decoded(content, name) as picture:
        return picture.width * picture.height


@contextlib.contextmanager
def _open_decoded(content: bytes, name: str) -> Iterator[Image.Image]:
    """Yields a picture after reading its header; errors in the block become errors of its file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large pictures, which are refused, and odd metadata
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    raise ValueError(f"it has more than {MAX_PIXELS:,} pixels")
                count, is_jpeg = getattr(picture, "n_frames", 1), picture.format in ("JPEG", "MPO")
                if count > 1 and not is_jpeg:  # cameras may append copies
                    raise ValueError(f"it has {count} pictures")
                yield picture
    except Exception as error:  # Pillow raises many types of errors for a damaged file
        why = one_line(str(error)) or type(error).__name__
        if isinstance(error, UnidentifiedImageError):  # its message shows a Python object
            why = f"it is none of {', '.join(FORMATS)}" if content else "it is empty"
        raise UserError(
            f"{name} cannot be read as a picture ({why}): save it again as PNG or JPEG, as one "
            f"picture of at most {MAX_PIXELS:,} pixels"
        ) from error


def _open_picture(file: Path | bytes, name: str) -> Image.Image:
    """Returns a file as a picture of 8 bits, upright and without transparency."""
    if isinstance(file, Path):
        with open_input(file, MAX_BYTES, "name a picture") as opened:
            file = opened.read()
    with _open_decoded(file, name) as picture:
        upright = ImageOps.exif_transpose(picture)
        upright.load()
        if upright.mode in WIDE:
            upright = Image.fromarray(_to_bytes(np.asarray(upright)))
        if upright.has_transparency_data:
            whole = upright.convert("RGBA")
            paper = Image.new("RGBA", whole.size, "white")
            upright = Image.alpha_composite(paper, whole)
        return upright.convert("L" if upright.mode in ("1", "L") else "RGB")


def _to_bytes(values: np.ndarray) -> UInt8[np.ndarray, "h w"]:
    """Returns grey values as bytes: white is 1 or the maximum of the bit depth, as 12 of 16."""
    low, high = float(values.min()), float(values.max())
    white = next((2**bits - 1 for bits in DEPTHS if high <= 2**bits - 1), 0)
    white = 1 if values.dtype.kind == "f" and high <= 1 else white
    if not (low >= 0 and white):  # true for NaN, too
        raise ValueError(f"its grey values are from {low:g} to {high:g}: scale them to 0 to 255")
    return (values * (255 / white)).round().astype(np.uint8)


def _center_ink(picture: Image.Image, side: int, name: str) -> Pixels:
    """Returns handwriting in the format of MNIST, see `read_picture`."""
    grey = np.asarray(picture).astype(np.float64)
    paper = np.median(np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]]))
    strength = np.abs(grey - paper)
    if strength.max() < MIN_CONTRAST:
        raise UserError(f"{name} has no ink that differs from its edge: photograph it again")
    strength = np.where(strength > strength.max() / 3, strength, 0)
    rows, columns = (np.flatnonzero(strength.any(axis=axis)) for axis in (1, 0))
    cut = strength[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] * 255 / strength.max()
    scale = INK / 28 * side / max(cut.shape)
    size = [max(1, round(length * scale)) for length in cut.shape[::-1]]
    ink = Image.fromarray(cut.astype(np.uint8)).resize((size[0], size[1]), Image.Resampling.BOX)
    drawn = np.asarray(ink).astype(np.float64)
    middle = [
        round(side / 2 - (np.arange(n) + 0.5) @ drawn.sum(axis=1 - axis) / drawn.sum())
        for axis, n in enumerate(drawn.shape)
    ]
    row, column = (min(max(0, at), side - n) for at, n in zip(middle, drawn.shape, strict=True))
    pixels = np.zeros((side, side, 1), np.uint8)
    pixels[row : row + drawn.shape[0], column : column + drawn.shape[1], 0] = drawn
    return pixels


def read_classes(folder: Path) -> list[tuple[str, str, str]]:
    """Returns (name, "", label) of each picture in the class folders of a folder, sorted."""
    items, left_out = class_files(folder, ENDINGS)
    if not items:
        raise UserError(
            f"{folder} has no folders with pictures{left_out}: put those of each class, as "
            f"{', '.join(FORMATS)}, into a folder of its name"
        )
    if left_out:
        logger.warning(f"{folder}: {len(items):,} pictures{left_out}")
    return [(str(path.relative_to(folder)), "", label) for label, path in items]
