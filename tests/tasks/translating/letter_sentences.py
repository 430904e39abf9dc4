"""Random sentences of letters."""

import numpy as np

LETTERS = "abcdefghijklmnop"


def sentences(count, seed=0, longest=12):
    random = np.random.default_rng(seed)
    return [
        " ".join(random.choice(list(LETTERS), random.integers(1, longest + 1)))
        for _ in range(count)
    ]
