"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in JAX and Flax.

`transformer.load("runs/own")` returns a trained model as a `transformer.runs.loaded.LoadedRun`;
`transformer.train` trains a model. Errors that users can fix are of type `transformer.UserError`.

Letters for the dimensions in jaxtyping signatures and einsum strings:

    B  batch size                  D  embedding dimension, d_model
    L  query or target length      H  attention heads
    M  key or source length        K  head size, by default d_model / num_heads
    V  vocabulary size             F  inner dimension of the feed-forward layer, d_ff
    P  hypotheses per sentence in beam search

Masks are boolean, and True where a query may attend to a key. They are combined with logical AND
and applied once, in `model.attention.masked_softmax`. If all keys of a query are masked, the
attention weights of this query are zeros.

Suggested reading order, with the sections of the paper:

    model/attention.py    3.2.1 scaled dot product, 3.2.2 multi-head attention
    model/masks.py        3.2.3 masks
    model/layers.py       3.3 feed-forward, 3.4 embeddings, 5.4 dropout, 3.1 residual and norms
    model/positions/      3.5 positional encoding
    model/stack.py        3.1 encoder and decoder layers
    model/transformer.py  3.1 the complete model; incremental decoding
    model/losses.py       5.4 label smoothing
    optim/                5.3 optimizer and schedule; training/step.py: the training step
    data/ decoding/       5.1 batches.py, length buckets; 6.1 beam search; sampling

These modules are the core, which imports none of the other modules; see docs/architecture.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from transformer.errors import UserError

if TYPE_CHECKING:
    from transformer.runs.imported import import_marian
    from transformer.runs.loaded import LoadedRun, load, train

__all__ = ["LoadedRun", "UserError", "__version__", "import_marian", "load", "train"]
__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported on first access, so that importing this package does not import JAX.
    module = "imported" if name == "import_marian" else "loaded"
    return getattr(importlib.import_module(f"transformer.runs.{module}"), name)
