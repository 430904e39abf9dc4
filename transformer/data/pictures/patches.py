"""Images as model inputs: file decoding, patches with question tokens, and batches.

Invalid image files are rejected with an error that gives the file name.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from transformer.data.batches import BatchPlan, stack_rows
from transformer.data.files.locate import class_files
from transformer.data.labelled import read_texts
from transformer.data.pairs import LabelledPicture
from transformer.data.token_store import TokenStore, digest_arrays
from transformer.data.tokenizer import Ids, Tokenizer
from transformer.errors import UserError, one_line
from transformer.files import open_input
from transformer.model.vision.inputs import PictureText, to_patches

# Pillow's names of the formats that are accepted in folders, tables and requests. Pillow opens some
# other formats, such as EPS, with an external program.
FORMATS = ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "PPM", "JPEG2000", "TGA", "ICO"]
ENDINGS = [end for end, name in Image.registered_extensions().items() if name in FORMATS]
MAX_BYTES = 2**29  # maximum file size in bytes
MAX_PIXELS = 50_000_000  # per file or request; more is a mistake or a denial-of-service attack
WIDE = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")  # modes with more than 8 bits
DEPTHS = (8, 10, 12, 14, 16, 24, 32)  # possible bit depths of pixel values in these modes
INK = 20  # length in pixels of the longer side of handwriting in a 28-pixel image, as in MNIST
MIN_CONTRAST = 32  # minimum difference between ink and paper, on a scale of 0 to 255

logger = logging.getLogger(__name__)
logging.getLogger("PIL").setLevel(logging.CRITICAL)  # Pillow also logs the errors that it raises

Pixels = UInt8[np.ndarray, "S S C"]


def read_picture(
    file: Path | bytes, side: int, channels: int, ink: bool = False, name: str = ""
) -> Pixels:
    """Reads an image file and returns its centre crop, resized to `side` x `side` pixels.

    The image is rotated according to its EXIF data, and transparent areas become white.

    Args:
      file: path or content of the image file.
      channels: 3 for RGB, 1 for greyscale.
      ink: whether to convert handwriting to the format of MNIST: bright on black, longer side 20 of
        28 pixels, centre of mass in the middle (LeCun et al. 1998, section III.A).
      name: name of the image in error messages; by default the path.
    """
    name = name or str(file)
    picture = _open_picture(file, name)
    if ink:
        return _center_ink(picture.convert("L"), side, name)
    square = ImageOps.fit(picture, (side, side), Image.Resampling.BILINEAR)
    pixels = np.asarray(square.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(side, side, channels)


def count_pixels(content: bytes, name: str) -> int:
    """Returns the number of pixels from the image header, or from the whole file for ICO."""
    with _open_decoded(content, name) as picture:
        return picture.width * picture.height


@contextlib.contextmanager
def _open_decoded(content: bytes, name: str) -> Iterator[Image.Image]:
    """Yields an image after reading its header; converts errors in the block to UserErrors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on large images, which are rejected, and odd metadata
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    raise ValueError(f"it has more than {MAX_PIXELS:,} pixels")
                count, is_jpeg = getattr(picture, "n_frames", 1), picture.format in ("JPEG", "MPO")
                if count > 1 and not is_jpeg:  # cameras may append copies
                    raise ValueError(f"it has {count} pictures")
                yield picture
    except Exception as error:  # Pillow raises many types of errors for a damaged file
        why = one_line(str(error)) or type(error).__name__
        if isinstance(error, UnidentifiedImageError):  # the message contains the repr of an object
            why = f"it is none of {', '.join(FORMATS)}" if content else "it is empty"
        raise UserError(
            f"{name} cannot be read as a picture ({why}): save it again as PNG or JPEG, as one "
            f"picture of at most {MAX_PIXELS:,} pixels"
        ) from error


def _open_picture(file: Path | bytes, name: str) -> Image.Image:
    """Returns the image in a file with 8 bits per channel, upright and without transparency."""
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
    """Scales grey values to bytes; white is 1, or the maximum value of the image's bit depth."""
    low, high = float(values.min()), float(values.max())
    white = next((2**bits - 1 for bits in DEPTHS if high <= 2**bits - 1), 0)
    white = 1 if values.dtype.kind == "f" and high <= 1 else white
    if not (low >= 0 and white):  # true for NaN, too
        raise ValueError(f"its grey values are from {low:g} to {high:g}: scale them to 0 to 255")
    return (values * (255 / white)).round().astype(np.uint8)


