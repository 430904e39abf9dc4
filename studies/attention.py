"""What attention does, measured: its scale, its masks, positions in each layer, and `</s>`.

    python -m studies.attention
    python -m studies.attention --runs=runs/quickstart,runs/none --output=runs/attention_study

Scale: the product of q and k, d_k numbers each with mean 0 and variance 1, has the variance d_k
[3.2.1]. With and without the division by its root, a table shows the largest weight of the softmax
over 64 such keys, and the norm of its Jacobian diag(w) - w w^T, which multiplies all gradients of
queries and keys. Masks: a picture of those of a batch. And of each run, on its test set:

Positions: for each layer a ridge regression predicts the position of a source token from the
layer's output (Alain and Bengio 2017, arXiv:1610.01644). It is fitted to every other sentence and
scored on the rest; R^2 is 1 - the squared error over that of the mean, and a position is right if
the nearest whole number is. The control has the same vectors and positions in random order.

The end: the weight of cross-attention on the source's `</s>`, and the scores of greedy translations
if the decoder may not attend to it, while the encoder does.
"""

import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from matplotlib.figure import Figure

from experiments.display import plotting
from experiments.options import Parser
from experiments.process import exit_code
from experiments.results.table import Table, print_rows
from transformer.errors import UserError
from transformer.inference.base import source_mask
from transformer.inference.translator import Translator
from transformer.keys import flatten
from transformer.model.masks import look_ahead_mask, padding_mask
from transformer.model.stack import EncoderLayer
from transformer.model.transformer import Transformer
from transformer.runs.loaded import LoadedRun, load
from transformer.tasks.translation import TranslationTask

WIDTHS = tuple(4**i for i in range(6))  # d_k
QUERIES, KEYS = 1000, 64  # random ones; each query has keys of its own
SCORES = ("divided", "not divided")
STATISTICS = ("variance of a score", "largest weight", "norm of the Jacobian")
RIDGE = 1.0  # factor of the squared weights, of features with variance one
NEEDS = {"task": "translation", "model.architecture": "transformer", "model.scan_layers": False}
SOURCES = "We sleep . </s> <pad> <pad>", "My letter lay here . </s>"
TARGETS = "<s> Wir schlafen . <pad> <pad>", "<s> Mein Brief lag hier ."


def scale_statistics(width: int) -> Float[Array, "2 3"]:
    """Returns the numbers of `STATISTICS` for a width of heads, with the division and without."""
    keys = jax.random.split(jax.random.key(width))
    queries = jax.random.normal(keys[0], (QUERIES, width))
    scores = jnp.einsum("nk,nmk->nm", queries, jax.random.normal(keys[1], (QUERIES, KEYS, width)))
    both = jnp.stack([scores / jnp.sqrt(width), scores])
    jacobians = jax.vmap(jax.vmap(jax.jacobian(jax.nn.softmax)))(both)
    largest = jax.nn.softmax(both).max(axis=-1).mean(axis=1)
    norms = jnp.linalg.norm(jacobians, axis=(2, 3)).mean(axis=1)
    return jnp.stack([both.var(axis=(1, 2)), largest, norms], axis=1)


def scale_figure(statistics: Float[np.ndarray, "widths 2 3"]) -> Figure:
    """A panel for each number, by `WIDTHS`, with a line for scores of each kind."""
    figure = plotting.new_figure(plotting.WIDTH, 2.4)
    for panel, axes in enumerate(figure.subplots(1, len(STATISTICS))):
        for i, label in enumerate(SCORES):
            look = {"marker": plotting.MARKER_SHAPES[i], "color": plotting.COLOURS[i]}
            axes.plot(WIDTHS, statistics[:, i, panel], label=label, markersize=4, **look)
        axes.set_xscale("log", base=4)
        axes.set_xlabel("$d_k$")
        axes.set_title(STATISTICS[panel], fontsize=9)
        plotting.light_grid(axes)
        axes.set_yscale("log", base=4) if panel == 0 else axes.set_ylim(0)
    figure.axes[1].legend(frameon=False, fontsize=7)
    return figure


