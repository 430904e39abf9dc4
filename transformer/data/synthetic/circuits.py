"""Toy sources for models whose circuits are known: repeated sequences, and modular addition."""

import random
import string
from collections.abc import Mapping
from operator import attrgetter

from transformer.data.pairs import Labelled
from transformer.data.synthetic import fill

MIN_LETTERS, MAX_LETTERS = 8, 24  # of a random sequence, before it is repeated
MODULUS = 97


def repeat_sequences(seed: int, sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """Returns random sequences of distinct letters, each followed by itself.

    The sequences have different lengths, so no fixed offset gives the next letter in the second
    half. Letters in the first half are random.

    Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
    """
    uniform = random.Random(seed).random

    def draw() -> list[str]:
        length = MIN_LETTERS + int(uniform() * (MAX_LETTERS + 1 - MIN_LETTERS))
        letters = sorted(string.ascii_letters, key=lambda _: uniform())[:length]
        return [" ".join(2 * letters)]

    return fill(draw, str, sizes)


def add_numbers(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Labelled]]:
    """Returns sums of two numbers below `MODULUS`, with the remainder as the label.

    Both orders of the numbers are in the same split, so held-out sums need more than symmetry.

    Source: Power et al. 2022, "Grokking: Generalization Beyond Overfitting on Small Algorithmic
    Datasets"; Nanda et al. 2023, "Progress measures for grokking via mechanistic interpretability".
    """
    uniform = random.Random(seed).random

    def draw() -> list[Labelled]:
        a, b = sorted(int(uniform() * MODULUS) for _ in range(2))
        texts = dict.fromkeys((f"{a} + {b}", f"{b} + {a}"))
        return [Labelled(text, str((a + b) % MODULUS)) for text in texts]

    return fill(draw, attrgetter("text"), sizes)
