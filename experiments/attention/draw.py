"""Saves the attention weights of a text as figures, as arrays, and as an interactive explorer.

The explorer is a self-contained HTML file with every attention head. It shows the given sentence
and the sentences whose attention a run saved at its evaluations (snapshots). The values in the file
are bitwise identical to the float32 arrays.
"""

import base64
import hashlib
import html
import io
import logging
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.analysis.attention import END_OF_SENTENCE, KINDS, Attention, GridPicture
from transformer.errors import UserError
from transformer.files import write_arrays
from transformer.runs.run import known_results
from ..display import web_page
from ..process.modes import Options

logger = logging.getLogger(__name__)

NO_ATTENTION = (
    "this model has no attention to {use}: train a Transformer, or a recurrent translator with "
    "--config.model.recurrent_attention=additive in place of recurrent_attention=none"
)
MAX_NAME_LENGTH, DIGEST = 40, 6  # characters of a text and of a digest in a folder name
TEMPLATE = "explorer.html"
FRAME_HEIGHT = 760  # pixels in a notebook, enough for all heads of a short sentence
SIDES = ("source", "target")
KIND_NAMES = {kind: names._asdict() for kind, names in KINDS.items()}
# Maximum number of base64 characters, so that the page with scripts and tokens is under 2 MB.
MAX_CHARACTERS = 1_800_000
MAX_TOKEN_LENGTH, MAX_TITLE_LENGTH = 60, 300  # characters
ROUNDING = 1e-5  # of the sum of a row's weights
UNREAD = "too long for the model, which does not read the last {}"
OMITTED = (
    "too long for a page under 2 MB: the explorer leaves out the last {} that the model reads, and "
    "the sums of its rows fall short of 1 by what these get"
)


def text_folder(run: Path, text: str, *others: str | None) -> Path:
    """Returns a subfolder of a run, named after a text and `others` (a translation or an image)."""
    readable = re.sub(r"\W+", "_", text).strip("_")[:MAX_NAME_LENGTH]
    digest = hashlib.sha256(repr((text, *others)).encode()).hexdigest()[:DIGEST]
    return run / "figures" / "_".join(filter(None, ("attention", readable, digest)))


def draw_attention(
    seen: Attention, steps: Sequence[int], place: Path, run: Path, options: Options
) -> list[Path]:
    """Writes a text's attention figures and explorer to `place`; returns the paths of these files.

    The figures `<kind>_layer_<n>.png` show all heads of a layer. `attention.npz` stores the weights
    keyed by kind, `value_norms/<kind>`, the input tokens `source_tokens` and `target_tokens`, and
    the output tokens `written_tokens`. `np.load` reads this file without pickle.

    The explorer also shows the run's snapshots. If a layer or head is selected, the explorer opens
    with it, and no other figures are drawn. `steps` are the steps of the averaged checkpoints.
    """
    if not seen.weights:
        raise UserError(NO_ATTENTION.format(use="draw"))
    layer, head, kinds = options.layer, options.head, kinds_to_draw(seen, options)
    place.mkdir(parents=True, exist_ok=True)
    sides = ("source_tokens", "target_tokens", "written_tokens")
    arrays = {side: np.array(getattr(seen, side), np.str_) for side in sides}
    norms = {f"value_norms/{kind}": array for kind, array in seen.value_norms.items()}
    write_arrays(place / "attention.npz", {**arrays, **seen.weights, **norms})
    drawn = hide_end_of_sentence(seen) if options.hide_eos else seen
    from ..display.plotting import save_figure
    from . import heat_maps  # importing matplotlib takes a third of a second

    files = []
    for kind in kinds:
        for number in [layer] if layer else range(1, len(drawn.weights[kind]) + 1):
            name = f"{kind}_layer_{number}" + (f"_head_{head}" if head else "")
            figure = heat_maps.build_figure(drawn, kind, number, head)
            files.append(save_figure(figure, place / f"{name}.png"))
    numbers = ", ".join(f"{step:,}" for step in sorted(steps))
    label = f"step {numbers}" if len(steps) == 1 else f"mean of the checkpoints of steps {numbers}"
    example = Example((label,), (seen,))
    page = write_explorer(place / "explorer.html", example, read_examples(run), options)
    return [*files, page]


def show_attention(seen: Attention, run: Path) -> list[Path]:
    """Draws a finished run's attention on an example, unless the model has no attention."""
    if not seen.weights:
        return []
    steps = known_results(run)["averaged_steps"]
    return draw_attention(seen, steps, run / "figures" / "attention", run, Options())