def masks_figure() -> Figure:
    """A row of panels for each of the built-in sentences; blue may be attended to."""
    source, target = (np.array([text.split() for text in texts]) for texts in (SOURCES, TARGETS))
    of_source, of_target = (padding_mask(jnp.array(side != "<pad>")) for side in (source, target))
    places = jnp.arange(len(target[0]))
    past = look_ahead_mask(places, places)
    masks = {
        "padding": (of_target, target),
        "look-ahead": (past, target),
        "both": (of_target & past, target),
        "of the source": (of_source, source),
    }
    figure = plotting.new_figure(plotting.WIDTH, 3.7)
    for axes, (sentence, (name, (mask, columns))) in zip(
        figure.subplots(2, len(masks)).flat, itertools.product(range(2), masks.items()), strict=True
    ):
        rows, columns = target[sentence], columns[sentence]
        image = np.broadcast_to(mask, (2, 1, len(rows), len(columns)))[sentence, 0]
        axes.pcolormesh(0.6 * image, cmap="Blues", vmin=0, vmax=1, edgecolors="0.8", lw=0.4)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.set_title(name if sentence == 0 else "", fontsize=8)
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=90)
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows if name == "padding" else [""] * len(rows))
        axes.tick_params(labelsize=7, length=0)
    return figure


def layer_outputs(
    model: Transformer, variables: Mapping[str, Any], source: Int[Array, "B M"]
) -> list[Float[Array, "B M D"]]:
    """Returns the sum of embeddings and positions, then the output of each layer of the encoder."""

    def is_output(module: Any, method: str) -> bool:
        first = module.name == "embedding_dropout"
        return method == "__call__" and (first or isinstance(module, EncoderLayer))

    how = {"capture_intermediates": is_output, "mutable": ["intermediates"], "method": "encode"}
    _, sown = model.apply(variables, source, source_mask(source), **how)
    modules: Any = sown["intermediates"]
    names = "embedding_dropout", *(f"encoder_layers_{i}" for i in range(len(modules) - 1))
    return [x for name in names for x in modules[name]["__call__"]]


def score_positions(
    vectors: Float[np.ndarray, "N D"], positions: Int[np.ndarray, "N"], fits: Bool[np.ndarray, "N"]
) -> tuple[float, float]:
    """Returns R^2 and accuracy, on the other vectors, of the regression that is fitted to some."""
    x, y = vectors[fits], positions[fits]
    mean, deviation, centre = x.mean(axis=0), x.std(axis=0) + 1e-6, y.mean()
    x = (x - mean) / deviation
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ (y - centre))
    predicted, truth = (vectors[~fits] - mean) / deviation @ weights + centre, positions[~fits]
    error, spread = ((truth - guess) ** 2 for guess in (predicted, truth.mean()))
    return float(1 - error.sum() / spread.sum()), float((np.rint(predicted) == truth).mean())


def score_layers(task: Any, variables: Mapping[str, Any]) -> list[tuple[float, ...]]:
    """Returns R^2 and accuracy of each layer's regression, then of its control."""
    outputs, places = [], []
    for batch in task.held_out_batches("test"):
        sentence, position = np.nonzero(batch.source)  # padding is 0
        layers = layer_outputs(task.predictor.model, variables, jnp.asarray(batch.source))
        outputs.append([np.asarray(x, np.float64)[sentence, position] for x in layers])
        places.append(np.stack([position, sentence % 2]))
    positions, fits = np.concatenate(places, axis=1)
    shuffled = np.random.default_rng(0).permutation(positions)
    return [
        sum((score_positions(np.concatenate(x), y, fits == 0) for y in (positions, shuffled)), ())
        for x in zip(*outputs, strict=True)
    ]


class BlindToEnd(Transformer):
    """A Transformer whose decoder may not attend to the last token of the source, `</s>`."""

    def decode(self, target, memory, source_mask, *others, **named):
        return super().decode(target, memory, without_last(source_mask), *others, **named)

    def init_cache(self, source, source_mask, beam_size, steps):
        cache = super().init_cache(source, source_mask, beam_size, steps)
        return dataclasses.replace(cache, memory_mask=without_last(cache.memory_mask))


