"""The attention explorer: every head of a sentence in one HTML file that needs no network.

The page draws matrices, lines and all heads at once, for the sentence that was asked for and for
the snapshot sentences that a run kept at its evaluations; `experiments/web/explorer/explorer.html`
says how it is steered. Its numbers are the float32 arrays, bit for bit.
"""

import hashlib
import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.attention.arrays import (
    END_OF_SENTENCE,
    KINDS,
    AttentionMaps,
    hide_end_of_sentence,
    save_maps,
)
from experiments.attention.snapshots import of_same_sentence, read_snapshots
from experiments.display import web_page
from experiments.options import Options
from transformer.analysis.attention import Attention
from transformer.errors import UserError
from transformer.workdir import known_results

logger = logging.getLogger(__name__)

TEMPLATE = "explorer.html"
SIDES = ("source", "target")
# Characters of base64 in a page: with its styles, scripts and tokens it stays under 2 MB.
MAX_CHARACTERS = 1_800_000
MAX_FRAMES = 32  # checkpoints of a sentence that are read: no slider needs more
MIN_FRAMES = 4  # checkpoints of a sentence: rather fewer sentences than fewer of these
MAX_TOKEN_LENGTH, MAX_TITLE_LENGTH = 60, 300  # characters
MAX_NAME_LENGTH, DIGEST = 40, 6  # characters of a folder's name: of the text; of its digest
UNREAD = "too long for the model, which does not read the last {}"
OMITTED = (
    "too long for a page under 2 MB: the explorer leaves out the last {} that the model reads, and "
    "the sums of its rows fall short of 1 by what these get"
)


class Example(NamedTuple):
    """A sentence and its attention at one checkpoint or several.

    Attributes:
      labels: what to call each checkpoint, in their order.
      frames: the maps at each checkpoint, over the same tokens.
      unread: how many tokens of the text (of the source, of the target) the model does not read.
      omitted: how many tokens of each side the maps leave out, those with which they do not fit.
    """

    labels: tuple[str, ...]
    frames: tuple[AttentionMaps, ...]
    unread: tuple[int, int] = (0, 0)
    omitted: tuple[int, int] = (0, 0)


def text_folder(run: Path, text: str, translation: str | None = None) -> Path:
    """Returns the folder, in a run's, for the attention of a text: each text has its own.

    Args:
      translation: the one that is given, if any; with another, the folder is another.
    """
    readable = re.sub(r"\W+", "_", text).strip("_")[:MAX_NAME_LENGTH]
    digest = hashlib.sha256(repr((text, translation)).encode()).hexdigest()[:DIGEST]
    name = "_".join(part for part in ("attention", readable, digest) if part)
    return run / "figures" / name


def draw_attention(
    seen: Attention,
    steps: Sequence[int],
    place: Path,
    run: Path,
    options: Options,
) -> list[Path]:
    """Draws a text's attention weights below `place`; returns the pictures and the explorer.

    Args:
      steps: the checkpoints that the model is the mean of.
      run: folder of the run, whose snapshots the explorer also shows.
      options: `layer` and `head` are drawn alone, and are where the explorer opens; `hide_eos`
        is of both, though the explorer can bring it back; the arrays, `save_maps`, have all.

    Raises:
      UserError: there is no such layer or head.
    """
    maps = AttentionMaps.of(seen)
    _check_exists(maps, options)
    save_maps(maps, place)
    drawn = hide_end_of_sentence(maps) if options.hide_eos else maps
    from experiments.attention import maps as attention_maps  # matplotlib takes a third of a second

    pictures = attention_maps.draw(drawn, place, options.layer, options.head)
    numbers = ", ".join(f"{step:,}" for step in sorted(steps))
    label = f"step {numbers}" if len(steps) == 1 else f"mean of the checkpoints of steps {numbers}"
    given, page = Example((label,), (maps,), seen.unread), place / "explorer.html"
    return [*pictures, write_explorer(page, given, read_examples(run), options)]


def show_attention(seen: Attention, run: Path) -> None:
    """Draws the attention of a finished run over an example; nothing of a model without any."""
    if seen.weights:
        steps = known_results(run)["averaged_steps"]
        place = run / "figures" / "attention"
        for file in draw_attention(seen, steps, place, run, Options()):
            logger.info(f"wrote {file}")


def write_explorer(
    path: Path, given: Example, tracked: Sequence[Example], options: Options
) -> Path:
    """Writes the explorer of a sentence and, as far as there is room, of a run's snapshots.

    A sentence too long for the page is cut, snapshots are thinned; both the page and the log tell.

    Args:
      given: the sentence that the page opens at.
      tracked: further sentences; see `read_examples`.
      options: `layer`, `head` and `hide_eos` choose its first view; without the first two it is
        that of all heads.

    Returns:
      `path`.
    """
    examples, notes = fit(given, tracked)
    for note in notes:
        logger.warning(note)
    return web_page.write_page(path, TEMPLATE, **_values(examples, notes, options))


