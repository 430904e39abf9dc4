"""Positional encodings a second time, from their papers' equations, in NumPy float64 and loops.

Part of `reference`. A "stack" is whose attention is meant: "encoder" and "decoder" are the
self-attentions of the two, "cross" is the decoder's attention to the encoder's output.
"""

import math

import numpy as np

# The encodings whose equations stand here.
WRITTEN = (
    "sinusoidal",
    "split",
    "learned",
    "rotary",
    "relative_bias",
    "relative_shaw",
    "alibi",
    "none",
)


def encodings(config, stack):
    """The names in the sum of encodings that a stack has."""
    sums = {
        "encoder": config.encoder_positions or config.positions,
        "decoder": config.decoder_positions or config.positions,
        "cross": config.cross_positions,
    }
    return sums[stack].split("+")


# --- added to embeddings: Vaswani et al. 2017, 3.5


def sinusoid(position, dimension, d_model):
    """The two equations of section 3.5."""
    angle = position / 10000 ** ((dimension - dimension % 2) / d_model)
    return math.cos(angle) if dimension % 2 else math.sin(angle)


def positional_encoding(p, side, length, config):
    """What the encodings of a side add to its embeddings, [length, D]."""
    d_model = config.d_model
    orders = {
        "sinusoidal": range(d_model),
        "split": [*range(0, d_model, 2), *range(1, d_model, 2)],
    }
    total = np.zeros((length, d_model))
    for name in encodings(config, side):
        if name == "learned":
            total += p[f"{side}_positions"]["learned"]["table"][:length]
        if name in orders:
            total += [[sinusoid(t, i, d_model) for i in orders[name]] for t in range(length)]
    return total


# --- turning queries and keys: Su et al. 2021


def rotary(vectors):
    """Equations 15 and 34: pair i of the numbers at position t turns by t / 10000^(2i / K)."""
    turned = np.zeros_like(vectors)
    size = vectors.shape[1]
    for t, x in enumerate(vectors):
        for i in range(size // 2):
            angle = t / 10000 ** (2 * i / size)
            first, second = x[2 * i], x[2 * i + 1]
            turned[t, 2 * i] = first * math.cos(angle) - second * math.sin(angle)
            turned[t, 2 * i + 1] = second * math.cos(angle) + first * math.sin(angle)
    return turned


# --- added to keys and values: Shaw et al. 2018


def relative_vector(p, which, i, j, config):
    """Equations 3 and 4 with section 3.2: a_ij = w_clip(j - i, k), of "keys" or "values"."""
    k = config.shaw_distance
    return p["positions"]["relative_shaw"][which][max(-k, min(k, j - i)) + k]


# --- added to scores: Press et al. 2022 and Raffel et al. 2020


def slopes(num_heads):
    """Press et al., section 3: a geometric sequence, from 2^(-8/H) to 2^-8.

    Where the number of heads is no power of two, as in the authors' code: the sequence of the
    power below it, then the first, third and so on of the next power's, which stand between.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    own = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return (own + between)[:num_heads]


def bucket(relative_position, bidirectional, num_buckets, max_distance):
    """T5's row for a key at query position + relative_position (Raffel et al., section 2.1).

    Half of the buckets of a direction are for one distance each. The others divide the logarithm
    evenly, as in the authors' code: bucket exact + m begins where log(distance / exact) is m of
    that many equal parts of log(max_distance / exact). Compared here as powers of whole numbers,
    as a rounded logarithm could fall on the wrong side of a border.
    """
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if relative_position > 0 else 0
        distance = abs(relative_position)
    else:
        distance = max(-relative_position, 0)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    parts = num_buckets - exact
    reached = [
        distance**parts * exact**m >= max_distance**m * exact**parts for m in range(1, parts)
    ]
    return first + exact + sum(reached)


def bias(tables, stack, head, i, j, config):
    """What is added to the score of query i and key j; `tables` are the stack's own."""
    total = 0.0
    for name in encodings(config, stack):
        if name == "alibi":
            total -= slopes(config.num_heads)[head] * abs(i - j)
        if name == "relative_bias":
            both_ways = stack != "decoder"
            row = bucket(j - i, both_ways, config.bias_buckets, config.bias_distance)
            total += tables["relative_bias"]["table"][row, head]
    return total