def without_last(mask: Bool[Array, "B M"]) -> Bool[Array, "B M"]:
    """Returns a padding mask without the last token of each row."""
    return jnp.pad(mask[:, 1:], ((0, 0), (0, 1)))


def end_weights(task: Any, variables: Mapping[str, Any]) -> Float[np.ndarray, "2 layers H"]:
    """Returns the mean weight of cross-attention on `</s>`, and what it is if all are equal."""
    sources, targets = zip(*(pair[:2] for pair in task.text.pairs["test"]), strict=True)
    attention = task.predictor.cross_attention(variables, sources, targets)
    ends = [(x[..., -1], np.full_like(x[..., -1], 1 / x.shape[-1])) for _, x in attention]
    return np.concatenate(ends, axis=-1).mean(axis=-1)


def load_translator(folder: str) -> LoadedRun:
    """Returns a run that decodes greedily."""
    run = load(folder, {"decode.beam_size": 1, "evaluate.perturbed_sentences": 0})
    for key, value in NEEDS.items():
        if (here := flatten(run.config)[key]) != value:
            raise UserError(f"{folder} has {key}={here}: name a run with {key}={value}")
    return run


def study_run(run: LoadedRun) -> list[Table]:
    """Returns the tables of a run."""
    task: Any = TranslationTask.from_folder(run.folder, run.config)
    variables, translator = run.trained.variables, task.predictor
    by_layer = score_layers(task, variables)
    layers = [[str(i), *(f"{x:.3f}" for x in row)] for i, row in enumerate(by_layer)]
    weights, equal = end_weights(task, variables)
    cross = [[str(i), *(f"{x:.3f}" for x in row)] for i, row in enumerate(weights, 1)]
    heads = (f"head {i}" for i in range(1, weights.shape[1] + 1))
    scores = []
    for tokens, kind in {"all": Transformer, "all but </s>": BlindToEnd}.items():
        sides = translator.source_tokenizer, translator.target_tokenizer
        task.predictor = Translator(kind(translator.model.config), *sides, run.config.decode)
        result = task.evaluate(variables["params"], "test", final=True)
        scores.append([tokens, f"{result['bleu']:.2f}", f"{result['perplexity']:.3f}"])
    names = ("layer", "R^2", "accuracy", "R^2, control", "accuracy, control")
    at_end = f"weight on </s> (equal ones: {equal[0, 0]:.3f})"
    return [
        Table(f"{run.folder}: positions after each layer (0: embeddings)", names, layers),
        Table(f"{run.folder}: {at_end}", ("layer", *heads), cross),
        Table(f"{run.folder}: read by the decoder", ("tokens", "BLEU", "perplexity"), scores),
    ]


def run(arguments: Sequence[str]) -> int:
    """Prints and draws all of the module's docstring."""
    parser = Parser(__doc__)
    folders = {"type": lambda names: names.split(","), "default": ["runs/quickstart"]}
    parser.add_argument("--runs", help="comma-separated folders of translators", **folders)
    parser.add_argument("--output", type=Path, default="runs/attention_study", help="to fill")
    options = parser.parse_args(arguments)
    runs = list(map(load_translator, options.runs))  # before any work, for mistakes of the user
    statistics = np.stack([scale_statistics(width) for width in WIDTHS])
    names = (f"{number}, {scores}" for number in STATISTICS for scores in SCORES)
    rows = [
        [str(width), *(f"{x:.3g}" for x in numbers.T.ravel())]
        for width, numbers in zip(WIDTHS, statistics, strict=True)
    ]
    print_rows(Table("Random scores and their softmax over 64 keys", ("d_k", *names), rows))
    figures = {"scale": scale_figure(statistics), "masks": masks_figure()}
    for table in itertools.chain.from_iterable(map(study_run, runs)):
        print_rows(table)
    for name, figure in figures.items():
        print(plotting.save_figure(figure, options.output / f"{name}.png"))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, or 2 after a line on a user error."""
    return exit_code(lambda: run(arguments), place="--output", memory="config.decode.batch_size")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
