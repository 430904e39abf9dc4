"""The attention of a model: over one text on the host, over a batch on the device."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from transformer.errors import UserError
from transformer.files import import_sibling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

END_OF_SENTENCE = "</s>"
COMES_NEXT = "(next)"  # stands for the token after an open-ended or truncated text


class Kind(NamedTuple):
    """A kind of attention: its title, the sides of rows and columns, and their descriptions."""

    title: str
    queries: str
    keys: str
    rows: str
    columns: str


KINDS = {
    "encoder_self": Kind("Encoder self-attention", "source", "source", "token", "token read"),
    "decoder_self": Kind(
        "Decoder self-attention", "written", "target", "token written", "token read"
    ),
    "cross": Kind("Cross-attention", "written", "source", "token written", "source token read"),
}
# The side of the queries and of the keys of each kind: 0 is the source, 1 the target.
KIND_SIDES = {"encoder_self": (0, 0), "decoder_self": (1, 1), "cross": (1, 0)}


class GridPicture(NamedTuple):
    """A picture, and the number of patches per side."""

    pixels: UInt8[np.ndarray, "S S C"]
    grid: int


class Attention(NamedTuple):
    """The attention of a model over one text, or over a source and its translation.

    Kinds are "encoder_self" (both axes are the source), "decoder_self" (both are the target) and
    "cross" (queries are the target, keys the source), if the model has them. A notebook shows the
    explorer of all heads.

    Attributes:
      weights: weights of each layer and head, by kind; a query's row sums to one.
      value_norms: the norm of a key's contribution to a layer's output if all of a head's weight is
        on it, by kind; empty for a model without such heads, see `MultiHeadAttention`.
      source_tokens: the tokens that the encoder reads; a translator's end in end-of-sentence.
      target_tokens: the tokens that the decoder reads. A missing side has no tokens.
      unread: the number of further tokens (of source and target) of the text that the model cannot
        read.
      picture: the picture whose patches are the source tokens after the first, the class token.
    """

    weights: Mapping[str, Float[np.ndarray, "layers H L M"]]
    value_norms: Mapping[str, Float[np.ndarray, "layers H M"]]
    source_tokens: list[str]
    target_tokens: list[str]
    unread: tuple[int, int] = (0, 0)
    picture: GridPicture | None = None

    @property
    def written_tokens(self) -> list[str]:
        """The output token of each row of the decoder's attention, which follows the input token.

        A translation ends in end-of-sentence; the token after a language model's text, or after a
        truncated translation, is `COMES_NEXT`.
        """
        ends = self.source_tokens and not self.unread[1]
        last = END_OF_SENTENCE if ends else COMES_NEXT
        return [*self.target_tokens[1:], last][: len(self.target_tokens)]

    def names(self, kind: str) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the tokens that name the rows (queries) and the columns (keys) of a kind.

        A row of a decoder is named by its output token, as in figure 3 of Bahdanau et al. 2015; all
        other rows, and all columns, are named by the input token.
        """
        self.check_kind(kind)
        sides = {
            "source": self.source_tokens,
            "target": self.target_tokens,
            "written": self.written_tokens,
        }
        return sides[KINDS[kind].queries], sides[KINDS[kind].keys]

    def check_kind(self, kind: str) -> None:
        """Raises UserError, with a list of the model's kinds, if the model lacks this kind."""
        if kind not in list(self.weights):
            raise UserError(
                f"there is no attention {kind!r}: choose one of {', '.join(self.weights)}"
            )

    def figure(self, kind: str | None = None, layer: int = 1, head: int | None = None) -> "Figure":
        """Returns the heat maps of a layer, with a panel per head.

        Args:
          kind: by default cross-attention if the model has it, otherwise the only kind.
          layer: from one.
          head: the only head to draw, from one; None for all heads.
        """
        heat_maps = import_sibling("experiments.attention.heat_maps")
        return heat_maps.checked_figure(self, kind, layer, head)

    def _repr_html_(self) -> str:
        """Returns the explorer as HTML for notebooks."""
        return import_sibling("experiments.attention.draw").element(self)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{kind} {list(w.shape)}" for kind, w in self.weights.items())
        source, target = len(self.source_tokens), len(self.target_tokens)
        return f"Attention({shapes or 'none'}; {source} source and {target} target tokens)"

    @classmethod
    def of_first_text(
        cls,
        batch: "Mapping[str, BatchAttention]",
        source_tokens: list[str],
        target_tokens: list[str],
        unread: tuple[int, int] = (0, 0),
    ) -> "Attention":
        """Returns the attention over the first text of a batch, without its padding."""
        lengths, weights, value_norms = (len(source_tokens), len(target_tokens)), {}, {}
        for kind in filter(batch.__contains__, KINDS):  # the display order
            of_kind, (queries, keys) = batch[kind], (lengths[side] for side in KIND_SIDES[kind])
            weights[kind] = np.asarray(of_kind.weights)[:, 0, :, :queries, :keys]
            if of_kind.value_norms is not None:
                value_norms[kind] = np.asarray(of_kind.value_norms)[:, 0, :, :keys]
        return cls(weights, value_norms, source_tokens, target_tokens, unread)


class BatchAttention(NamedTuple):
    """One kind of attention within a batch, in the layers that have it.

    `value_norms` are None if the model has none; for `mask` and `ends` see
    `snapshots.head_statistics`.
    """

    weights: Float[Array, "layers B H L M"]
    value_norms: Float[Array, "layers B H M"] | None
    mask: Bool[Array, "B L M"]
    ends: Bool[Array, "B M"] | None

    @classmethod
    def by_kind(
        cls,
        model: Any,
        sown: Mapping[str, Any],
        masks: Mapping[str, tuple[Bool[Array, "B _ _"], Bool[Array, "B _"] | None]],
    ) -> "dict[str, BatchAttention]":
        """Returns the attention, by kind, that a model has sown in a forward pass over a batch.

        Args:
          masks: mask and ends for each kind.
        """
        weights, norms = (
            {k: jnp.stack(layers) for k, layers in model.sown_attention(sown, name).items()}
            for name in ("weights", "value_norms")
        )
        return {kind: cls(weights[kind], norms.get(kind), *masks[kind]) for kind in weights}
