"""Inputs of image models, as NumPy or JAX arrays."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Int, Real


class PictureText(NamedTuple):
    """Images as patches, and the tokens of a question about each image, padded with 0.

    An image has P patches in row-major order, each with F = size * size * channels numbers from 0
    to 255 (uint8, or float32 after augmentation). L is 0 if there are no questions.
    """

    patches: Real[Array | np.ndarray, "*batch P F"]
    tokens: Int[Array | np.ndarray, "*batch L"]


def to_patches(pixels: Any, size: int) -> Any:
    """Returns the patches [*N, P, F] of images [*N, S, S, C], in row-major order.

    The pixels of a patch are flattened in row-major order: F is size * size * C.
    """
    *pictures, side, _, channels = pixels.shape
    grid = side // size
    split = pixels.reshape(*pictures, grid, size, grid, size, channels).swapaxes(-3, -4)
    return split.reshape(*pictures, grid * grid, size * size * channels)


def from_patches(patches: Any, size: int) -> Any:
    """Returns the images [*N, S, S, C] of patches; this is the inverse of `to_patches`."""
    *pictures, count, numbers = patches.shape
    grid, channels = math.isqrt(count), numbers // size**2
    split = patches.reshape(*pictures, grid, grid, size, size, channels).swapaxes(-3, -4)
    return split.reshape(*pictures, grid * size, grid * size, channels)
