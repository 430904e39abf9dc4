"""The interfaces of networks and encoder-decoder architectures."""

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

# The encoder input: token ids, or a named tuple of arrays for another embedding module.
Source = Int[Array | np.ndarray, "B M"] | tuple


class Network(nn.Module):
    """The interface of a network, with default methods for networks without attention."""

    @property
    def max_positions(self) -> int | None:
        """The maximum number of positions, or None if there is no limit."""
        return None

    @nn.nowrap
    def sown_attention(self, sown: Mapping[str, Any], name: str) -> dict[str, list[Array]]:
        """Returns the per-layer values that a forward pass has sown, keyed by kind of attention.

        The kinds are "encoder_self", "decoder_self" and "cross", if the network has them.

        Args:
          sown: the Flax collection `intermediates`.
          name: "weights" for the attention weights [B, H, L, M], or "value_norms" for the norms of
            transformed values [B, H, M] (see `attention_variants.value_norms`). The product of the
            two is the norm of each token's contribution to the output of each head.
        """
        return {}

    @nn.nowrap
    def weights_per_token(self, params: Any) -> int:
        """Returns the number of kernel parameters used per token, including the output projection.

        Shared layers count once per application. Kernels applied once per text are not counted.
        """
        return 0

    @nn.nowrap
    def flops_per_token(self, params: Any) -> int:
        """Returns the training FLOPs per target token, or per input token if there is no target.

        Each weight costs one multiplication and one addition in the forward pass, and twice that in
        the backward pass. The count includes all layers and the logits, and assumes equal numbers
        of source and target tokens. It excludes the attention products, which are small for
        sentences, and the second pass of R-Drop.

        Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.
        """
        return 6 * self.weights_per_token(params)

    @nn.nowrap
    def source_table(self, params: Mapping[str, Any]) -> Float[ArrayLike, "V D"]:
        """Returns the source embedding table; if embeddings are tied, it is also the target table.

        In a bag of embeddings, the rows for bigrams follow the rows for tokens.
        """
        params = params.get("encoder", params)
        embedding = params.get("source_embedding", params.get("target_embedding", params))
        return embedding.get("words", embedding)["table"]


class Architecture(Network):
    """The interface of the architectures in `build.REGISTRY`: an encoder, a decoder, or both.

    Without encoder layers, a model is a language model; without decoder layers, it is an encoder.

    A subclass must create `target_embedding` in `setup`, and, unless the output embedding is tied,
    `output_embedding`.
    """

    config: ModelConfig
    has_heads: ClassVar[bool]  # whether the model has places of interventions

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Raises UserError if config values are not valid for this architecture."""

    @classmethod
    def has_cross_attention(cls, config: Any) -> bool:
        """Returns whether the decoder attends to the source; see `build.has_cross_attention`."""
        raise NotImplementedError

    def encode(
        self,
        source: Source,
        source_mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B M D"]:
        """Returns the encoder output, one vector per source token."""
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
        """Returns the decoder output for whole targets; no output depends on future tokens.

        Args:
          memory, source_mask: the output of `encode` and its mask, or None without an encoder.
          segments: the document number of each token, if several documents are packed into a
            sequence; outputs then depend only on tokens of the same document. None otherwise.
        """
        raise NotImplementedError

    def init_cache(
        self,
        source: Source,
        source_mask: Bool[Array, "B M"],
        beam_size: int,
        steps: Size,
    ) -> Any:
        """Returns the initial cache of `decode_step` for `beam_size` hypotheses per sentence.

        The cache has the methods that `decoding.search.Step` requires.

        Args:
          source: the source; without an encoder, only the batch size of this argument is used.
          steps: minimum number of tokens that the cache must be able to hold.

        Raises:
          UserError: the model has fewer positions than `steps`.
        """
        raise NotImplementedError

    def decode_step(
        self, tokens: Int[Array, "B P"], cache: Any
    ) -> tuple[Float[Array, "B P V"], Any]:
        """Reads one more token of each hypothesis; returns the logits and the updated cache."""
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
        """Returns float32 logits; the logits at target position i predict the token at i + 1.

        Args:
          source, source_mask: None if there is no encoder.
          source_mask, target_mask: True at tokens, False at padding.
          rates: dropout rates for training, which requires the RNG "dropout".
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
        """Returns the decoder's last hidden states, from which the logits are computed."""
        memory = None
        if self.config.has_encoder:
            assert source is not None, "the encoder reads a source"
            assert source_mask is not None
            memory = self.encode(source, source_mask, rates)
        return self.decode(target, memory, source_mask, target_mask, rates, segments)

    def factors(self, *inputs: Any) -> tuple[Float[Array, "B L E"], Float[Array, "V E"]]:
        """Returns `output_factors`, given the arguments of `__call__`."""
        return self.output_factors(self.features(*inputs))

    def output_factors(
        self, features: Float[Array, "B L D"]
    ) -> tuple[Float[Array, "B L E"], Float[Array, "V E"]]:
        """Returns the hidden states and the output matrix; their product is the logits [3.4].

        The product must be computed in the dtype of the hidden states; the matrix is float32.
        """
        untied = self.config.tied_embeddings == "none"
        table = self.output_embedding.table if untied else self.target_embedding.table
        return features.astype(self.config.dtypes.factors), table

    def logits(self, features: Float[Array, "B L D"]) -> Float[Array, "B L V"]:
        """Returns float32 logits over the target vocabulary."""
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
        """Returns `weights_per_token` without the output projection."""
        raise NotImplementedError


def count_kernels(params: Any) -> int:
    """Returns the number of kernel parameters in a parameter tree."""
    leaves: dict[str, Any] = flatten_dict(params, sep="/")
    return sum(leaf.size for name, leaf in leaves.items() if name.endswith("kernel"))
