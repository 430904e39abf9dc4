"""All layers except attention: linear, norm, feed-forward, embedding, dropout and residual."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from transformer.model.config import Dtypes, ModelConfig
from transformer.model.interventions import intervene
from transformer.model.matmul import linear, row_means
from transformer.variants import Registry


class DropoutRates(NamedTuple):
    """The fractions of activations that are set to zero during training.

    Rates are traced, so that they can change without recompilation. The Python float 0.0 is known
    at trace time, so it adds no operations and needs no random numbers; see `is_off`.
    """

    embedding: float | Float[Array, ""] = 0.0
    residual: float | Float[Array, ""] = 0.0
    attention: float | Float[Array, ""] = 0.0
    activation: float | Float[Array, ""] = 0.0
    layer: float | Float[Array, ""] = 0.0
    word: float | Float[Array, ""] = 0.0


NO_DROPOUT = DropoutRates()


def is_off(rate: float | Float[Array, ""]) -> bool:
    """Returns whether a rate is the Python float 0.0, for which no operation is traced."""
    return isinstance(rate, float) and rate == 0.0


# name: (function, gated). "gelu" is the tanh approximation (Hendrycks and Gimpel 2016, section 2),
# as in BERT and GPT, not the exact form with the error function.
ACTIVATIONS = Registry(
    relu=(jax.nn.relu, False),
    gelu=(jax.nn.gelu, False),
    silu=(jax.nn.silu, False),
    reglu=(jax.nn.relu, True),
    geglu=(jax.nn.gelu, True),
    swiglu=(jax.nn.silu, True),
)


def flatten_tokens(x: Float[Array, "*batch D"]) -> Float[Array, "N D"]:
    """Flattens the batch axes into a single axis of tokens.

    The gradient of a linear map then contracts a single axis: with two axes, a training step takes
    a third longer on XLA's CPU backend. Activations between linear maps also have this shape, since
    XLA would compute an activation twice if it were needed in two shapes.
    """
    return x.reshape(-1, x.shape[-1])


class Linear(nn.Module):
    """Computes x W, or x W + b if `use_bias`; W has the shape [inputs, features]."""

    features: int
    dtypes: Dtypes
    use_bias: bool
    initializer: nn.initializers.Initializer = nn.initializers.xavier_uniform()

    @nn.compact
    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", self.initializer, shape)
        dtype = self.dtypes.activations
        y = linear(flatten_tokens(x), kernel, self.dtypes.factors, dtype)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
            y = y + bias.astype(dtype)
        return y.reshape(*x.shape[:-1], self.features)


class Dropout(nn.Module):
    """Zeroes a fraction of `x` and scales up the rest (Srivastava et al. 2014) [5.4].

    The random numbers are hashes of each element's index and the key. XLA fuses the hash into the
    next operation, whereas it would write the output of a random number generator to memory first.

    Args:
      whole: whether to zero whole vectors along the last axis. On embeddings this is word dropout
        (Sennrich et al. 2016, "Edinburgh Neural Machine Translation Systems for WMT 16").
      rectified: whether to apply ReLU before dropout; the combined gradient needs only the result.
    """

    whole: bool = False
    rectified: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "*shape"], rate) -> Float[Array, "*shape"]:
        if is_off(rate):
            return nn.relu(x) if self.rectified else x
        rate = jnp.asarray(rate, jnp.float32)
        # The key is itself a hash: random bits generated from it would not be more random.
        seeds = jax.random.key_data(self.make_rng("dropout"))
        shape = (*x.shape[:-1], 1) if self.whole else x.shape
        keep = hash_uniform(seeds, shape) >= rate
        # The factor stays float32: in bfloat16, it would be 0.16% too small for a rate of 0.1.
        factor = 1.0 / (1.0 - rate)
        if self.rectified:
            return rectify(x, keep, factor)
        return jnp.where(keep, (x * factor).astype(x.dtype), 0)


@jax.custom_vjp
def rectify(
    x: Float[Array, "*shape"], keep: Bool[Array, "*shape"], factor: Float[Array, ""]
) -> Float[Array, "*shape"]:
    """Returns max(0, x) times a positive factor where `keep` is True, and 0 elsewhere.

    The gradient with respect to x is the factor where the result is positive, and 0 elsewhere, so x
    need not be stored for the backward pass. The factor has no gradient.
    """
    return jnp.where(keep, (nn.relu(x) * factor).astype(x.dtype), 0)


def _rectify_forward(x, keep, factor):
    y = rectify(x, keep, factor)
    return y, (y, factor)


def _rectify_backward(residuals, d_y):
    y, factor = residuals
    return jnp.where(y > 0, (d_y * factor).astype(y.dtype), 0), None, None


rectify.defvjp(_rectify_forward, _rectify_backward)


def hash_uniform(seeds: UInt32[Array, "seeds"], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Returns uniform numbers in [0, 1), which are hashes of the seeds and the flat element index.

    After mixing in each seed, the 32-bit finalizer with the constants of Chris Wellons' `lowbias32`
    is applied. Each number uses the top 24 bits of its hash, to match the precision of float32.

    Args:
      seeds: two or more seeds.
    """
    index = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride % 2**32)
        stride *= shape[axis]
    for seed in seeds:
        index ^= seed
        index = (index ^ (index >> 16)) * jnp.uint32(0x7FEB352D)
        index = (index ^ (index >> 15)) * jnp.uint32(0x846CA68B)
        index ^= index >> 16
    return (index >> 8).astype(jnp.float32) * 2.0**-24


