"""Whether a search can fit into memory at all, said before it is compiled."""

import math
import os
from typing import Any

import jax

from transformer.errors import RunError

GIB = 2**30
FLAT = 2**31  # a search numbers the continuations of a sentence with int32


def check_search(
    cache: Any, rows: int, beam: int, steps: int, vocab_size: int, memory: int | None = None
) -> None:
    """Checks that a search is not too large for this device.

    What is counted is what a search surely needs, so that none is refused that would run.

    Args:
      cache: what the model remembers of all hypotheses; only its shapes are read.
      rows: sentences at once.
      beam: hypotheses a sentence.
      steps: tokens of the longest.
      memory: bytes; those of the device where it is None.

    Raises:
      RunError: it is, with both sizes in GiB and the keys to lower.
    """
    numbers = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    # What is remembered is reordered into a copy; the logits become log-probabilities; and what
    # is written, what is done and the candidates for both are held at once.
    needed = 2 * numbers + rows * beam * (8 * vocab_size + 16 * steps)
    memory = device_memory() if memory is None else memory
    what = f"config.decode.batch_size and config.decode.beam_size={beam}: {rows} sentences at once"
    if needed > memory:
        raise RunError(
            f"{what} need {needed / GIB:,.1f} GiB or more, and this device has "
            f"{memory / GIB:,.1f}: lower one of them"
        )
    if beam * vocab_size >= FLAT:
        raise RunError(
            f"config.decode.beam_size={beam} times a vocabulary of {vocab_size:,} is more than "
            "can be numbered: lower it"
        )


def device_memory() -> int:
    """Returns the bytes of memory of the first device, or of the machine if that is its host."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("bytes_limit") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
