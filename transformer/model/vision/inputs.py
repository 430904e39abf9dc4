"""The inputs of picture models; arrays are those of NumPy or of JAX."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Int, Real


class PictureText(NamedTuple):
    """Pictures as patches of bytes, and the tokens of a question about each, padded with 0.

    There are P patches of F = size * size * channels numbers from 0 to 255, row by row: bytes, or
    float32 if training has changed them. L is 0 without questions.
    """

    patches: Real[Array | np.ndarray, "*batch P F"]
    tokens: Int[Array | np.ndarray, "*batch L"]


def to_patches(pixels: Any, size: int) -> Any:
    """Returns the patches [*N, P, F] of pictures [*N, S, S, C], row by row.

    A patch has the numbers of its pixels, row by row: F is size * size * C.
    """
    *pictures, side, _, channels = pixels.shape
    grid = side // size
    split = pixels.reshape(*pictures, grid, size, grid, size, channels).swapaxes(-3, -4)
    return split.reshape(*pictures, grid * grid, size * size * channels)


def from_patches(patches: Any, size: int) -> Any:
    """Returns the pictures [*N, S, S, C] of patches, the inverse of `to_patches`."""
    *pictures, count, numbers = patches.shape
    grid, channels = math.isqrt(count), numbers // size**2
    split = patches.reshape(*pictures, grid, grid, size, size, channels).swapaxes(-3, -4)
    return split.reshape(*pictures, grid * size, grid * size, channels)
