"""Random augmentation of training images on the device, with the augmax library."""

from collections.abc import Collection
from typing import Any

import augmax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from transformer.model.vision.inputs import from_patches, to_patches

CHANGES = ("crop", "flip", "rotate", "colour")
OF_ANSWERS = {"flip": "left", "colour": "red"}  # an answer that each augmentation would make wrong
MARGIN = 8  # crops shift by up to 1/8 of the side in pixels, with black padding (He et al. 2016)
ANGLE = 15  # maximum rotation in degrees, in both directions


def augment(
    patches: UInt8[Array | np.ndarray, "B P F"],
    size: int,
    names: Collection[str],
    key: PRNGKeyArray,
) -> Float[Array, "B P F"]:
    """Returns the patches of independently augmented images, with values from 0 to 255.

    Args:
      size: pixels per side of a patch.
      names: the augmentations to apply, a subset of CHANGES.
    """
    pixels = from_patches(jnp.asarray(patches, jnp.float32) / 255, size)
    side = pixels.shape[1]
    if "crop" in names:
        most, (of_crop, key) = side // MARGIN, jax.random.split(key)
        shifts = jax.random.randint(of_crop, (2, len(pixels)), 0, 2 * most + 1)
        around = jnp.pad(pixels, ((0, 0), (most, most), (most, most), (0, 0)))
        sizes = side, side, pixels.shape[-1]
        cut = lambda picture, y, x: jax.lax.dynamic_slice(picture, (y, x, 0), sizes)  # noqa: E731
        pixels = jax.vmap(cut)(around, *shifts)
    changes = {
        "flip": augmax.HorizontalFlip(),
        "rotate": augmax.Rotate(ANGLE),
        "colour": augmax.ColorJitter(),
    }
    change = augmax.Chain(*(changes[name] for name in changes if name in names))
    keys = jax.random.split(key, len(pixels))
    pixels: Any = jax.vmap(change)(keys, pixels)  # pyright: ignore[reportArgumentType]
    return to_patches(jnp.clip(pixels, 0, 1) * 255, size)


def mix(
    patches: Float[Array, "B P F"] | UInt8[Array | np.ndarray, "B P F"],
    alpha: float,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "B P F"], Float[Array, ""]]:
    """Returns a weighted mean of each image and its counterpart in the reversed batch.

    The weight is sampled once for the whole batch, and is also returned.

    Source: Zhang et al. 2018, "mixup: Beyond Empirical Risk Minimization", section 2.
    """
    share = jax.random.beta(key, alpha, alpha)
    pixels = jnp.asarray(patches, jnp.float32)
    return share * pixels + (1 - share) * pixels[::-1], share
