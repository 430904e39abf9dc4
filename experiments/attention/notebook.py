"""Attention in a notebook: the explorer within its page, and figures; see `Attention`."""

import html

import numpy as np
from matplotlib.figure import Figure

from experiments.attention import maps, page
from experiments.attention.arrays import KINDS, AttentionMaps
from transformer.analysis.attention import Attention
from transformer.errors import UserError

HEIGHT = 760  # pixels of the explorer: all heads of a short sentence


def explorer(seen: Attention) -> str:
    """Returns the explorer as an element of a page, apart from the page's styles and scripts."""
    text = html.escape(page.explorer(seen))
    return (
        f'<iframe srcdoc="{text}" sandbox="allow-scripts" title="Attention" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )


def figure(seen: Attention, kind: str | None, layer: int, head: int | None) -> Figure:
    """Returns the heat maps of `Attention.figure`."""
    drawn = AttentionMaps.of(seen)
    if not drawn.weights:
        raise UserError("this model has no attention to draw")
    kind = [kind for kind in KINDS if kind in drawn.weights][-1] if kind is None else kind
    seen.check_kind(kind)
    layers, heads = drawn.weights[kind].shape[:2]
    check_number("layer", layer, layers, kind)
    if head is not None:
        check_number("head", head, heads, kind)
    return maps.build_figure(drawn, kind, layer, head)


def check_number(name: str, number: object, count: int, kind: str) -> None:
    """Raises UserError if there is no such layer or head."""
    if (
        isinstance(number, bool)
        or not isinstance(number, int | np.integer)
        or not 1 <= number <= count
    ):
        raise UserError(f"{name}={number!r} does not exist: {kind} has {name}s 1 to {count}")
