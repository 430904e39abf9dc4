"""Text and image classifiers: an encoder with pooled output, and baselines."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.model.architecture import Network, Source, count_kernels
from transformer.model.attention import masked_softmax
from transformer.model.build import build_model
from transformer.model.config import FLOAT32, Dtypes, ModelConfig
from transformer.model.layers import NO_DROPOUT, Dropout, DropoutRates, Embedding, Linear
from transformer.model.masks import padding_mask
from transformer.model.recurrent.cells import REGISTRY, run_cell
from transformer.model.vision.inputs import PictureText, from_patches
from transformer.model.vision.patches import PatchEmbedding

POOLINGS = ("mean", "first", "attention")
FILTERS = (32, 64, 64)  # output channels of the convolutions in `CnnLstm`, which have stride 2
BAG = "bag_of_embeddings"  # config name of `BagOfEmbeddings`, which has no encoder


class Classified(NamedTuple):
    """The output of a classifier: pooled vectors, and the float32 logits computed from them."""

    logits: Float[Array, "B C"]
    embedding: Float[Array, "B E"]


def masked_mean(x: Float[Array, "B M D"], mask: Bool[Array, "B M"]) -> Float[Array, "B D"]:
    """Returns the float32 mean over unmasked tokens, or zeros if all tokens are masked."""
    weights = mask / jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
    return jnp.einsum("BMD,BM->BD", x.astype(jnp.float32), weights)


class AttentionPooling(nn.Module):
    """The sum of token vectors, weighted by their similarity to a learned query.

    The score of a token is the dot product of u = tanh(W h + b) and the query; the weights are the
    softmax of the scores over a text's tokens, and are sown as `intermediates/weights`.

    Source: Yang et al. 2016, "Hierarchical Attention Networks", equations 5 to 7.
    """

    dtypes: Dtypes

    @nn.compact
    def __call__(self, x: Float[Array, "B M D"], mask: Bool[Array, "B M"]) -> Float[Array, "B D"]:
        width = x.shape[-1]
        hidden = nn.tanh(Linear(width, self.dtypes, True, name="hidden")(x)).astype(jnp.float32)
        query = self.param("query", nn.initializers.normal(width**-0.5), (width,))
        scores = jnp.einsum("BMD,D->BM", hidden, query)
        weights = masked_softmax(scores[:, None, None], padding_mask(mask))[:, 0, 0]
        self.sow("intermediates", "weights", weights)
        return jnp.einsum("BMD,BM->BD", x.astype(jnp.float32), weights)


class Classifier(Network):
    """An encoder whose output is pooled over the tokens, and a linear layer for the class logits.

    Args:
      config: model config of any architecture, with no decoder layers.
      num_classes: the number of classes, C.
      pooling: one of POOLINGS: "mean" over all tokens | "first" token only (Devlin et al. 2019,
        section 3), which is the class token for images | "attention" (see `AttentionPooling`).
    """

    config: ModelConfig
    num_classes: int
    pooling: str

    def setup(self):
        self.encoder = build_model(self.config)
        if self.pooling == "attention":
            self.attention_pooling = AttentionPooling(self.config.dtypes)
        self.dropout = Dropout()
        self.output = Linear(self.num_classes, FLOAT32, True)

    def __call__(
        self,
        source: Source,
        mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Classified:
        """Returns the class logits and the pooled vectors.

        Args:
          mask: True at tokens, False at padding.
          rates: dropout rates for training, which requires the RNG "dropout"; the residual rate is
            also used for the pooled vectors.
        """
        x = self.encoder.encode(source, mask, rates)
        if self.pooling == "first":
            embedding = x[:, 0].astype(jnp.float32)
        else:
            pool = masked_mean if self.pooling == "mean" else self.attention_pooling
            embedding = pool(x, mask)
        return Classified(self.output(self.dropout(embedding, rates.residual)), embedding)

    # -- the interface of `Network`, delegated to the encoder

    @property
    def max_positions(self) -> int | None:
        return build_model(self.config).max_positions

    @nn.nowrap
    def sown_attention(self, sown: Mapping[str, Any], name: str) -> dict[str, list[Array]]:
        return build_model(self.config).sown_attention(sown.get("encoder", {}), name)

    @nn.nowrap
    def weights_per_token(self, params: Any) -> int:
        pooling = count_kernels(params.get("attention_pooling", {}))
        return build_model(self.config).weights_per_token(params["encoder"]) + pooling


class BagOfEmbeddings(Network):
    """The mean of the token embeddings, a small hidden layer, and a layer for the class logits.

    With `bigram_buckets`, each bigram is hashed to one of that many additional table rows, and its
    embedding is included in the mean. Otherwise, the model ignores the order of tokens.

    Args:
      vocab_size: the vocabulary size, V.
      num_classes: the number of classes, C.
      width: embedding dimension, E.
      hidden: number of hidden units, with ReLU.
      bigram_buckets: number of table rows for bigrams; 0 disables bigrams.

    Source: Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification", sections 2 and
    2.2; the model in the paper has no hidden layer.
    """

    vocab_size: int
    num_classes: int
    width: int = 16
    hidden: int = 16
    bigram_buckets: int = 0

    @nn.compact
    def __call__(
        self,
        tokens: Int[Array, "B M"],
        mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Classified:
        """Returns the class logits and the mean embeddings; see `Classifier`."""
        if self.bigram_buckets:
            bigrams = self.vocab_size + bigram_hash(tokens, self.bigram_buckets)
            tokens = jnp.concatenate([tokens, bigrams], axis=1)
            mask = jnp.concatenate([mask, mask[:, :-1] & mask[:, 1:]], axis=1)
        rows = self.vocab_size + self.bigram_buckets
        table = self.param("table", nn.initializers.normal(self.width**-0.5), (rows, self.width))
        vectors = Dropout(whole=True, name="word_dropout")(table[tokens], rates.word)
        embedding = masked_mean(vectors, mask)
        x = Dropout()(embedding, rates.embedding)
        x = nn.relu(Linear(self.hidden, FLOAT32, True, name="inner")(x))
        return Classified(Linear(self.num_classes, FLOAT32, True, name="output")(x), embedding)


def bigram_hash(tokens: Int[Array, "B M"], buckets: int) -> Int[Array, "B M-1"]:
    """Returns the zero-based bucket of each bigram, which is a token and the next token.

    The product with the first constant of MurmurHash3's finalizer distinguishes (a, b) from (b, a);
    the rest of the finalizer spreads neighbouring ids over the buckets.
    """
    first, second = (part.astype(jnp.uint32) for part in (tokens[:, :-1], tokens[:, 1:]))
    mixed = first * jnp.uint32(0x85EBCA6B) + second
    mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0xC2B2AE35)
    mixed ^= mixed >> 13
    return (mixed % jnp.uint32(buckets)).astype(tokens.dtype)


class BagOfPatches(Network):
    """The means of the patch and question embeddings, a hidden layer, and the class logits.

    The model ignores the positions of the patches.

    Args:
      config: config of the embeddings; its `d_ff` is the number of hidden units, with ReLU.
      num_classes: the number of classes, C.
    """

    config: ModelConfig
    num_classes: int

    @nn.compact
    def __call__(
        self,
        source: PictureText,
        mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Classified:
        config, patches = self.config, 1 + source.patches.shape[1]
        vectors = PatchEmbedding(config.source_vocab_size, config, name="source_embedding")(source)
        parts = [masked_mean(vectors[:, :patches], mask[:, :patches])]
        if source.tokens.shape[1]:
            parts.append(masked_mean(vectors[:, patches:], mask[:, patches:]))
        embedding = Dropout()(jnp.concatenate(parts, axis=-1), rates.embedding)
        hidden = nn.relu(Linear(config.d_ff, FLOAT32, True, name="inner")(embedding))
        return Classified(Linear(self.num_classes, FLOAT32, True, name="output")(hidden), embedding)


class CnnLstm(Network):
    """Features of a small convolutional network, multiplied by the last state of a question LSTM.

    Without a question, only the convolutional network is used.

    Args:
      config: `d_model` is the output dimension of both networks; `cell` is the recurrent cell.
      num_classes: the number of classes, C.

    Source: Antol et al. 2015, "VQA: Visual Question Answering", section 4 ("LSTM Q + norm I");
    here, the image network is trained, too.
    """

    config: ModelConfig
    num_classes: int

    @nn.compact
    def __call__(
        self,
        source: PictureText,
        mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Classified:
        config, width = self.config, self.config.d_model
        pixels = from_patches(jnp.asarray(source.patches), config.patch_size)
        x = pixels.astype(jnp.float32) / 127.5 - 1.0
        for number, filters in enumerate(FILTERS):
            x = nn.relu(nn.Conv(filters, (3, 3), (2, 2), name=f"convolution_{number}")(x))
        embedding = nn.tanh(Linear(width, FLOAT32, True, name="picture")(x.reshape(len(x), -1)))
        if source.tokens.shape[1]:
            tokens, there = jnp.asarray(source.tokens), mask[:, 1 + source.patches.shape[1] :]
            words = Embedding(config.source_vocab_size, config, name="words")(tokens)
            words = Dropout()(words, rates.embedding)
            cell = REGISTRY[config.cell](width, width, FLOAT32, name="question")
            states = run_cell(cell, words, there)
            last = jnp.maximum(there.sum(axis=1) - 1, 0)[:, None, None]
            embedding *= jnp.take_along_axis(states, last, axis=1)[:, 0]
        hidden = Dropout()(embedding, rates.residual)
        hidden = nn.relu(Linear(config.d_ff, FLOAT32, True, name="inner")(hidden))
        return Classified(Linear(self.num_classes, FLOAT32, True, name="output")(hidden), embedding)
