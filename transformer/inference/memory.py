"""Checks that a search fits into memory, before it is compiled."""

import math
import os
from typing import Any

import jax

from transformer.errors import RunError

GIB = 2**30
FLAT = 2**31  # a search numbers the continuations of a sentence with int32


def check_search(
    cache: Any,
    rows: int,
    beam_size: int,
    steps: int,
    vocab_size: int,
    memory: int | None = None,
    searches: int = 1,
) -> None:
    """Checks that searches are not too large for the device.

    The estimate is a lower bound, so that no search is refused that would fit.

    Args:
      cache: the model's cache for all hypotheses; only its shapes are read.
      rows: sentences of a search.
      beam_size: hypotheses per sentence.
      steps: maximum tokens of a translation.
      memory: bytes; by default those of the device.
      searches: how many run at the same time.
    """
    numbers = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    # The cache is written into a copy; logits become log-probabilities; and unfinished and
    # finished hypotheses and the candidates for both are in memory at once.
    needed = searches * (2 * numbers + rows * beam_size * (8 * vocab_size + 16 * steps))
    memory = device_memory() if memory is None else memory
    at_once = f"{searches * rows} sentences at once"
    what = f"config.decode.batch_size and config.decode.beam_size={beam_size}: {at_once}"
    if needed > memory:
        raise RunError(
            f"{what} need {needed / GIB:,.1f} GiB or more, and this device has "
            f"{memory / GIB:,.1f}: lower one of them"
        )
    if beam_size * vocab_size >= FLAT:
        raise RunError(
            f"config.decode.beam_size={beam_size} times a vocabulary of {vocab_size:,} is more "
            "than can be numbered: lower it"
        )


def device_memory() -> int:
    """Returns the bytes of memory of the first device, or of the machine if that is a CPU."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("bytes_limit") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
