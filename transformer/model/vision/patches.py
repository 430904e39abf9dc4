"""The embedding of pictures as patches, and of questions about them."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.model.config import ModelConfig
from transformer.model.layers import Embedding, Linear
from transformer.model.vision.inputs import PictureText


class PatchEmbedding(nn.Module):
    """The class token, the linear maps of all patches, and the embeddings of a question's tokens.

    Bytes are scaled to [-1, 1]. With a question, a vector of each of the two segments, picture and
    question, is added, as in BERT (Devlin et al. 2019, figure 2).

    Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", equation 1, before the
    positions are added.
    """

    vocab_size: int
    config: ModelConfig

    @nn.compact
    def __call__(self, source: PictureText) -> Float[Array, "B M D"]:
        config, width = self.config, self.config.d_model
        pixels = jnp.asarray(source.patches, jnp.float32) / 127.5 - 1.0
        patches = Linear(width, config.dtypes, True, name="patches")(pixels.astype(config.dtype))
        first = self.param("class_token", nn.initializers.normal(0.02), (width,))
        first = jnp.broadcast_to(first.astype(patches.dtype), (len(patches), 1, width))
        picture = jnp.concatenate([first, patches], axis=1)
        if not source.tokens.shape[1]:
            return picture
        words = Embedding(self.vocab_size, config, name="words")(jnp.asarray(source.tokens))
        segments = self.param("segments", nn.initializers.normal(0.02), (2, width))
        of_picture, of_words = segments.astype(picture.dtype)
        return jnp.concatenate([picture + of_picture, words + of_words], axis=1)
