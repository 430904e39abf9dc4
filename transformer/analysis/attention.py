"""Attention weights, for one text as NumPy arrays or for a batch as JAX arrays."""

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
    """A kind of attention: a title, the sides of queries and keys, and the labels of both axes."""

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
# Kind of attention -> the sides of queries and keys: 0 is the source, 1 the target.
KIND_SIDES = {"encoder_self": (0, 0), "decoder_self": (1, 1), "cross": (1, 0)}


class GridPicture(NamedTuple):
    """An image, and the number of patches per side."""

    pixels: UInt8[np.ndarray, "S S C"]
    grid: int


class Attention(NamedTuple):
    """The attention weights of a model for one text, or for a source and its translation.

    The kinds are "encoder_self" (from source to source tokens), "decoder_self" (from target to
    target tokens) and "cross" (from target to source tokens), if the model has them. Notebooks
    display an interactive view of all heads.

    Attributes:
      weights: attention weights of each layer and head, keyed by kind; each query's row sums to 1,
        or to less with attention sinks.
      value_norms: norms of transformed values, keyed by kind; see `attention_variants.value_norms`.
        The mapping is empty if the model has no multi-head attention.
      source_tokens: the tokens that the encoder reads; translation adds end-of-sentence.
      target_tokens: the tokens that the decoder reads. A side that the model lacks has no tokens.
      unread: the numbers of truncated source and target tokens, which exceed the model's limit.
      picture: the image whose patches are the source tokens after the class token.
    """

    weights: Mapping[str, Float[np.ndarray, "layers H L M"]]
    value_norms: Mapping[str, Float[np.ndarray, "layers H M"]]
    source_tokens: list[str]
    target_tokens: list[str]
    unread: tuple[int, int] = (0, 0)
    picture: GridPicture | None = None

    @property
    def written_tokens(self) -> list[str]:
        """The output token at each decoder position, which is also the next input token.

        The last token is end-of-sentence for a translation, and `COMES_NEXT` for a language model's
        text or a truncated translation.
        """
        ends = self.source_tokens and not self.unread[1]
        last = END_OF_SENTENCE if ends else COMES_NEXT
        return [*self.target_tokens[1:], last][: len(self.target_tokens)]

    def names(self, kind: str) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the token labels of the rows (queries) and columns (keys) of a kind of attention.

        The rows of a decoder are labelled with output tokens, as in figure 3 of Bahdanau et al.
        2015; all other rows, and all columns, are labelled with input tokens.
        """
        self.check_kind(kind)
        sides = KINDS[kind].queries, KINDS[kind].keys
        queries, keys = (getattr(self, f"{side}_tokens") for side in sides)
        return queries, keys

    def check_kind(self, kind: str) -> None:
        """Raises UserError, which lists the valid kinds, if the model has no such attention."""
        if kind not in list(self.weights):
            raise UserError(
                f"there is no attention {kind!r}: choose one of {', '.join(self.weights)}"
            )

    def figure(self, kind: str | None = None, layer: int = 1, head: int | None = None) -> "Figure":
        """Returns a figure of a layer's attention weights, with a heat map for each head.

        Args:
          kind: kind of attention; by default cross-attention if the model has it, otherwise the
            model's only kind.
          layer: layer number, from one.
          head: number of the head to draw, from one; None draws all heads.
        """
        heat_maps = import_sibling("experiments.attention.heat_maps")
        return heat_maps.checked_figure(self, kind, layer, head)

    def _repr_html_(self) -> str:
        """Returns the interactive view as HTML, for notebooks."""
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
        """Returns the attention of the first text in a batch, without padding."""
        lengths, weights, value_norms = (len(source_tokens), len(target_tokens)), {}, {}
        for kind in filter(batch.__contains__, KINDS):  # the display order
            of_kind, (queries, keys) = batch[kind], (lengths[side] for side in KIND_SIDES[kind])
            weights[kind] = np.asarray(of_kind.weights)[:, 0, :, :queries, :keys]
            if of_kind.value_norms is not None:
                value_norms[kind] = np.asarray(of_kind.value_norms)[:, 0, :, :keys]
        return cls(weights, value_norms, source_tokens, target_tokens, unread)


class BatchAttention(NamedTuple):
    """The weights of one kind of attention for a batch, in all layers that have this kind.

    `value_norms` is None if the model does not sow value norms. For `mask` and `ends`, see
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
        """Returns the attention that a forward pass over a batch has sown, keyed by kind.

        Args:
          masks: `mask` and `ends` for each kind.
        """
        weights, norms = (
            {k: jnp.stack(layers) for k, layers in model.sown_attention(sown, name).items()}
            for name in ("weights", "value_norms")
        )
        return {kind: cls(weights[kind], norms.get(kind), *masks[kind]) for kind in weights}
