"""Attention in a notebook: the explorer within its page, and figures; see `Attention`."""

import html

from matplotlib.figure import Figure

from experiments.attention import maps, page
from experiments.attention.arrays import KINDS, AttentionMaps
from experiments.options import Options
from transformer.analysis.attention import Attention
from transformer.errors import UserError

HEIGHT = 760  # pixels of the explorer: all heads of a short sentence


def explorer(seen: Attention) -> str:
    """Returns the explorer as an element of a page, apart from the page's styles and scripts."""
    text = page.explorer(page.Example(("",), (AttentionMaps.of(seen),), seen.unread), (), Options())
    return (
        f'<iframe srcdoc="{html.escape(text)}" sandbox="allow-scripts" title="Attention" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )


def figure(seen: Attention, kind: str | None, layer: int, head: int | None) -> Figure:
    """Returns the heat maps of `Attention.figure`."""
    drawn = AttentionMaps.of(seen)
    if not drawn.weights:
        raise UserError("this model has no attention to draw")
    kind = kind or [kind for kind in KINDS if kind in drawn.weights][-1]
    if kind not in drawn.weights:
        raise UserError(f"there is no attention {kind!r}: choose one of {', '.join(drawn.weights)}")
    if not drawn.has(kind, layer, head):
        layers, heads = drawn.weights[kind].shape[:2]
        raise UserError(
            f"layer={layer}, head={head} does not exist: {kind} has layers 1 to {layers} and heads "
            f"1 to {heads}"
        )
    return maps.build_figure(drawn, kind, layer, head)
