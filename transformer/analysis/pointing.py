"""Compares attention over an image with the objects that are known to be relevant."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

Box = tuple[int, ...]  # (left, top, right, bottom) in pixels; right and bottom are exclusive


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