def explorer(seen: Attention) -> str:
    """Returns the explorer of one text; a note on it tells if the text is too long for a page."""
    example = _of_text(seen)
    notes = [f"{note}; `weights` has them all" for note in _note(OMITTED, example.omitted)]
    return web_page.render(TEMPLATE, **_values([example], notes, Options()))


def live_example(seen: Attention) -> dict[str, Any]:
    """Returns attention as an explorer opens it that is on the page already, with its notes.

    Numbers are those of `web_page.encode_floats`; a text too long for a page is cut.
    """
    example = _of_text(seen)
    return {
        **_encode(example),
        "notes": _note(UNREAD, example.unread) + _note(OMITTED, example.omitted),
    }


def _of_text(seen: Attention) -> Example:
    return _shorten(Example(("",), (AttentionMaps.of(seen),), seen.unread), MAX_CHARACTERS)


def live_values() -> dict[str, Any]:
    """Returns the data of an explorer that has no sentence yet."""
    view = {"kind": "", "layer": 1, "head": 1, "view": "heads", "end": "shown"}
    return {"kinds": _kinds(), "examples": [], "notes": [], "open": view}


def _kinds() -> dict[str, Any]:
    return {kind: names._asdict() for kind, names in KINDS.items()}


def _values(examples: Sequence[Example], notes: list[str], options: Options) -> dict[str, Any]:
    """The values of the explorer's template; it opens at the first example."""
    data = {
        "kinds": _kinds(),
        "examples": [_encode(example) for example in examples],
        "notes": _note(UNREAD, examples[0].unread) + notes,  # of the first the model itself warns
        "open": _first_view(examples[0].frames[-1], options),
    }
    return {"title": f"Attention: {data['examples'][0]['title']}", "data": data}


def read_examples(folder: Path) -> list[Example]:
    """Returns the snapshot sentences that a run kept, each at up to `MAX_FRAMES` checkpoints.

    Those are evenly chosen, from the first to the last. Without snapshots there are none.
    """
    snapshots = [snapshot for snapshot in read_snapshots(folder) if snapshot.sentences]
    examples = []
    for n in range(len(snapshots[-1].sentences) if snapshots else 0):
        frames = {
            f"step {snapshot.step:,}": AttentionMaps.of(snapshot.sentences[n])
            for snapshot in _evenly(of_same_sentence(snapshots, n), MAX_FRAMES)
        }
        examples.append(Example(tuple(frames), tuple(frames.values())))
    return examples


def fit(given: Example, tracked: Sequence[Example]) -> tuple[list[Example], list[str]]:
    """Returns the examples that a page has room for, and a line on each thing left out.

    The given sentence has precedence: it loses its last tokens, but for the source's
    end-of-sentence, only if it does not fit by itself. Of the snapshot sentences there are as
    many as leave room for `MIN_FRAMES` checkpoints, or one, and of the checkpoints, evenly
    chosen from the first to the last, as many as fit.
    """
    first = _shorten(given, MAX_CHARACTERS)
    notes = [f"{note}; attention.npz has them all" for note in _note(OMITTED, first.omitted)]
    room = MAX_CHARACTERS - sum(map(_size, first.frames))
    kept = list(tracked)
    while len(kept) > 1 and _frames_that_fit(kept, room) < min(MIN_FRAMES, _most_frames(kept)):
        kept.pop()
    if kept and not _frames_that_fit(kept, room):
        kept.pop()
    if len(kept) < len(tracked):
        notes.append(
            f"the explorer has room for {len(kept)} of the run's {len(tracked)} snapshot sentences"
        )
    if kept and (frames := _frames_that_fit(kept, room)) < _most_frames(kept):
        notes.append(
            f"the explorer has room for {frames} of the {_most_frames(kept)} checkpoints at which "
            "the run kept snapshots"
        )
        kept = [_thin(example, frames) for example in kept]
    return [first, *kept], notes


def _note(text: str, tokens: tuple[int, int]) -> list[str]:
    """A line on how many tokens of each side are missing, if any are."""
    sides = zip(tokens, SIDES, strict=True)
    counts = " and ".join(f"{count:,} {side} tokens" for count, side in sides if count)
    return [text.format(counts)] if counts else []


def _most_frames(examples: Sequence[Example]) -> int:
    return max(len(example.frames) for example in examples)


def _frames_that_fit(examples: Sequence[Example], room: int) -> int:
    """The largest number of checkpoints per example with which all fit into `room`."""
    for count in range(_most_frames(examples), 0, -1):
        if sum(_size(e.frames[0]) * min(count, len(e.frames)) for e in examples) <= room:
            return count
    return 0