def hide_end_of_sentence(seen: Attention) -> Attention:
    """Returns attention without the source's `</s>`; each row is divided by 1 minus its weight.

    A row then sums to one or, with an attention sink, to less.

    Trained heads attend to `</s>` when no other token is relevant, so its column would dominate the
    maps. `</s>` is removed from the keys of `cross` and `encoder_self`, and from the queries of
    `encoder_self` to keep this map square. Rows with all their weight on `</s>` are set to 0.
    """
    weights = dict(seen.weights)
    for kind in weights.keys() & {"encoder_self", "cross"}:
        rows = weights[kind][:, :, :-1] if kind == "encoder_self" else weights[kind]
        rest = rows[..., :-1]
        sink = 1 - rows.sum(axis=-1, keepdims=True, dtype=np.float64)
        # Without a sink, a rounding error could be as large as the rest.
        total = rest.sum(axis=-1, keepdims=True, dtype=np.float64) + sink * (sink > ROUNDING)
        weights[kind] = (rest / np.where(total > 0, total, 1)).astype(rest.dtype)
    return seen._replace(weights=weights, source_tokens=seen.source_tokens[:-1])


# -- the explorer


class Example(NamedTuple):
    """A sentence, and its attention at one or more checkpoints that have the same tokens."""

    labels: tuple[str, ...]  # names of the checkpoints
    frames: tuple[Attention, ...]
    length: int = sys.maxsize  # maximum number of tokens per side on a page

    @property
    def omitted(self) -> tuple[int, int]:
        """The numbers of source and target tokens that are omitted from the page."""
        source, target = self.frames[0].source_tokens, self.frames[0].target_tokens
        return max(0, len(source) - self.length), max(0, len(target) - self.length)

    def size(self, length: int) -> int:
        """Returns the number of base64 characters per checkpoint, for `length` tokens per side."""
        first, numbers = self.frames[0], 0
        for kind, array in first.weights.items():
            layers, heads, *sides = array.shape
            queries, keys = (min(length, side) for side in sides)
            numbers += layers * heads * keys * (queries + (kind in first.value_norms))
        return math.ceil(16 * numbers / 3)


def kinds_to_draw(seen: Attention, options: Options) -> list[str]:
    """Returns the kinds of attention that have the selected layer and head, or raises UserError."""
    layer, head = (1 if number is None else number for number in (options.layer, options.head))
    shapes = {kind: seen.weights[kind].shape for kind in KINDS if kind in seen.weights}
    kinds = [kind for kind, n in shapes.items() if 1 <= layer <= n[0] and 1 <= head <= n[1]]
    if not kinds:
        layers, heads = (max(counts) for counts in list(zip(*shapes.values(), strict=False))[:2])
        fix = f"this model has layers 1 to {layers} and heads 1 to {heads}"
        raise UserError(f"--layer={layer} --head={head} does not exist: {fix}")
    return kinds


def write_explorer(
    path: Path, given: Example, tracked: Sequence[Example], options: Options
) -> Path:
    """Writes the explorer for a sentence and for the snapshots that fit; returns `path`.

    If tokens, sentences or checkpoints are omitted to fit the page, the page and the log say so.
    """
    examples, notes = fit(given, tracked)
    for note in notes:
        logger.warning(note)
    return web_page.write_page(path, TEMPLATE, **_values(examples, notes, options))


def element(seen: Attention) -> str:
    """Returns the explorer of one text as an iframe, which is isolated from a notebook's styles."""
    example = _shorten(Example(("",), (seen,)))
    notes = [f"{note}; `weights` has them all" for note in _note(OMITTED, example.omitted)]
    page = web_page.render(TEMPLATE, **_values([example], notes, Options()))
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="Attention" '
        f'style="width: 100%; height: {FRAME_HEIGHT}px; border: 0"></iframe>'
    )


def live_example(seen: Attention) -> dict[str, Any]:
    """Returns data for a page's explorer: notes, and the attention, truncated if necessary."""
    example = _shorten(Example(("",), (seen,)))
    notes = _note(UNREAD, seen.unread) + _note(OMITTED, example.omitted)
    return {**_encode(example), "notes": notes}


def live_values() -> dict[str, Any]:
    """Returns the data for an explorer that shows no sentence."""
    view = {"kind": "", "layer": 1, "head": 1, "view": "heads", "end": "shown"}
    return {"kinds": KIND_NAMES, "examples": [], "notes": [], "open": view}


def read_examples(folder: Path) -> list[Example]:
    """Returns the sentences whose attention a run saved during training; see `read_snapshots`."""
    from .snapshots import read_snapshots, tracked_sentences  # they import matplotlib

    return [
        Example(tuple(f"step {step:,}" for step in by_step), tuple(by_step.values()))
        for by_step in tracked_sentences(read_snapshots(folder))
    ]


