"""Word embeddings from co-occurrence: words that share a sentence are pulled together.

    python -m studies.cooccurrence
    python -m studies.cooccurrence --loss=absolute
    python -m studies.cooccurrence --sentences=my_text.txt --output=runs/my_words

Each word has one vector, initialised from a normal distribution and trained so that the cosine of
each pair of words indicates whether they share a sentence. The vectors v_1 ... v_V minimise

    loss = 2 / (V (V - 1)) * sum over i < j of (cos(v_i, v_j) - t_ij)^2,

where t_ij is 1 if any sentence contains both words, and 0 otherwise. A target of 0 corresponds to
orthogonal vectors; more than two groups of words cannot be mutually opposite. With the option
`--loss=absolute`, the loss is the mean of |cos(v_i, v_j) - t_ij|: 1 - cos for words that share a
sentence, and |cos| for other pairs. A word in two sentences that share no other word cannot fit
both: its vector ends up between their directions, at cosines near 1 / sqrt(2).

The distributional hypothesis states that words in similar contexts have similar meanings. The loss
uses only which words share a sentence. Still, with the squared loss, two words that share no
sentence but have a common neighbour end up closer than two words without a common neighbour,
although both targets are 0: see the mean cosines that the command prints.

Source: Harris 1954, "Distributional Structure". The least-squares loss is that of Pennington et al.
2014, "GloVe: Global Vectors for Word Representation", equation 8. In GloVe, however, an inner
product with two biases replaces the cosine, the target is the logarithm of the count, weights grow
with the count and are 0 for pairs that never co-occur, and each word has a second vector for its
role as context.
"""

import functools
import string
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.display import plotting
from experiments.display.labels import labels_of
from experiments.process.process import exit_code
from experiments.results.table import Table, print_rows
from transformer.data.files.text import read_lines
from transformer.errors import UserError
from transformer.files import write_arrays

# Two sentences about kitchens, two about the sea, and one that connects them.
SENTENCES = (
    "Cooks stir hot soup with spoons.",
    "Cooks heat soup in copper pots.",
    "Sailors bring fresh fish to cooks.",
    "Sailors steer ships through waves.",
    "Ships cross waves under white sails.",
)
PUNCTUATION = string.punctuation + "“”„‘’‚«»‹›…–—¿¡"
LOSSES = {"squared": jnp.square, "absolute": jnp.abs}  # functions of (cosine - target)
MAX_WORDS = 1000  # since all pairs are compared and plotted
LEARNING_RATE = 0.05
CELL, MIN_SIDE, MAX_SIDE = 0.11, 1.6, 8.0  # inches: size per word, limits of a heat map's side
MAX_FONT, MIN_FONT = 7.0, 5.0  # points
LOSS_HEIGHT = 0.9  # inches


def split_words(sentences: Iterable[str], source: str) -> list[list[str]]:
    """Returns the distinct lowercased words of each non-empty sentence, without punctuation.

    `source` is the name of the text in error messages.
    """
    split = []
    for sentence in sentences:
        stripped = (word.strip(PUNCTUATION).lower() for word in sentence.split())
        split.append(list(dict.fromkeys(filter(None, stripped))))
    count = len({word for words in split for word in words})
    if not 2 <= count <= MAX_WORDS:
        raise UserError(
            f"{source} has {count:,} different words: give 2 to {MAX_WORDS:,}, each of which is "
            "compared with each, one sentence per line"
        )
    return list(filter(None, split))


def co_occurrence(sentences: Sequence[Sequence[str]]) -> tuple[list[str], Bool[np.ndarray, "V V"]]:
    """Returns the words in order of appearance, and the matrix of pairs that share a sentence.

    The matrix is symmetric, and True on the diagonal.
    """
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence))
    member = np.array([[word in sentence for word in words] for sentence in sentences], np.int64)
    return words, member.T @ member > 0


def cosines(vectors: Float[Array, "V D"]) -> Float[Array, "V V"]:
    """Returns the cosine similarity of each pair of vectors."""
    unit = vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return unit @ unit.T


def pair_loss(
    vectors: Float[Array, "V D"], together: Bool[Array, "V V"], loss: str = "squared"
) -> Float[Array, ""]:
    """Returns one of the losses in the module's docstring; each pair counts once."""
    # The sum contains each pair twice; the diagonal is zero.
    error = jnp.where(jnp.eye(len(vectors), dtype=bool), 0, cosines(vectors) - together)
    return jnp.sum(LOSSES[loss](error)) / (len(vectors) * (len(vectors) - 1))


@functools.partial(jax.jit, static_argnames=("steps", "loss"))
def train(
    vectors: Float[Array, "V D"], together: Bool[Array, "V V"], steps: int, loss: str = "squared"
) -> tuple[Float[Array, "V D"], Float[Array, "steps"]]:
    """Returns the vectors after `steps` steps of Adam, and the loss before each step."""
    optimizer = optax.adam(LEARNING_RATE)

    def step(carry: Any, _) -> tuple[Any, Array]:
        vectors, state = carry
        value, gradient = jax.value_and_grad(pair_loss)(vectors, together, loss)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(vectors, updates), state), value

    (vectors, _), losses = jax.lax.scan(step, (vectors, optimizer.init(vectors)), length=steps)
    return vectors, losses


