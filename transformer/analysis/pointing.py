"""Compares attention over an image with the objects that are known to be relevant."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

Box = tuple[int, ...]  # (left, top, right, bottom) in pixels; right and bottom are exclusive


def coverage(boxes: Sequence[Box], grid: int, size: int) -> Float[np.ndarray, "P"]:
    """Returns the fraction of each patch that is covered by boxes, which must not overlap.

    Args:
      grid: number of patches per side of an image.
      size: pixels per side of a patch.
    """
    edges = size * np.arange(grid + 1)
    total = np.zeros((grid, grid))
    for x0, y0, x1, y1 in boxes:
        down, across = (
            np.maximum(0, np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]))
            for start, end in ((y0, y1), (x0, x1))
        )
        total += np.outer(down, across)
    return (total / size**2).ravel()


def points_at(
    weights: Float[np.ndarray, "*heads P"], boxes: Sequence[Box], grid: int, size: int
) -> Bool[np.ndarray, "*heads"]:
    """Returns whether the centre of the patch with the largest weight lies in a box.

    Source: Zhang et al. 2018, "Top-Down Neural Attention by Excitation Backprop", section 4.2
    ("pointing game").
    """
    row, column = np.divmod(weights.argmax(axis=-1), grid)
    x, y = (size * (place + 0.5) for place in (column, row))
    inside = [(x0 <= x) & (x < x1) & (y0 <= y) & (y < y1) for x0, y0, x1, y1 in boxes]
    return np.any(inside, axis=0)


def overlap(
    weights: Float[np.ndarray, "*heads P"], covered: Float[np.ndarray, "P"]
) -> Float[np.ndarray, "*heads"]:
    """Returns the intersection over union (IoU) of the boxes and each head's most attended patches.

    The most attended patches are those with at least half of the head's maximum weight.
    """
    looked = weights >= weights.max(axis=-1, keepdims=True) / 2
    shared = looked @ covered
    return shared / (looked.sum(axis=-1) + covered.sum() - shared)


def rollout(weights: Float[np.ndarray, "layers H M M"]) -> Float[np.ndarray, "M M"]:
    """Returns the attention rollout: the contribution of each input to each output over all layers.

    This is the product, over layers, of (mean attention of all heads + identity matrix) / 2.

    Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.
    """
    identity = np.eye(weights.shape[-1])
    flow = identity
    for layer in weights.mean(axis=1, dtype=np.float64):
        flow = (0.5 * layer + 0.5 * identity) @ flow
    return flow