def _center_ink(picture: Image.Image, side: int, name: str) -> Pixels:
    """Converts handwriting to the format of MNIST; see `read_picture`."""
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
    """Returns sorted (name, question, label) of images in class folders; the question is ''."""
    items, left_out = class_files(folder, ENDINGS)
    if not items:
        raise UserError(
            f"{folder} has no folders with pictures{left_out}: put those of each class, as "
            f"{', '.join(FORMATS)}, into a folder of its name"
        )
    if left_out:
        logger.warning(f"{folder}: {len(items):,} pictures{left_out}")
    return [(str(path.relative_to(folder)), "", label) for label, path in items]


# -- patches and tokens


class SeenPicture(NamedTuple):
    """An image and a question as model inputs; the question may have no tokens."""

    patches: UInt8[np.ndarray, "P F"]
    tokens: Ids


class PictureStore(NamedTuple):
    """The patches of images, and the image index of each item, from zero."""

    patches: UInt8[np.ndarray, "pictures P F"]
    pictures: Int[np.ndarray, "items"]

    @property
    def lengths(self) -> Int[np.ndarray, "items"]:
        """Number of patches per item."""
        return np.full(len(self.pictures), self.patches.shape[1])

    def gather(self, numbers: Int[np.ndarray, "*rows"]) -> UInt8[np.ndarray, "*rows P F"]:
        """Returns the patches of the items with these indices; the index -1 gives zeros."""
        patches = self.patches[self.pictures[numbers]]
        patches[numbers < 0] = 0
        return patches


class EncodedPictures(NamedTuple):
    """Images with questions and classes as model inputs.

    Attributes:
      picture_store: the patches of the images.
      store: the tokens of each question.
      labels: the class id of each item, from zero.
    """

    picture_store: PictureStore
    store: TokenStore
    labels: Int[np.ndarray, "items"]
    unknown_fraction = 0.0  # not counted

    @property
    def arrays_digest(self) -> str:
        """Digest of all arrays."""
        return digest_arrays(*self.picture_store, *vars(self.store).values(), self.labels)

    @property
    def before(self) -> int:
        """Number of positions before the tokens: the class token and the patches."""
        return 1 + self.picture_store.patches.shape[1]

    def gather(self, numbers: Int[np.ndarray, "*rows"], width: int) -> PictureText:
        """Returns the model inputs of the items `numbers`; see `TokenStore.gather`."""
        tokens, _ = self.store.gather(numbers, width)
        return PictureText(self.picture_store.gather(numbers), tokens)

    def items(self) -> list[SeenPicture]:
        """Returns the model inputs of each item."""
        patches, pictures = self.picture_store
        return [SeenPicture(patches[p], self.store[i]) for i, p in enumerate(pictures)]


def read_questions(
    questions: Sequence[str], tokenizer: Tokenizer | None, max_tokens: int | None
) -> list[Ids]:
    """Returns each question's token ids with begin-of-sentence, or [] if `tokenizer` is None."""
    if tokenizer is None:
        return [[] for _ in questions]
    return [ids[:max_tokens] for ids in read_texts(questions, tokenizer)]


def store_pictures(
    items: Sequence[LabelledPicture], pixels: UInt8[np.ndarray, "pictures S S C"], patch_size: int
) -> PictureStore:
    """Returns the images of items as patches."""
    pictures = np.array([item.picture for item in items], np.int32)
    return PictureStore(to_patches(pixels, patch_size), pictures)


def stack_pictures(
    items: Sequence[SeenPicture], shape: tuple[int, int], rows: int, length: int
) -> PictureText:
    """Returns up to `rows` items as arrays, with questions padded to `length` tokens.

    Args:
      shape: number of patches per image, and number of values per patch.
    """
    patches = np.zeros((rows, *shape), np.uint8)
    for row, item in enumerate(items):
        patches[row] = item.patches
    return PictureText(patches, stack_rows([item.tokens for item in items], rows, length))


class CaptionPlan(BatchPlan):
    """All training batches of images and their captions; see `BatchPlan`."""

    def read_sources(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> PictureText:
        return without_questions(self.source.gather(numbers))


def patch_names(grid: int) -> list[str]:
    """Returns the names of the patches of an image: "row,column", from one."""
    return [f"{row + 1},{column + 1}" for row, column in np.ndindex(grid, grid)]


def without_questions(patches: UInt8[Any, "*batch P F"]) -> PictureText:
    """Returns image patches as inputs of a model without questions."""
    return PictureText(patches, np.zeros((*patches.shape[:-2], 0), np.int32))
