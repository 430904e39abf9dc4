"""What follows every prefix, for a search that can be compared with trying everything."""

import numpy as np
import pytest
from trie_search import MAX_LENGTHS, STEPS, VOCAB, trie_size


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return rng.normal(scale=1.5, size=(len(MAX_LENGTHS), trie_size(VOCAB, STEPS), VOCAB))