def fit(given: Example, tracked: Sequence[Example]) -> tuple[list[Example], list[str]]:
    """Returns the examples that fit on a page, and notes about what is omitted.

    The given sentence is truncated only if it does not fit on its own. The remaining space is
    filled with snapshot sentences at one checkpoint each, then at more checkpoints, evenly spaced.
    """
    first = _shorten(given)
    notes = [f"{note}; attention.npz has them all" for note in _note(OMITTED, first.omitted)]
    room = MAX_CHARACTERS - first.size(first.length)
    sizes = np.cumsum([example.size(sys.maxsize) for example in tracked])
    rest = tracked[: int(np.searchsorted(sizes, room, side="right"))]
    most = max((len(example.frames) for example in tracked), default=0)
    frames = min(most, int(room // sizes[len(rest) - 1])) if rest else 0
    if len(rest) < len(tracked) or frames < most:
        sentences = f"{len(rest)} of the run's {len(tracked)} snapshot sentences"
        checkpoints = f"{frames} of {most} checkpoints"
        notes.append(f"the explorer has room for {sentences}, at {checkpoints}")
    thinned = ((_evenly(each.labels, frames), _evenly(each.frames, frames)) for each in rest)
    return [first, *(Example(tuple(labels), tuple(chosen)) for labels, chosen in thinned)], notes


def _note(text: str, tokens: tuple[int, int]) -> list[str]:
    """Returns a line with the number of missing tokens per side, or no line if none are missing."""
    sides = zip(tokens, SIDES, strict=True)
    counts = " and ".join(f"{count:,} {side} tokens" for count, side in sides if count)
    return [text.format(counts)] if counts else []


def _evenly(items: Sequence[Any], count: int) -> list[Any]:
    """Returns `count` evenly spaced items, first and last included, or the last if `count` is 1."""
    total = len(items)
    chosen = np.linspace(total - 1, 0, min(count, total)).round().astype(int)[::-1]
    return [items[i] for i in chosen]


def _shorten(example: Example) -> Example:
    """Returns the example, truncated to as many tokens per side as fit on a page."""
    first = example.frames[0]
    length = max(len(first.source_tokens), len(first.target_tokens))
    while length > 1 and example.size(length) > MAX_CHARACTERS:
        length -= 1
    return example._replace(length=length)


# -- data for the page's script


def _values(examples: Sequence[Example], notes: list[str], options: Options) -> dict[str, Any]:
    """Returns the values for the explorer's template, which opens at the first example."""
    seen = examples[0].frames[-1]
    data = {
        "kinds": KIND_NAMES,
        "examples": [_encode(example) for example in examples],
        "notes": _note(UNREAD, seen.unread) + notes,  # truncated tokens are also logged
        "open": {
            "kind": kinds_to_draw(seen, options)[-1],
            "layer": options.layer or 1,
            "head": options.head or 1,
            "view": "heads" if options.layer is None and options.head is None else "matrix",
            "end": "hidden" if options.hide_eos else "shown",
        },
    }
    return {"title": f"Attention: {data['examples'][0]['title']}", "data": data}


def _encode(example: Example) -> dict[str, Any]:
    """Returns an example as JSON-compatible data for the page's script."""
    seen = example.frames[-1]
    length = example.length
    tokens = {side: getattr(seen, f"{side}_tokens")[:length] for side in (*SIDES, "written")}
    title, translation = _text(tokens["source"]), _text(tokens["target"])
    if seen.picture:
        title = _text(tokens["source"][1 + seen.picture.grid**2 :]) or "a picture"
    missing = zip(seen.unread, example.omitted, strict=True)

    def encode(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        of_tokens = {kind: array[:, :, :length][..., :length] for kind, array in arrays.items()}
        return {kind: web_page.encode_array(array) for kind, array in of_tokens.items()}

    frames = [
        {"label": label, "weights": encode(frame.weights), "norms": encode(frame.value_norms)}
        for label, frame in zip(example.labels, example.frames, strict=True)
    ]
    return {
        "title": title or translation,
        "translation": translation if title else "",
        **{
            side: [web_page.shortened(text, MAX_TOKEN_LENGTH) for text in texts]
            for side, texts in tokens.items()
        },
        "unread": dict(zip(SIDES, seen.unread, strict=True)),
        "omitted": dict(zip(SIDES, map(sum, missing), strict=True)),
        "frames": frames,
        **({"picture": _encode_picture(seen.picture)} if seen.picture else {}),
    }


def _encode_picture(picture: GridPicture) -> dict[str, Any]:
    """Returns an image as JSON-compatible data for the page's script."""
    from PIL import Image  # not needed for texts

    file = io.BytesIO()
    Image.fromarray(picture.pixels.squeeze()).save(file, "PNG")
    encoded = base64.b64encode(file.getvalue()).decode()
    return {"pixels": f"data:image/png;base64,{encoded}", "grid": picture.grid}


def _text(tokens: Sequence[str]) -> str:
    """Returns the joined tokens of a text, shortened for use as a title."""
    pieces = [token for token in tokens if token not in ("<s>", END_OF_SENTENCE)]
    return web_page.shortened("".join(pieces).replace("▁", " ").strip(), MAX_TITLE_LENGTH)
