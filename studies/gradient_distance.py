"""Gradient norm by distance: why gradients vanish in recurrent networks and not in Transformers.

    python -m studies.gradient_distance
    python -m studies.gradient_distance --length=200 --output=runs/farther

Language models of equal parameters, untrained, read random tokens. Shown is how much what stands k
tokens back counts for the loss at the last position: the norm of the gradient of that loss by the
embedding of the token k before, over the norm at k = 0, averaged over sequences and seeds.

A recurrent network's gradient comes back through k states: it is multiplied by k Jacobians, for the
simple network diag(1 - h_t^2) U. Where their norms stay below some r < 1 it is at most r^k, a
straight line on the picture's axes; it can grow so too, which is not what untrained networks do
here. An LSTM's memory has one more way back, past the other gates, with a Jacobian of diag(f), and
the forget gate f starts near sigmoid(1) = 0.73 and can learn to be 1. A GRU's state has the like
with an update gate that starts near 0.5.

In a Transformer any two positions are one attention away from one another, at any k. Residual
connections make the last token's own embedding count most; the weights of untrained attention are
nearly equal, and so is what it passes back to all others.

Source: Bengio et al. 1994, "Learning Long-Term Dependencies with Gradient Descent is Difficult",
section IV; Hochreiter 1998, "The Vanishing Gradient Problem During Learning Recurrent Neural Nets
and Problem Solutions", section 3; Vaswani et al. 2017, section 4 (path lengths).
"""

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from matplotlib.figure import Figure

from configs import base
from experiments.display import plotting
from experiments.options import Parser, whole
from experiments.process import exit_code
from experiments.results.table import Table, print_rows
from transformer.files import write_arrays
from transformer.model.build import build_model
from transformer.model.config import ModelConfig
from transformer.model.layers import Embedding
from transformer.tasks.base import model_fields
from transformer.training.progress import parameter_counts

VOCABULARY, LAYERS = 64, 2
SEQUENCES = 32  # a seed
HEIGHT = 3.4  # inches
TABLE_DISTANCES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def language_model(**changes) -> ModelConfig:
    """Returns a small language model's configuration: `configs/base.py` with these changes."""
    defaults = model_fields(base.get_config())
    sizes = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY}
    depth = {"num_encoder_layers": 0, "num_decoder_layers": LAYERS}
    return ModelConfig(**{**defaults, **sizes, **depth, **changes})


# The widths make the numbers of parameters equal, within 2%.
MODELS = {
    "Transformer": language_model(d_model=64, d_ff=256, num_heads=4),
    "LSTM": language_model(architecture="recurrent", cell="lstm", d_model=78),
    "GRU": language_model(architecture="recurrent", cell="gru", d_model=90),
    "simple RNN": language_model(architecture="recurrent", cell="rnn", d_model=152),
}


@functools.partial(jax.jit, static_argnames="config")
def first_params(config: ModelConfig, seed: int | Int[Array, ""]) -> Any:
    """Returns untrained parameters."""
    model = build_model(config)
    tokens = jnp.zeros((1, 2), jnp.int32)
    return model.init(jax.random.key(seed), tokens, method=_logits)["params"]


@functools.partial(jax.jit, static_argnames="config")
def gradient_norms(
    config: ModelConfig, params: Any, tokens: Int[Array, "B L"], labels: Int[Array, "B"]
) -> Float[Array, "B L"]:
    """Returns the norm of the gradient of the last position's loss by each embedding.

    An embedding is what the table's lookup hands to the model, before positions are added. The
    first column is of the last token, whose successors are `labels`.
    """
    model = build_model(config)

    def loss(shift):
        def shifted(method, args, kwargs, context):
            output = method(*args, **kwargs)
            looked_up = isinstance(context.module, Embedding) and context.method_name == "__call__"
            return output + shift if looked_up else output

        with nn.intercept_methods(shifted):
            logits = cast(jax.Array, model.apply({"params": params}, tokens, method=_logits))
        # Sequences do not touch each other: the gradient of the sum holds that of each.
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, -1], labels).sum()

    gradient = jax.grad(loss)(jnp.zeros((*tokens.shape, config.d_model)))
    return jnp.linalg.norm(gradient, axis=-1)[:, ::-1]


def _logits(model: nn.Module, tokens: Int[Array, "B L"]) -> Float[Array, "B L V"]:
    """A language model's scores of each next token."""
    return model.logits(model.decode(tokens, None, None, jnp.ones_like(tokens, bool)))


def measure(config: ModelConfig, length: int, seeds: int) -> Float[np.ndarray, "seeds L"]:
    """Returns the mean norm over random sequences by distance, for a new model of each seed."""
    norms = []
    for seed in range(seeds):
        draws = np.random.default_rng(seed).integers(VOCABULARY, size=(SEQUENCES, length + 1))
        params = first_params(config, seed)
        of_sequences = gradient_norms(config, params, draws[:, :-1], draws[:, -1])
        norms.append(np.asarray(of_sequences, np.float64).mean(axis=0))
    return np.stack(norms)


def relative(norms: Float[np.ndarray, "seeds L"]) -> Float[np.ndarray, "seeds L"]:
    """Returns each seed's norms over its norm at distance 0."""
    return norms / norms[:, :1]


def build_figure(norms: dict[str, Float[np.ndarray, "seeds L"]]) -> Figure:
    """A line per model: the mean over seeds of the relative norm, in a band from least to most.

    The figure is outside pyplot.
    """
    figure = plotting.new_figure(plotting.WIDTH, HEIGHT)
    axes = figure.subplots()
    for number, (name, of_seeds) in enumerate(norms.items()):
        shares, colour = relative(of_seeds), plotting.COLOURS[number]
        distances = np.arange(shares.shape[1])
        look = {"marker": plotting.MARKER_SHAPES[number], "markevery": 0.1, "markersize": 4}
        axes.plot(distances, shares.mean(axis=0), label=name, linewidth=1.3, color=colour, **look)
        band = shares.min(axis=0), shares.max(axis=0)
        axes.fill_between(distances, *band, color=colour, alpha=0.2, linewidth=0)
    axes.set(yscale="log", xlim=(0, distances[-1]))
    axes.set_xlabel("distance k (tokens before the last)")
    axes.set_ylabel("gradient norm over that at k = 0")
    plotting.light_grid(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def run(arguments: Sequence[str]) -> int:
    """Measures the models of the command line; prints and draws the results."""
    parser = Parser(__doc__)
    parser.add_argument("--length", type=whole(2, 2000), default=101, help="tokens of a sequence")
    parser.add_argument("--seeds", type=whole(1, 1000), default=5, help="models of each kind")
    parser.add_argument("--output", type=Path, default="runs/gradients", help="folder to fill")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    sizes = options.length, options.seeds
    norms = {name: measure(config, *sizes) for name, config in MODELS.items()}
    distances = [k for k in TABLE_DISTANCES if k < options.length]
    rows = []
    for name, of_seeds in norms.items():
        parameters = sum(parameter_counts(first_params(MODELS[name], seed=0)).values())
        shares = relative(of_seeds).mean(axis=0)
        rows.append([name, f"{parameters:,}", *(f"{shares[k]:.1e}" for k in distances)])
    head = ("model", "parameters", *(f"k = {k}" for k in distances))
    print_rows(Table("Gradient norm by distance k, over that at k = 0", head, rows))
    picture = options.output / "gradients.png"
    plotting.save_figure(build_figure(norms), picture)
    write_arrays(picture.with_suffix(".npz"), norms)
    print(picture)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, or 2 after a line on a user error."""
    return exit_code(lambda: run(arguments), place="--output", memory="--length")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
