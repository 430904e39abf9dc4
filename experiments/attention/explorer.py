"""The attention explorer: every head of a sentence in one HTML file that needs no network.

It shows the given sentence, and the snapshot sentences that a run saved at its evaluations. Its
numbers are the float32 arrays, bit for bit.
"""

import base64
import html
import io
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.analysis.attention import END_OF_SENTENCE, KINDS, Attention, GridPicture
from transformer.errors import UserError
from ..display import web_page
from ..process.modes import Options
from .snapshots import of_same_sentence, read_snapshots

logger = logging.getLogger(__name__)

TEMPLATE = "explorer.html"
FRAME_HEIGHT = 760  # pixels in a notebook: fits all heads of a short sentence
SIDES = ("source", "target")
KIND_NAMES = {kind: names._asdict() for kind, names in KINDS.items()}
# Characters of base64 in a page, which stays under 2 MB with styles, scripts and tokens.
MAX_CHARACTERS = 1_800_000
MAX_FRAMES = 32  # checkpoints read per sentence, enough for a slider
MIN_FRAMES = 4  # checkpoints per sentence; sentences are dropped first
MAX_TOKEN_LENGTH, MAX_TITLE_LENGTH = 60, 300  # characters
UNREAD = "too long for the model, which does not read the last {}"
OMITTED = (
    "too long for a page under 2 MB: the explorer leaves out the last {} that the model reads, and "
    "the sums of its rows fall short of 1 by what these get"
)


class Example(NamedTuple):
    """A sentence and its attention at one or more checkpoints, over the same tokens."""

    labels: tuple[str, ...]  # names of the checkpoints
    frames: tuple[Attention, ...]
    length: int = sys.maxsize  # maximum tokens per side on a page, including an end-of-sentence

    @property
    def omitted(self) -> tuple[int, int]:
        """The numbers of source and target tokens that a page leaves out."""
        source, target = self.frames[0].source_tokens, self.frames[0].target_tokens
        return max(0, len(source) - self.length), max(0, len(target) - self.length)

    def size(self, length: int) -> int:
        """Returns the characters of a checkpoint with `length` tokens per side, 4 per 3 bytes."""
        total = 0
        weights, norms = self.frames[0].weights, self.frames[0].value_norms
        for kind, array in weights.items():
            layers, heads, *sides = array.shape
            queries, keys = (min(length, side) for side in sides)
            for rows in [queries, 1] if kind in norms else [queries]:
                total += 4 * math.ceil(4 * layers * heads * rows * keys / 3)
        return total


def kinds_to_draw(seen: Attention, options: Options) -> list[str]:
    """Returns the kinds of attention that have the selected layer and head, or raises UserError."""
    kinds = [kind for kind in KINDS if kind in seen.weights]
    for axis, (name, number) in enumerate({"layer": options.layer, "head": options.head}.items()):
        if number is not None:
            counts = {kind: seen.weights[kind].shape[axis] for kind in seen.weights}
            if not 1 <= number <= (most := max(counts.values())):
                fix = f"this model has {name}s 1 to {most}"
                raise UserError(f"--{name}={number} does not exist: {fix}")
            kinds = [kind for kind in kinds if number <= counts[kind]]
    return kinds


def write_explorer(
    path: Path, given: Example, tracked: Sequence[Example], options: Options
) -> Path:
    """Writes the explorer of a sentence and of the others that fit; returns `path`.

    If a sentence is cut or checkpoints are thinned to fit the page, the page and the log say so.
    """
    examples, notes = fit(given, tracked)
    for note in notes:
        logger.warning(note)
    return web_page.write_page(path, TEMPLATE, **_values(examples, notes, options))


def element(seen: Attention) -> str:
    """Returns the explorer of one text as a notebook element, without its styles."""
    example = _shorten(Example(("",), (seen,)))
    notes = [f"{note}; `weights` has them all" for note in _note(OMITTED, example.omitted)]
    page = web_page.render(TEMPLATE, **_values([example], notes, Options()))
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="Attention" '
        f'style="width: 100%; height: {FRAME_HEIGHT}px; border: 0"></iframe>'
    )


def live_example(seen: Attention) -> dict[str, Any]:
    """Returns attention, cut if necessary, and its notes, as data for a page's explorer."""
    example = _shorten(Example(("",), (seen,)))
    notes = _note(UNREAD, seen.unread) + _note(OMITTED, example.omitted)
    return {**_encode(example), "notes": notes}


def live_values() -> dict[str, Any]:
    """Returns the data of an explorer without a sentence."""
    view = {"kind": "", "layer": 1, "head": 1, "view": "heads", "end": "shown"}
    return {"kinds": KIND_NAMES, "examples": [], "notes": [], "open": view}


def read_examples(folder: Path) -> list[Example]:
    """Returns the snapshot sentences of a run, each at up to `MAX_FRAMES` checkpoints."""
    snapshots = [snapshot for snapshot in read_snapshots(folder) if snapshot.sentences]
    examples = []
    for n in range(len(snapshots[-1].sentences) if snapshots else 0):
        chosen = _evenly(of_same_sentence(snapshots, n), MAX_FRAMES)
        frames = [  # one read per file
            each._replace(weights=dict(each.weights), value_norms=dict(each.value_norms))
            for each in (snapshot.sentences[n] for snapshot in chosen)
        ]
        examples.append(Example(tuple(f"step {s.step:,}" for s in chosen), tuple(frames)))
    return examples


