"""Picture files as squares of bytes; of a file that is none, one line that says why."""

import io
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from transformer.errors import UserError

MAX_PIXELS = 50_000_000  # of a file: more is a mistake, or an attack on the memory
WIDE = ("I;16", "I;16B", "I;16L", "I")  # modes of 16 bits
ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
INK = 20  # pixels of the longer side of handwriting, of 28, as in MNIST
MIN_CONTRAST = 32  # between ink and paper, of 255

Pixels = UInt8[np.ndarray, "S S C"]


def read_picture(
    file: Path | bytes, side: int, channels: int, ink: bool = False, name: str = ""
) -> Pixels:
    """Returns the middle of a picture file as a square of `side` pixels.

    It is upright as its EXIF says, and white where it is transparent.

    Args:
      file: its path or its content.
      channels: 3 for red, green and blue; 1 for grey.
      ink: reads handwriting as that of MNIST: bright on black, its longer side 20 of 28 pixels, its
        centre of mass in the middle (LeCun et al. 1998, section III.A).
      name: of the picture, for messages; by default the path.
    """
    name = name or str(file)
    picture = _open(file, name)
    if ink:
        return _center_ink(picture.convert("L"), side, name)
    square = ImageOps.fit(picture, (side, side), Image.Resampling.BILINEAR)
    pixels = np.asarray(square.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(side, side, channels)


def _open(file: Path | bytes, name: str) -> Image.Image:
    """A file as a picture of 8 bits, upright and without transparency."""
    if isinstance(file, Path) and not file.is_file():
        raise UserError(f"{name} is not a file: name a picture")
    with warnings.catch_warnings():
        # Pillow warns of many pixels, which are refused here, and of odd metadata.
        warnings.simplefilter("ignore")
        try:
            with (
                file.open("rb") if isinstance(file, Path) else io.BytesIO(file) as content,
                Image.open(content) as picture,
            ):
                width, height = picture.size
                if width * height > MAX_PIXELS:
                    raise UserError(
                        f"{name} has {width:,} x {height:,} pixels, more than {MAX_PIXELS:,}: make "
                        "it smaller"
                    )
                if getattr(picture, "n_frames", 1) > 1:
                    raise UserError(
                        f"{name} has {picture.n_frames} pictures: save the one to be seen"  # pyright: ignore[reportAttributeAccessIssue]
                    )
                upright = ImageOps.exif_transpose(picture)
                upright.load()
        except Image.DecompressionBombError as error:
            raise UserError(f"{name} has too many pixels ({error}): make it smaller") from error
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError) as error:
            size = file.stat().st_size if isinstance(file, Path) else len(file)
            why = str(error) if size else "it is empty"
            raise UserError(
                f"{name} cannot be read as a picture ({why}): save it again as PNG or JPEG"
            ) from error
    if upright.mode in WIDE:
        upright = Image.fromarray((np.asarray(upright).astype(np.int64) >> 8).astype(np.uint8))
    if upright.has_transparency_data:
        whole = upright.convert("RGBA")
        paper = Image.new("RGBA", whole.size, "white")
        upright = Image.alpha_composite(paper, whole)
    return upright.convert("L" if upright.mode in ("1", "L") else "RGB")


def _center_ink(picture: Image.Image, side: int, name: str) -> Pixels:
    """Handwriting as that of MNIST, see `read_picture`."""
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