def _size(maps: AttentionMaps, length: int | None = None) -> int:
    """The characters that the maps take, or would take at a given number of tokens: 4 for 3
    bytes."""
    total = 0
    for kind, weights in maps.weights.items():
        queries, keys = (min(length or count, count) for count in weights.shape[2:])
        rows = [queries, 1] if kind in maps.value_norms else [queries]
        numbers = (weights.shape[0] * weights.shape[1] * keys * count for count in rows)
        total += sum(4 * math.ceil(4 * count / 3) for count in numbers)
    return total


def _thin(example: Example, count: int) -> Example:
    """The example at `count` of its checkpoints; if it is one, the last."""
    labels, frames = (_evenly(each, count) for each in (example.labels, example.frames))
    return example._replace(labels=tuple(labels), frames=tuple(frames))


def _evenly(items: Sequence[Any], count: int) -> list[Any]:
    """Evenly chosen items from the first to the last; if it is one, the last."""
    total = len(items)
    chosen = np.linspace(total - 1, 0, min(count, total)).round().astype(int)[::-1]
    return [items[i] for i in chosen]


def _shorten(example: Example, room: int) -> Example:
    """The example with as many tokens a side as there is room for."""
    sides = example.frames[0].source_tokens, example.frames[0].target_tokens
    length = max(map(len, sides))
    while length > 1 and sum(_size(maps, length) for maps in example.frames) > room:
        length -= 1
    frames = tuple(_first_tokens(maps, length) for maps in example.frames)
    rows, columns = (max(0, len(side) - length) for side in sides)
    return example._replace(frames=frames, omitted=(rows, columns))


def _first_tokens(maps: AttentionMaps, length: int) -> AttentionMaps:
    """The maps over the first tokens of both sides and the source's end-of-sentence."""
    source, target = (
        _kept_places(tokens, length) for tokens in (maps.source_tokens, maps.target_tokens)
    )
    places = {"source": source, "target": target, "written": target}
    return AttentionMaps(
        {
            kind: array[:, :, places[KINDS[kind].queries]][..., places[KINDS[kind].keys]]
            for kind, array in maps.weights.items()
        },
        tuple(maps.source_tokens[i] for i in source),
        tuple(maps.target_tokens[i] for i in target),
        tuple(maps.written_tokens[i] for i in target),
        {kind: array[..., places[KINDS[kind].keys]] for kind, array in maps.value_norms.items()},
    )


def _kept_places(tokens: Sequence[str], length: int) -> list[int]:
    places = list(range(min(length, len(tokens))))
    if places and tokens[-1] == END_OF_SENTENCE:
        places[-1] = len(tokens) - 1
    return places


def _check_exists(maps: AttentionMaps, options: Options) -> None:
    """Raises UserError if no kind has the layer and head that are asked for."""
    if any(maps.has(kind, options.layer, options.head) for kind in KINDS):
        return
    shapes = [weights.shape for weights in maps.weights.values()]
    layers, heads = (max(shape[axis] for shape in shapes) for axis in (0, 1))
    for name, asked, most in (("layer", options.layer, layers), ("head", options.head, heads)):
        if asked is not None and not 1 <= asked <= most:
            raise UserError(f"--{name}={asked} does not exist: this model has {name}s 1 to {most}")


def _first_view(maps: AttentionMaps, options: Options) -> dict[str, Any]:
    """Where the page opens: of the kinds that have the layer and head, the last."""
    return {
        "kind": [kind for kind in KINDS if maps.has(kind, options.layer, options.head)][-1],
        "layer": options.layer or 1,
        "head": options.head or 1,
        "view": "heads" if options.layer is None and options.head is None else "matrix",
        "end": "hidden" if options.hide_eos else "shown",
    }


def _encode(example: Example) -> dict[str, Any]:
    """An example as the page's script reads it."""
    maps = example.frames[-1]
    source, target = _text(maps.source_tokens), _text(maps.target_tokens)
    missing = example.unread, example.omitted
    return {
        "title": source or target,
        "translation": target if source else "",
        "source": [web_page.shortened(token, MAX_TOKEN_LENGTH) for token in maps.source_tokens],
        "target": [web_page.shortened(token, MAX_TOKEN_LENGTH) for token in maps.target_tokens],
        "written": [web_page.shortened(token, MAX_TOKEN_LENGTH) for token in maps.written_tokens],
        "unread": dict(zip(SIDES, example.unread, strict=True)),
        "omitted": dict(zip(SIDES, map(sum, zip(*missing, strict=True)), strict=True)),
        "frames": [
            {
                "label": label,
                "weights": {k: web_page.encode_floats(x) for k, x in maps.weights.items()},
                "norms": {k: web_page.encode_floats(x) for k, x in maps.value_norms.items()},
            }
            for label, maps in zip(example.labels, example.frames, strict=True)
        ],
    }


def _text(tokens: Sequence[str]) -> str:
    """The tokens as a text to be known by."""
    pieces = [token for token in tokens if token not in ("<s>", END_OF_SENTENCE)]
    return web_page.shortened("".join(pieces).replace("▁", " ").strip(), MAX_TITLE_LENGTH)