def fit(given: Example, tracked: Sequence[Example]) -> tuple[list[Example], list[str]]:
    """Returns the examples that fit on a page, and a note on each thing left out.

    The given sentence loses its last tokens, except an end-of-sentence, only if it alone does not
    fit. Snapshot sentences are dropped until `MIN_FRAMES` checkpoints of each fit, or until one is
    left; then as many evenly spaced checkpoints are kept as fit.
    """
    first, rest = _shorten(given), list(tracked)
    notes = [f"{note}; attention.npz has them all" for note in _note(OMITTED, first.omitted)]
    room = MAX_CHARACTERS - len(first.frames) * first.size(first.length)
    most = max((len(example.frames) for example in rest), default=0)

    def frames_that_fit() -> int:
        return min(most, room // max(1, sum(example.size(sys.maxsize) for example in rest)))

    while rest and frames_that_fit() < min(MIN_FRAMES if len(rest) > 1 else 1, most):
        rest.pop()
    frames = frames_that_fit()
    if len(rest) < len(tracked) or frames < most:
        sentences = f"{len(rest)} of the run's {len(tracked)} snapshot sentences"
        checkpoints = f"{frames} of {most} checkpoints"
        notes.append(f"the explorer has room for {sentences}, at {checkpoints}")
    thinned = ((_evenly(each.labels, frames), _evenly(each.frames, frames)) for each in rest)
    return [first, *(Example(tuple(labels), tuple(chosen)) for labels, chosen in thinned)], notes


def _note(text: str, tokens: tuple[int, int]) -> list[str]:
    """Returns a line with the number of missing tokens on each side, if any are missing."""
    sides = zip(tokens, SIDES, strict=True)
    counts = " and ".join(f"{count:,} {side} tokens" for count, side in sides if count)
    return [text.format(counts)] if counts else []


def _evenly(items: Sequence[Any], count: int) -> list[Any]:
    """Returns `count` evenly spaced items from the first to the last; the last if it is one."""
    total = len(items)
    chosen = np.linspace(total - 1, 0, min(count, total)).round().astype(int)[::-1]
    return [items[i] for i in chosen]


def _shorten(example: Example) -> Example:
    """Returns the example with as many tokens per side as fit on a page."""
    first = example.frames[0]
    length = max(len(first.source_tokens), len(first.target_tokens))
    while length > 1 and len(example.frames) * example.size(length) > MAX_CHARACTERS:
        length -= 1
    return example._replace(length=length)


# -- data of the page's script


def _values(examples: Sequence[Example], notes: list[str], options: Options) -> dict[str, Any]:
    """Returns the values for the explorer's template; it opens at the first example."""
    seen = examples[0].frames[-1]
    data = {
        "kinds": KIND_NAMES,
        "examples": [_encode(example) for example in examples],
        "notes": _note(UNREAD, seen.unread) + notes,  # the model itself warns about the first
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
    """Returns an example as data for the page's script."""
    seen = example.frames[-1]
    places = {side: _first(getattr(seen, f"{side}_tokens"), example.length) for side in SIDES}
    places["written"] = places["target"]
    tokens = {
        side: [getattr(seen, f"{side}_tokens")[i] for i in indices]
        for side, indices in places.items()
    }
    title, translation = _text(tokens["source"]), _text(tokens["target"])
    if seen.picture:
        title = _text(tokens["source"][1 + seen.picture.grid**2 :]) or "a picture"
    missing = zip(seen.unread, example.omitted, strict=True)
    frames = []
    for label, frame in zip(example.labels, example.frames, strict=True):
        weights = {
            kind: web_page.encode_array(
                array[:, :, places[KINDS[kind].queries]][..., places[KINDS[kind].keys]]
            )
            for kind, array in frame.weights.items()
        }
        norms = {
            kind: web_page.encode_array(array[..., places[KINDS[kind].keys]])
            for kind, array in frame.value_norms.items()
        }
        frames.append({"label": label, "weights": weights, "norms": norms})
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
    """Returns a picture as data for the page's script."""
    from PIL import Image  # not needed for texts

    file = io.BytesIO()
    Image.fromarray(picture.pixels.squeeze()).save(file, "PNG")
    encoded = base64.b64encode(file.getvalue()).decode()
    return {"pixels": f"data:image/png;base64,{encoded}", "grid": picture.grid}


def _first(tokens: Sequence[str], length: int) -> list[int]:
    """Returns the indices of the first tokens; the last is an end-of-sentence if there is one."""
    places = list(range(min(length, len(tokens))))
    if places and tokens[-1] == END_OF_SENTENCE:
        places[-1] = len(tokens) - 1
    return places


def _text(tokens: Sequence[str]) -> str:
    """Returns the tokens as the title of their text."""
    pieces = [token for token in tokens if token not in ("<s>", END_OF_SENTENCE)]
    return web_page.shortened("".join(pieces).replace("▁", " ").strip(), MAX_TITLE_LENGTH)
