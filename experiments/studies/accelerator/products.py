"""The part `peak`: how fast the device multiplies large matrices."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from experiments.studies.accelerator.parts import Order, within

SIZES, TOY_SIZES = (4096, 8192), (128,)
CHAIN = 16  # products of one program, so that its start does not count
ROUNDS = 5
KINDS = {
    "bfloat16": ("bfloat16", None),
    "float32": ("float32", None),  # as models multiply: of few bits, if that is the default
    "float32, highest precision": ("float32", "highest"),
}


def measure(order: Order) -> Iterator[dict[str, Any]]:
    """Yields the floating-point operations per second of each size and kind."""
    settings = list(itertools.product(TOY_SIZES if order.toy else SIZES, KINDS))
    for size, kind in within(order.seconds, settings):
        yield {"kind": kind, "size": size, "flops_per_second": _speed(size, *KINDS[kind])}


def peak(rows: Iterable[Mapping[str, Any]], kind: str) -> float | None:
    """Returns the largest speed of a kind that was measured, or None.

    Args:
      rows: of `measure`.
    """
    return max((row["flops_per_second"] for row in rows if row["kind"] == kind), default=None)


def make_chain(
    size: int, dtype: str, precision: str | None, products: int
) -> tuple[Callable[[Array], Array], Array]:
    """Returns a program that multiplies a square matrix so often by another, and that matrix."""
    x = jax.random.normal(jax.random.key(0), (size, size), jnp.float32)
    weights = (x / size**0.5).astype(dtype)  # the product is as large as its factor

    @jax.jit
    def chain(x, weights):  # an argument, since a constant would be a part of the program
        def product(_, x):
            return jnp.matmul(x, weights, precision=precision)

        return jax.lax.fori_loop(0, products, product, x)

    return lambda x: chain(x, weights), x.astype(dtype)


def _speed(size: int, dtype: str, precision: str | None) -> float:
    """The operations per second of products of square matrices, in the fastest round."""
    chain, x = make_chain(size, dtype, precision, CHAIN)
    x = jax.block_until_ready(chain(x))
    seconds = []
    for _ in range(ROUNDS):
        start = time.monotonic()
        jax.block_until_ready(chain(x))
        seconds.append(time.monotonic() - start)
    return CHAIN * 2 * size**3 / min(seconds)
