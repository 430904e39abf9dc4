"""A report of a run without its checkpoint, and a translator whose answers are known."""

from types import SimpleNamespace

import jax.numpy as jnp

from experiments.results import report_page as report
from experiments.results.outputs import MAX_DRAWN_TOKENS
from transformer.data.words import Words
from transformer.inference.translator import Translator
from transformer.runs.run import Run


def same_page(config, folder):
    """The page of a run whose checkpoint is not read."""
    run = Run(folder, config)
    return report.write(run, run.results, None, "nobody looked").read_text()


class Reader(Translator):
    """A translator whose words are tokens, and which weighs the source's by their places.

    `read` are the shapes of what it was given.
    """

    max_length = MAX_DRAWN_TOKENS + 9
    source_tokenizer = target_tokenizer = SimpleNamespace(
        encode=lambda texts: [[7] * len(text.split()) for text in texts],
        pieces=lambda ids: ["x"] * len(ids),
        words=Words(),
    )

    def __init__(self, kind="transformer", attention="none"):
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
        settings = SimpleNamespace(architecture=kind, recurrent_attention=attention, **layers)
        self.model, self.read = SimpleNamespace(config=settings), []

    def batch_attention(self, variables, batch):
        self.read.append(batch.source.shape)
        rows, length = batch.source.shape
        heads = jnp.stack([jnp.arange(length) / 10, jnp.zeros(length)])  # their mean is a half
        weights = jnp.broadcast_to(heads[:, None], (rows, 2, length, length))
        return {"cross": SimpleNamespace(weights=jnp.stack([weights + 1, weights]))}