class FeedForward(nn.Module):
    """Computes max(0, x W_1 + b_1) W_2 + b_2, or uses another, possibly gated, activation.

    A gated activation multiplies the activated projection by a second, linear projection. With two
    thirds of the inner dimension, a gated layer has as many parameters as an ungated layer.

    Source: Vaswani et al. 2017, equation 2; gated forms: Shazeer 2020, "GLU Variants".
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "B L D"], rates: DropoutRates = NO_DROPOUT
    ) -> Float[Array, "B L D"]:
        config = self.config
        activate, gated = ACTIVATIONS[config.activation]
        tokens = flatten_tokens(x)
        inner = Linear(config.d_ff, config.dtypes, True, name="inner")(tokens)
        if config.activation == "relu":
            inner = Dropout(rectified=True)(inner, rates.activation)
        else:
            inner = activate(inner)
            if gated:
                inner = inner * Linear(config.d_ff, config.dtypes, True, name="gate")(tokens)
            inner = Dropout()(inner, rates.activation)
        return Linear(config.d_model, config.dtypes, True, name="outer")(inner).reshape(x.shape)


class Embedding(nn.Module):
    """A table of token vectors, used for the input and, if tied, for the output [3.4].

    Entries are initialised from a normal distribution with variance 1 / d_model, so that embeddings
    times sqrt(d_model) and logits both start with unit variance.
    """

    vocab_size: int
    config: ModelConfig

    def setup(self):
        self.table = self.param(
            "table",
            nn.initializers.normal(self.config.d_model**-0.5),
            (self.vocab_size, self.config.d_model),
        )

    def __call__(self, tokens: Int[Array, "B L"]) -> Float[Array, "B L D"]:
        """Returns the token embeddings times sqrt(d_model), in the activation dtype."""
        vectors = self.table[tokens] * jnp.sqrt(self.config.d_model)
        return vectors.astype(self.config.dtype)


class LayerDrop(nn.Module):
    """Randomly skips whole layers during training, the same layers for all sentences of a batch.

    The outputs of the remaining layers are not scaled up.

    Source: Fan et al. 2020, "Reducing Transformer Depth on Demand with Structured Dropout".
    """

    @nn.compact
    def __call__(
        self, before: Float[Array, "B L D"], after: Float[Array, "B L D"], rate
    ) -> Float[Array, "B L D"]:
        if is_off(rate):
            return after
        keep = jax.random.uniform(self.make_rng("dropout")) >= rate
        return jnp.where(keep, after, before)


class Residual(nn.Module):
    """The residual connection around a sub-layer: LayerNorm(x + sublayer(x)) [3.1].

    With `norm_position` "pre", it is x + sublayer(LayerNorm(x)) (Xiong et al. 2020, figure 1b).
    With "both", it is x + LayerNorm(sublayer(LayerNorm(x))) (Ding et al. 2021, "CogView").

    The output of the sub-layer, `sublayer`, and the result, `stream`, are places of interventions.
    """

    config: ModelConfig

    def setup(self):
        if self.config.norm_position == "both":
            self.norm_in, self.norm_out = make_norm(self.config), make_norm(self.config)
        else:
            self.norm = make_norm(self.config)
        self.dropout = Dropout()

    def __call__(
        self,
        x: Float[Array, "B L D"],
        sublayer: Callable[[Array], Array],
        positions: Int[Array, "L"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B L D"]:
        position, rate = self.config.norm_position, rates.residual
        tokens = flatten_tokens(x)

        def apply(tokens):
            y = sublayer(tokens.reshape(x.shape))
            return flatten_tokens(intervene(self, "sublayer", y, {1: positions}))

        if position == "pre":
            y = tokens + self.dropout(apply(self.norm(tokens)), rate)
        elif position == "both":
            y = tokens + self.dropout(self.norm_out(apply(self.norm_in(tokens))), rate)
        else:
            y = self.norm(tokens + self.dropout(apply(tokens), rate))
        return intervene(self, "stream", y.reshape(x.shape), {1: positions})


class Norm(nn.Module):
    """Normalises the last axis, and then applies a learned scale and an optional bias.

    Statistics are computed in float32.

    Args:
      centered: whether to subtract the mean, as in LayerNorm (Ba et al. 2016, equation 4) but not
        in RMSNorm (Zhang and Sennrich 2019, equation 4).
      dtype: dtype of the output.
    """

    centered: bool
    use_bias: bool
    epsilon: float
    dtype: str

    @nn.compact
    def __call__(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        scale = self.param("scale", nn.initializers.ones_init(), x.shape[-1:])
        y = normalize(x, scale, self.centered, self.epsilon)
        if self.use_bias:
            y = y + self.param("bias", nn.initializers.zeros_init(), x.shape[-1:])
        return y.astype(self.dtype)


def _normalize(
    x: Float[Array, "*batch D"], scale: Float[Array, "D"], centered: bool, epsilon: float
) -> Float[Array, "*batch D"]:
    """Returns u * scale in float32, where u = (x - mean) / sqrt(variance + epsilon).

    Let g be the gradient of the loss with respect to the output, and h = g * scale. Then the
    gradient for x is (h - mean(h) - u mean(h u)) / sqrt(variance + epsilon), and the gradient for
    the scale is the sum of g u over the batch. JAX derives the same gradients, but stores three
    arrays of the size of x for them; this function stores x and two numbers per vector.
    """
    return _normalize_forward(x, scale, centered, epsilon)[0]


def _normalize_forward(x, scale, centered, epsilon):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True) if centered else jnp.zeros_like(wide[..., :1])
    inverse = jax.lax.rsqrt(row_means(jnp.square(wide - mean)) + epsilon)
    return (wide - mean) * inverse * scale, (x, scale, mean, inverse)


def _normalize_backward(centered, epsilon, residuals, g):
    x, scale, mean, inverse = residuals
    u = (x.astype(jnp.float32) - mean) * inverse
    gu = g * u
    # Means of h and h u are products with a vector: for sums, XLA would first write h to memory.
    weights = scale / scale.size
    product = functools.partial(jnp.matmul, precision="highest")  # float32 on accelerators, too
    by_x = g * scale - u * product(gu, weights)[..., None]
    if centered:
        by_x -= product(g, weights)[..., None]
    return (by_x * inverse).astype(x.dtype), gu.sum(range(gu.ndim - 1))


normalize = jax.custom_vjp(_normalize, nondiff_argnums=(2, 3))
normalize.defvjp(_normalize_forward, _normalize_backward)


def make_norm(config: ModelConfig) -> Norm:
    """Returns the LayerNorm or RMSNorm module that the config selects."""
    layer = config.norm == "layer"
    return Norm(layer, layer, config.norm_epsilon, config.dtype)
