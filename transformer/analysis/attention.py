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
COMES_NEXT = "(next)"  # the token after the last one of a text without end, or of a cut one


class Kind(NamedTuple):
    """A kind of attention: its title, whose tokens are rows and columns, and what these are."""

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
# Which tokens of a text are the queries and the keys of a kind: 0 the source's, 1 the target's.
KIND_SIDES = {"encoder_self": (0, 0), "decoder_self": (1, 1), "cross": (1, 0)}


class GridPicture(NamedTuple):
    """A picture, and how many patches its side has."""

    pixels: UInt8[np.ndarray, "S S C"]
    grid: int


class Attention(NamedTuple):
    """The attention of a model over one text, or over a source and its translation.

    Kinds are "encoder_self" (both axes are the source), "decoder_self" (both are the target) and
    "cross" (queries are the target, keys the source), of those that the model has. A notebook shows
    it as the explorer of all heads.

    Attributes:
      weights: of each layer and head, by kind; a query's row sums to one.
      value_norms: the norm of a key's contribution to a layer's output if all of a head's weight is
        on it, by kind; empty for a model without such heads, see `MultiHeadAttention`.
      source_tokens: the tokens that the encoder reads; a translator's end in end-of-sentence.
      target_tokens: the tokens that the decoder reads. A missing side has no tokens.
      unread: how many further tokens (of the source, of the target) the text has, which are more
        than the model can read.
      picture: of which source tokens are patches, all after the first, the class token.
    """

    weights: Mapping[str, Float[np.ndarray, "layers H L M"]]
    value_norms: Mapping[str, Float[np.ndarray, "layers H M"]]
    source_tokens: list[str]
    target_tokens: list[str]
    unread: tuple[int, int] = (0, 0)
    picture: GridPicture | None = None

    @property
    def written_tokens(self) -> list[str]:
        """The token that the decoder writes in each row of its attention, after the one it reads.

        A translation ends in end-of-sentence; the token after a language model's text, or after a
        translation of which more is `unread`, is `COMES_NEXT`.
        """
        ends = self.source_tokens and not self.unread[1]
        last = END_OF_SENTENCE if ends else COMES_NEXT
        return [*self.target_tokens[1:], last][: len(self.target_tokens)]

    def names(self, kind: str) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the tokens that name the rows (queries) and the columns (keys) of a kind.

        A row of a decoder has the token that is written in it, as in figure 3 of Bahdanau et al.
        2015; other rows, and all columns, have the token that is read.
        """
        self.check_kind(kind)
        sides = {
            "source": self.source_tokens,
            "target": self.target_tokens,
            "written": self.written_tokens,
        }
        return sides[KINDS[kind].queries], sides[KINDS[kind].keys]

    def check_kind(self, kind: str) -> None:
        """Raises UserError, which lists the kinds of the model, if it has no such kind."""
        if kind not in list(self.weights):
            raise UserError(
                f"there is no attention {kind!r}: choose one of {', '.join(self.weights)}"
            )

    def figure(self, kind: str | None = None, layer: int = 1, head: int | None = None) -> "Figure":
        """Returns the heat maps of a layer, a panel per head.

        Args:
          kind: by default cross-attention if the model has it, or else the only kind.
          layer: from one.
          head: the only one to draw, from one.
        """
        heat_maps = import_sibling("experiments.attention.heat_maps")
        return heat_maps.checked_figure(self, kind, layer, head)

    def _repr_html_(self) -> str:
        """Returns the explorer, as notebooks show it."""
        return import_sibling("experiments.attention.explorer").element(self)

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
        for kind in filter(batch.__contains__, KINDS):  # the order in which they are shown
            of_kind, (queries, keys) = batch[kind], (lengths[side] for side in KIND_SIDES[kind])
            weights[kind] = np.asarray(of_kind.weights)[:, 0, :, :queries, :keys]
            if of_kind.value_norms is not None:
                value_norms[kind] = np.asarray(of_kind.value_norms)[:, 0, :, :keys]
        return cls(weights, value_norms, source_tokens, target_tokens, unread)


class BatchAttention(NamedTuple):
    """One kind of attention within a batch, in the layers that have it.

    `value_norms` are None if the model has none; for `mask` and `ends` see
    `statistics.head_statistics`.
    """

    weights: Float[Array, "layers B H L M"]
    value_norms: Float[Array, "layers B H M"] | None
    mask: Bool[Array, "B L M"]
    ends: Bool[Array, "B M"] | None

    @classmethod
    def by_kind(
        cls,
        model: Any,
        intermediates: Mapping[str, Any],
        masks: Mapping[str, tuple[Bool[Array, "B _ _"], Bool[Array, "B _"] | None]],
    ) -> "dict[str, BatchAttention]":
        """Returns the kinds of attention that a model has sown in a forward pass over a batch.

        Args:
          masks: mask and ends of each kind.
        """
        norms = {k: jnp.stack(layers) for k, layers in model.value_norms(intermediates).items()}
        return {
            kind: cls(jnp.stack(layers), norms.get(kind), *masks[kind])
            for kind, layers in model.attention_weights(intermediates).items()
        }
