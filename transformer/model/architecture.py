"""The interfaces of a network and of an encoder-decoder architecture."""

from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from transformer.model.config import ModelConfig, Size
from transformer.model.layers import NO_DROPOUT, DropoutRates

# The input of an encoder: token ids, or a named tuple of arrays for another embedding.
Source = Int[Array | np.ndarray, "B M"] | tuple


class Network(nn.Module):
    """The interface of a network; its methods are those of one without attention."""

    @property
    def max_positions(self) -> int | None:
        """The maximum number of positions, or None if it is unlimited."""
        return None

    @nn.nowrap
    def sown_attention(self, sown: Mapping[str, Any], name: str) -> dict[str, list[Array]]:
        """Returns the values of each layer that a forward pass has sown, by kind of attention.

        Kinds are "encoder_self", "decoder_self" and "cross", if the network has them.

        Args:
          sown: the collection `intermediates`.
          name: "weights" for the attention weights [B, H, L, M], or "value_norms" for the norms of
            transformed values [B, H, M], see `attention_variants.value_norms`. Their product is the
            norm of each head's contribution from each token.
        """
        return {}

    @nn.nowrap
    def weights_per_token(self, params: Any) -> int:
        """Returns the number of kernel weights that multiply each token, including the logits.

        Shared layers count each time they are applied. Kernels applied once per text do not count.
        """
        return 0

    @nn.nowrap
    def flops_per_token(self, params: Any) -> int:
        """Returns the floating-point operations of training per target token or token read.

        A product with a weight is a multiplication and an addition, in the forward pass and twice
        in the backward pass. The count has the weights of all layers and the logits, with as many
        source as target tokens; it excludes the products of attention, small for sentences, and
        the second pass of R-Drop.

        Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.
        """
        return 6 * self.weights_per_token(params)

    @nn.nowrap
    def source_table(self, params: Mapping[str, Any]) -> Float[ArrayLike, "V D"]:
        """Returns the embedding table of the source, which is the target's if they are tied.

        In a bag of embeddings, rows of bigrams follow those of the tokens.
        """
        params = params.get("encoder", params)
        embedding = params.get("source_embedding", params.get("target_embedding", params))
        return embedding.get("words", embedding)["table"]


class Architecture(Network):
    """An encoder, a decoder, or both: the interface of every entry of `build.REGISTRY`.

    Without encoder layers it is a language model, and without decoder layers it only encodes.

    A subclass creates in its `setup` the embeddings `target_embedding` and, unless the output is
    tied, `output_embedding`.
    """

    config: ModelConfig
    has_heads: ClassVar[bool]  # whether it has attention heads, which gates can ablate

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Raises UserError if the numbers of a configuration do not fit this architecture."""

    @classmethod
    def has_cross_attention(cls, config: Any) -> bool:
        """Whether the decoder attends to the source; see `build.has_cross_attention`."""
        raise NotImplementedError

    def encode(
        self,
        source: Source,
        source_mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B M D"]:
        """Returns the encoder's output, one vector per source token."""
        raise NotImplementedError

    def decode(
        self,
        target: Int[Array, "B L"],
        memory: Float[Array, "B M D"] | None,
        source_mask: Bool[Array, "B M"] | None,
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates = NO_DROPOUT,
        segments: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L D"]:
        """Returns the decoder's output for a whole target; no position sees future tokens.

        Args:
          memory, source_mask: the output of `encode` and its mask; None without an encoder.
          segments: the document of each token, if a language model's rows hold several. A token
            sees only its own document; None if a row is one document.
        """
        raise NotImplementedError

    def init_cache(
        self,
        source: Source,
        source_mask: Bool[Array, "B M"],
        beam_size: int,
        steps: Size,
    ) -> Any:
        """Returns the cache with which `decode_step` decodes `beam_size` hypotheses per sentence.

        It has the methods that `decoding.search.Step` needs.

        Args:
          source: without an encoder only its number of rows is used.
          steps: minimum number of tokens that can be decoded.

        Raises:
          UserError: the model has fewer positions than `steps`.
        """
        raise NotImplementedError

    def decode_step(
        self, tokens: Int[Array, "B P"], cache: Any
    ) -> tuple[Float[Array, "B P V"], Any]:
        """Returns the logits after one more token of each hypothesis, and the updated cache."""
        raise NotImplementedError

    # -- shared by all architectures

    def __call__(
        self,
        source: Source | None,
        target: Int[Array, "B L"],
        source_mask: Bool[Array, "B M"] | None,
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates = NO_DROPOUT,
        segments: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L V"]:
        """Returns float32 logits; the logits at target position i score the token after i.

        Args:
          source, source_mask: None without an encoder.
          source_mask, target_mask: True at tokens, False at padding.
          rates: dropout rates in training, which needs the rng "dropout".
          segments: see `decode`.
        """
        inputs = source, target, source_mask, target_mask, rates, segments
        return self.logits(self.features(*inputs))

    def features(
        self,
        source: Source | None,
        target: Int[Array, "B L"],
        source_mask: Bool[Array, "B M"] | None,
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates = NO_DROPOUT,
        segments: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L D"]:
        """Returns the decoder's last hidden states: `__call__` before its logits."""
        memory = None
        if self.config.has_encoder:
            assert source is not None, "the encoder reads a source"
            assert source_mask is not None
            memory = self.encode(source, source_mask, rates)
        return self.decode(target, memory, source_mask, target_mask, rates, segments)

    def factors(self, *inputs: Any) -> tuple[Float[Array, "B L E"], Float[Array, "V E"]]:
        """Returns the factors of the logits, given the arguments of `__call__`."""
        return self.output_factors(self.features(*inputs))

    def output_factors(
        self, features: Float[Array, "B L D"]
    ) -> tuple[Float[Array, "B L E"], Float[Array, "V E"]]:
        """Returns the factors of the logits: hidden states and the output matrix [3.4].

        The product uses the first factor's dtype; the matrix is still float32.
        """
        untied = self.config.tied_embeddings == "none"
        table = self.output_embedding.table if untied else self.target_embedding.table
        return features.astype(self.config.dtypes.factors), table

    def logits(self, features: Float[Array, "B L D"]) -> Float[Array, "B L V"]:
        """Returns float32 scores over the target vocabulary."""
        features, table = self.output_factors(features)
        table = table.astype(features.dtype)
        return jnp.einsum("BLD,VD->BLV", features, table, preferred_element_type=jnp.float32)

    @nn.nowrap
    def weights_per_token(self, params: Any) -> int:
        config = self.config
        logits = config.target_vocab_size * config.d_model if config.has_decoder else 0
        return logits + self.kernels_per_token(params)

    @nn.nowrap
    def kernels_per_token(self, params: Any) -> int:
        """Returns `weights_per_token` without the logits."""
        raise NotImplementedError


def count_kernels(params: Any) -> int:
    """Returns the number of kernel weights in a tree of parameters."""
    leaves: dict[str, Any] = flatten_dict(params, sep="/")
    return sum(leaf.size for name, leaf in leaves.items() if name.endswith("kernel"))
