"""Draws the attention of a text: pictures of its heads, their arrays, and the explorer."""

import hashlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer.analysis.attention import Attention
from transformer.files import write_arrays
from transformer.runs.json_files import known_results
from ..process.modes import Options
from . import explorer

logger = logging.getLogger(__name__)

NO_ATTENTION = (
    "config.model.recurrent_attention=none: this model has no attention to {use}; train one with "
    "--config.model.recurrent_attention=additive"
)
MAX_NAME_LENGTH, DIGEST = 40, 6  # characters of a folder's name: text, digest


def text_folder(run: Path, text: str, *others: str | None) -> Path:
    """Returns a folder below a run's, named by a text and `others`: a translation or a picture."""
    readable = re.sub(r"\W+", "_", text).strip("_")[:MAX_NAME_LENGTH]
    digest = hashlib.sha256(repr((text, *others)).encode()).hexdigest()[:DIGEST]
    return run / "figures" / "_".join(filter(None, ("attention", readable, digest)))


def draw_attention(
    seen: Attention, steps: Sequence[int], place: Path, run: Path, options: Options
) -> list[Path]:
    """Draws a text's attention weights below `place`; returns the pictures and the explorer.

    A picture, `<kind>_layer_<n>.png`, has all heads of a layer. `attention.npz` holds all weights
    by kind, `value_norms/<kind>`, and `source_tokens`, `target_tokens` (read) and `written_tokens`;
    `np.load` reads it without pickle.

    The explorer also shows the snapshots of the run. If a layer or head is selected, it opens
    there, and the pictures show only that. `steps` are the averaged checkpoints of the model.
    """
    layer, head, kinds = options.layer, options.head, explorer.kinds_to_draw(seen, options)
    place.mkdir(parents=True, exist_ok=True)
    sides = ("source_tokens", "target_tokens", "written_tokens")
    arrays = {side: np.array(getattr(seen, side), np.str_) for side in sides}
    norms = {f"value_norms/{kind}": array for kind, array in seen.value_norms.items()}
    write_arrays(place / "attention.npz", {**arrays, **seen.weights, **norms})
    drawn = hide_end_of_sentence(seen) if options.hide_eos else seen
    from ..display.plotting import save_figure
    from . import heat_maps  # matplotlib takes a third of a second

    files = []
    for kind in kinds:
        for number in [layer] if layer else range(1, len(drawn.weights[kind]) + 1):
            name = f"{kind}_layer_{number}" + (f"_head_{head}" if head else "")
            figure = heat_maps.build_figure(drawn, kind, number, head)
            files.append(save_figure(figure, place / f"{name}.png"))
    numbers = ", ".join(f"{step:,}" for step in sorted(steps))
    label = f"step {numbers}" if len(steps) == 1 else f"mean of the checkpoints of steps {numbers}"
    example = explorer.Example((label,), (seen,))
    page = place / "explorer.html"
    explorer.write_explorer(page, example, explorer.read_examples(run), options)
    return [*files, page]


def show_attention(seen: Attention, run: Path) -> None:
    """Draws the attention of a finished run on an example; does nothing if there is none."""
    if seen.weights:
        steps = known_results(run)["averaged_steps"]
        for file in draw_attention(seen, steps, run / "figures" / "attention", run, Options()):
            logger.info(f"wrote {file}")


def hide_end_of_sentence(seen: Attention) -> Attention:
    """Returns attention without the source's `</s>`, with each row renormalised to sum to one.

    Trained heads attend to `</s>` when there is nothing to fetch, and its column then outshines the
    rest. It is dropped as a key of `cross` and `encoder_self`, and as a query of `encoder_self`, so
    that this map stays square. A row that had all its weight on `</s>` becomes zeros.
    """
    weights, value_norms = dict(seen.weights), dict(seen.value_norms)
    for kind in weights.keys() & {"encoder_self", "cross"}:
        rest = weights[kind][..., :-1]
        if kind == "encoder_self":
            rest = rest[:, :, :-1]
        total = rest.sum(axis=-1, keepdims=True, dtype=np.float64)
        zeros = np.zeros_like(rest)
        weights[kind] = np.divide(rest, total, out=zeros, where=total > 0, casting="same_kind")
        if kind in value_norms:
            value_norms[kind] = value_norms[kind][..., :-1]
    source = seen.source_tokens[:-1]
    return seen._replace(weights=weights, value_norms=value_norms, source_tokens=source)