def mean_cosines(
    similarity: Float[np.ndarray, "V V"], together: Bool[np.ndarray, "V V"]
) -> dict[str, float]:
    """Returns the mean cosine for each kind of pair that occurs."""
    once = np.triu(np.ones_like(together), 1)
    linked = together.astype(np.int64) @ together > 0
    kinds = {
        "in one sentence": together & once,
        "in none, with a neighbour in common": linked & ~together & once,
        "in none, without": ~linked & once,
    }
    return {kind: float(similarity[pairs].mean()) for kind, pairs in kinds.items() if pairs.any()}


def neighbours(
    similarity: Float[np.ndarray, "V V"], words: Sequence[str], count: int = 3
) -> list[str]:
    """Returns a line for each word with its nearest neighbours and their cosines, nearest first."""
    others = similarity - np.diag(np.full(len(words), np.inf))
    return [
        ", ".join(f"{words[j]} {similarity[i, j]:.2f}" for j in row[:-1][:count])
        for i, row in enumerate(np.argsort(-others, axis=1, kind="stable"))
    ]


def build_figure(words: Sequence[str], together, before, after, losses) -> Figure:
    """Plots heat maps of the cosines [V, V] before and after training, and the loss curve.

    Dots mark pairs in one sentence. If there are over 100 words, only every n-th word has a label.
    """
    side = min(max(CELL * len(words), MIN_SIDE), MAX_SIDE)
    figure = plotting.new_figure(2 * side + 1.4, side + 1.35 + LOSS_HEIGHT)
    ratios = {"height_ratios": (side, LOSS_HEIGHT)}
    panels = figure.subplot_mosaic([["before", "after"], ["loss", "loss"]], gridspec_kw=ratios)
    maps, axes = {"before": before, "after": after}, panels["loss"]
    for time, similarity in maps.items():
        mesh = _draw_map(panels[time], words, similarity, together, 72 * side / len(words))
        panels[time].set_title(f"{time} training", fontsize=9)
    panels["after"].tick_params(labelleft=False)
    place = {"ax": [panels[time] for time in maps], "aspect": 30, "pad": 0.01}
    plotting.add_colour_bar(mesh, [-1, 0, 1], "cosine (dots: words of one sentence)", **place)
    plotting.curve(axes, range(len(losses)), losses, color=plotting.COLOURS[0])
    axes.set(xlim=(0, len(losses)), ylim=(0, None), xlabel="training step", ylabel="loss")
    axes.tick_params(labelsize=7)
    return figure


def _draw_map(axes: Axes, words, similarity, together, pitch: float):
    """Plots one heat map with a spacing of `pitch` points between words; returns the image."""
    mesh = plotting.heat_map(axes, similarity, cmap=plotting.SIGNED, vmin=-1)
    rows, columns = np.nonzero(together & ~np.eye(len(words), dtype=bool))
    inks = np.where(np.abs(similarity[rows, columns]) > 0.55, "white", "black")
    axes.scatter(columns, rows, s=(0.18 * pitch) ** 2, color=inks, linewidths=0)
    font = min(max(pitch / 1.1, MIN_FONT), MAX_FONT)
    shown = range(0, len(words), int(np.ceil(1.1 * font / pitch - 1e-6)))
    texts, look = labels_of(words, font)
    labels = [texts[i] for i in shown]
    axes.set_yticks(shown, labels, **look)
    axes.set_xticks(shown, labels, rotation=90, **look)
    return mesh


def run(arguments: Sequence[str]) -> int:
    """Trains vectors with the settings of the command line; prints and plots the results."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=Path, help="UTF-8 text, one sentence per line")
    parser.add_argument("--output", type=Path, default="runs/cooccurrence", help="folder to fill")
    parser.add_argument("--loss", choices=LOSSES, default="squared", help="of a pair of words")
    parser.add_argument("--steps", type=int, default=200, help="training steps")
    parser.add_argument("--width", type=int, default=16, help="numbers in a vector")
    parser.add_argument("--seed", type=int, default=0, help="of the first vectors")
    options = parser.parse_args(arguments)
    lines = SENTENCES if options.sentences is None else read_lines(options.sentences)
    words, together = co_occurrence(split_words(lines, str(options.sentences)))
    first = jax.random.normal(jax.random.key(options.seed), (len(words), options.width))
    last, losses = train(first, together, options.steps, options.loss)
    before, after, losses = (np.asarray(x) for x in (cosines(first), cosines(last), losses))

    kinds = mean_cosines(before, together), mean_cosines(after, together)
    means = [[kind, *(f"{means[kind]:.2f}" for means in kinds)] for kind in kinds[0]]
    nearest = zip(words, neighbours(before, words), neighbours(after, words), strict=True)
    times = "before training", "after training"
    rows = list(map(list, nearest))
    print_rows(Table("The nearest words and their cosines", ("word", *times), rows, 3))
    print_rows(Table("Mean cosine of two words", ("words", *times), means, 3))
    final = pair_loss(last, jnp.asarray(together), options.loss)
    print(f"loss {losses[0]:.4f} before training, {final:.4f} after")

    options.output.mkdir(parents=True, exist_ok=True)
    picture = options.output / "cooccurrence.png"
    plotting.save_figure(build_figure(words, together, before, after, losses), picture)
    arrays = {
        "words": np.array(words, dtype=np.str_), "together": together, "vectors_before": first,
        "vectors_after": last, "before": before, "after": after, "losses": losses,
    }  # fmt: skip
    write_arrays(picture.with_suffix(".npz"), arrays)
    print(picture)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, or 2 after printing a user error."""
    return exit_code(lambda: run(arguments), place="--output", memory="--width or the words")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
