"""Additive and multiplicative attention of a recurrent decoder over the source."""

from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from transformer.model.attention import masked_softmax
from transformer.model.config import ModelConfig
from transformer.model.layers import Linear
from transformer.model.masks import padding_mask
from transformer.variants import Registry


@flax.struct.dataclass
class EncoderMemory:
    """The encoder output for attention: keys that are scored, and values that are averaged."""

    keys: Float[Array, "B M D"]
    values: Float[Array, "B M D"]
    mask: Bool[Array, "B M"]


class AdditiveAttention(nn.Module):
    """Additive attention, which is computed from the previous state before each decoder step.

    The score of a source position is v^T tanh(W s + U h), where s is the first layer's previous
    output and h is the encoder output. The context is a second input of the first layer's cell. The
    logits use a maxout (over pairs) of a projection of the state, the last token and the context.

    Unlike in the paper, there can be several layers and cells other than the GRU, and the logits
    use the top layer's state after the step instead of the state before the step.

    Source: Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and
    Translate", section 3.1, appendices A.1.2 (score) and A.2.2 (decoder).
    """

    context_in_cell: ClassVar[bool] = True  # the context is an input of the first layer's cell

    config: ModelConfig

    def setup(self):
        width, dtypes = self.config.d_model, self.config.dtypes
        self.query = Linear(width, dtypes, use_bias=False)
        self.key = Linear(width, dtypes, use_bias=False)
        self.score = Linear(1, dtypes, use_bias=False)
        self.output = Linear(2 * width, dtypes, use_bias=True)

    def scores(self, states: Float[Array, "B L D"], keys: Float[Array, "B M D"]):
        """Returns the score of each pair of a state and a key [B, L, M]."""
        hidden = jnp.tanh(self.query(states)[:, :, None] + keys[:, None])
        return self.score(hidden)[..., 0]

    def features(
        self,
        embedded: Float[Array, "B L D"],
        states: Float[Array, "B L D"],
        context: Float[Array, "B L D"],
    ) -> Float[Array, "B L D"]:
        """Returns the vectors from which the logits are computed.

        Args:
          embedded: embeddings of the tokens read in these steps.
          states: the top layer's outputs after these steps.
          context: the attention context of these steps.
        """
        pairs = self.output(jnp.concatenate([states, embedded, context], axis=-1))
        return pairs.reshape(*states.shape, 2).max(axis=-1)


class MultiplicativeAttention(nn.Module):
    """Multiplicative attention, which uses the top layer's output after each decoder step.

    The score of a source position is s^T W h, where s is the top layer's output and h the output of
    the encoder. Logits use the attentional vector tanh(W_c [context; s]). No step depends on the
    context of another step, so attention is computed for all target positions at once.

    Unlike in the paper's best models, there is no input feeding (the attentional vector is not an
    input of the next step), and attention is global (over all source positions).

    Source: Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation",
    section 3.1, equations 8 ("general") and 5.
    """

    context_in_cell: ClassVar[bool] = False

    config: ModelConfig

    def setup(self):
        width, dtypes = self.config.d_model, self.config.dtypes
        self.key = Linear(width, dtypes, use_bias=False)
        self.output = Linear(width, dtypes, use_bias=False)

    def scores(self, states: Float[Array, "B L D"], keys: Float[Array, "B M D"]):
        """Returns the score of each pair of a state and a key [B, L, M]."""
        return jnp.einsum("BLD,BMD->BLM", states, keys, preferred_element_type=jnp.float32)

    def features(
        self,
        embedded: Float[Array, "B L D"],
        states: Float[Array, "B L D"],
        context: Float[Array, "B L D"],
    ) -> Float[Array, "B L D"]:
        """Returns the vectors from which the logits are computed; see `AdditiveAttention`."""
        return jnp.tanh(self.output(jnp.concatenate([context, states], axis=-1)))


def attend(
    attention: Any, states: Float[Array, "B L D"], memory: EncoderMemory
) -> tuple[Float[Array, "B L D"], Float[Array, "B 1 L M"]]:
    """Returns the average of the values, weighted by the softmax of the scores, and the weights.

    The average is the attention context of each state; the weights are float32.
    """
    scores = attention.scores(states, memory.keys)[:, None].astype(jnp.float32)
    weights = masked_softmax(scores, padding_mask(memory.mask))
    values = memory.values
    return jnp.einsum("BLM,BMD->BLD", weights[:, 0].astype(values.dtype), values), weights


# Without attention (None), the initial state is the decoder's only information about the source.
REGISTRY: dict[str, type[nn.Module] | None] = Registry(
    additive=AdditiveAttention,
    multiplicative=MultiplicativeAttention,
    none=None,
)
