"""The Transformer a second time, from the paper's equations, in NumPy float64 and loops.

Independent of the package: no jax, one sentence at a time, nothing batched, no mask arrays but
lists of the positions that may be read. Slow, and meant to be read next to Vaswani et al. 2017 and,
for the variants, the papers named where they stand. Parameters come as Flax's nested dict;
`parameters` writes its names and shapes out by hand.
"""

import functools
import itertools
import math

import numpy as np

from reference_positions import (
    WRITTEN,
    bias,
    encodings,
    positional_encoding,
    relative_vector,
    rotary,
)

# --- 3.2 attention


def softmax(scores, sink=None):
    """With a sink, its exponential is in the denominator: Miller 2023, learned in gpt-oss."""
    if sink is not None:
        return softmax([*scores, sink])[:-1]
    exponentials = np.exp(scores - np.max(scores))
    return exponentials / exponentials.sum()


def linear(p, x):
    return x @ p["kernel"] + p.get("bias", 0.0)


def heads_of(x, size):
    """The columns of x in pieces of `size`."""
    return [x[:, start : start + size] for start in range(0, x.shape[1], size)]


def query_key_norm(p, name, vectors, config):
    """One head's queries or keys: "l2" is Henry et al. 2020, "layer" Dehghani et al. 2023."""
    if config.query_key_norm == "l2":
        return np.array([x / math.sqrt(x @ x) for x in vectors])
    if config.query_key_norm == "layer":
        return layer_norm(p[f"{name}_norm"], vectors, config.norm_epsilon)
    return vectors


def talk(numbers, mixture):
    """Shazeer et al. 2020: new heads, each a mixture of the old; `numbers` are [H, M]."""
    new = np.zeros_like(numbers)
    for g in range(len(new)):
        for h in range(len(numbers)):
            new[g] += numbers[h] * mixture[h, g]
    return new


def unchanged(place, *value):
    """No intervention; `value` ends with x, and for weights with x [H, n], query and n keys."""
    return next(x for x in value if isinstance(x, np.ndarray))


def multi_head_attention(
    p, x, memory, readable, config, stack="cross", tables=None, change=unchanged
):
    """Section 3.2.2; `readable[i]` lists the positions of memory that query i may attend to.

    Each group of heads of queries reads one head of keys and values: a group for each is Vaswani
    et al. 2017, one for all is Shazeer 2019, several are Ainslie et al. 2023.

    Returns the output [L, D] and the weights [H, L, M], which are the softmax's.
    """
    num_heads, names = config.num_heads, encodings(config, stack)
    size = config.head_size or config.d_model // num_heads
    group = num_heads // (config.num_kv_heads or num_heads)

    def project(name, x):
        vectors = heads_of(linear(p[name], x), size)
        vectors = [query_key_norm(p, name, head, config) for head in vectors]
        return [rotary(head) for head in vectors] if "rotary" in names else vectors

    queries, keys = project("query", x), project("key", memory)
    values = heads_of(linear(p["value"], memory), size)
    factor = 1.0 / math.sqrt(size) if config.scale_scores else 1.0
    factor = p["query_key_scale"] if config.query_key_norm == "l2" else factor

    def with_position(vector, which, i, j):
        if "relative_shaw" in names:
            return vector + relative_vector(p, which, i, j, config)
        return vector

    weights = np.zeros((num_heads, len(x), len(memory)))
    concatenated = np.zeros((len(x), num_heads * size))
    for i, positions in enumerate(readable):
        if not positions:
            continue  # nothing to read gives zeros
        scores = np.zeros((num_heads, len(positions)))
        for head in range(num_heads):
            for n, j in enumerate(positions):
                key = with_position(keys[head // group][j], "keys", i, j)
                scores[head, n] = factor * (queries[head][i] @ key)
        if config.talking_heads:
            scores = talk(scores, p["talk_scores"])
        for head in range(num_heads):
            scores[head] += [bias(tables, stack, head, i, j, config) for j in positions]
        sinks = {"none": [None] * num_heads, "one": np.zeros(num_heads), "learned": p.get("sink")}
        sinks = sinks[config.attention_sink]
        shares = np.array([softmax(row, sink) for row, sink in zip(scores, sinks, strict=True)])
        shares = change("weights", shares, i, positions)
        weights[:, i, positions] = shares
        if config.talking_heads:
            shares = talk(shares, p["talk_weights"])
        for head in range(num_heads):
            own = slice(head * size, (head + 1) * size)
            for n, j in enumerate(positions):
                value = with_position(values[head // group][j], "values", i, j)
                concatenated[i, own] += shares[head, n] * value
            if config.head_gate:  # Qiu et al. 2025, of heads
                concatenated[i, own] /= 1.0 + np.exp(-linear(p["head_gate"], x[i])[head])
    return linear(p["output"], change("heads", concatenated)), weights


# --- 3.3 feed-forward


def relu(x):
    return np.maximum(x, 0.0)


def silu(x):
    """x sigmoid(x), Ramachandran et al. 2017."""
    return x / (1.0 + np.exp(-x))


def gelu(x):
    """Hendrycks and Gimpel 2016, section 2, the form with tanh."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


# Shazeer 2020, equations 5 and 6: (f(x W) * x V) W_2.
ACTIVATIONS = {"relu": relu, "gelu": gelu, "silu": silu}
GATED = {"reglu": relu, "geglu": gelu, "swiglu": silu}


def added_activation(name):
    """(function, whether it is gated) of one that is not written here; `conftest` says which."""
    raise KeyError(name)


def activation_of(name):
    """(function, whether it is gated)."""
    if name in GATED or name in ACTIVATIONS:
        return {**GATED, **ACTIVATIONS}[name], name in GATED
    return added_activation(name)


def feed_forward(p, x, activation):
    """Equation 2."""
    activate, gated = activation_of(activation)
    inner = activate(linear(p["inner"], x))
    if gated:
        inner = inner * linear(p["gate"], x)
    return linear(p["outer"], inner)


# --- 3.1 residual connection and norm


def layer_norm(p, x, epsilon):
    """Ba et al. 2016, equation 4, over the width of each position."""
    rows = []
    for row in x:
        variance = np.mean((row - row.mean()) ** 2)
        normed = (row - row.mean()) / math.sqrt(variance + epsilon)
        rows.append(normed * p["scale"] + p.get("bias", 0.0))
    return np.array(rows).reshape(x.shape)


def rms_norm(p, x, epsilon):
    """Zhang and Sennrich 2019, equation 4, over the width of each position."""
    rows = [row / math.sqrt(np.mean(row**2) + epsilon) * p["scale"] for row in x]
    return np.array(rows).reshape(x.shape)


def norm(p, x, config):
    return {"layer": layer_norm, "rms": rms_norm}[config.norm](p, x, config.norm_epsilon)


def residual(p, x, sublayer, config):
    """Post-norm is the paper's, pre-norm Xiong et al. 2020, both Ding et al. 2021."""
    if config.norm_position == "pre":
        return x + sublayer(norm(p["norm"], x, config))
    if config.norm_position == "both":
        return x + norm(p["norm_out"], sublayer(norm(p["norm_in"], x, config)), config)
    return norm(p["norm"], x + sublayer(x), config)


# --- 3.4 and 3.5 embeddings and positions


def embed(p, side, table, tokens, config):
    vectors = np.array([table[token] * math.sqrt(config.d_model) for token in tokens])
    return vectors + positional_encoding(p, side, len(tokens), config)


# --- 3.1 the stacks


def layer_parameters(p, side, n, config):
    """Those of layer n: its own, or the first's, or a row of each array of them all."""

    def row(tree):
        return {k: row(v) for k, v in tree.items()} if isinstance(tree, dict) else tree[n]

    if config.scan_layers:
        return p[f"{side}_layers"] if config.share_layers else row(p[f"{side}_layers"])
    return p[f"{side}_layers_{0 if config.share_layers else n}"]


def sublayers_of_decoder(config):
    """Without an encoder there is nothing to cross over to: Radford et al. 2018."""
    cross = ("cross_attention",) if config.num_encoder_layers else ()
    return ("self_attention", *cross, "feed_forward")


def transformer(p, source, target, source_is_token, target_is_token, config, change=unchanged):
    """Returns the logits [L, V] of one sentence, and the attention weights by module path."""
    tied, weights = config.tied_embeddings, {}
    source_side = "target" if tied == "all" else "source"
    output_side = "output" if tied == "none" else "target"

    source_tokens = [j for j in range(len(source)) if source_is_token[j]]
    past = [[j for j in range(i + 1) if target_is_token[j]] for i in range(len(target))]
    sublayers = {
        "encoder": ("self_attention", "feed_forward"),
        "decoder": sublayers_of_decoder(config),
    }

    def at(stack, n, module, place, *value):
        return change((stack, module, place), n, *value)

    def apply_sublayer(side, n, name, x, memory):
        p_own = layer_parameters(p, side, n, config)[name]
        if name == "feed_forward":
            return feed_forward(p_own, x, config.activation)
        if name == "cross_attention":
            stack, readable = "cross", [source_tokens] * len(x)
        else:
            stack, memory = side, x
            readable = past if side == "decoder" else [source_tokens] * len(x)
        out, weights[f"{side}_layers_{n}/{name}"] = multi_head_attention(
            p_own,
            x,
            memory,
            readable,
            config,
            stack,
            p.get(f"{stack}_positions"),
            functools.partial(at, f"{side}_layers", n, name),
        )
        return out

    def apply_stack(side, x, memory, num_layers):
        for n, name in itertools.product(range(num_layers), sublayers[side]):
            p_residual = layer_parameters(p, side, n, config)[f"{name}_residual"]
            place = functools.partial(at, f"{side}_layers", n, f"{name}_residual")

            def sublayer(x, side=side, n=n, name=name, place=place):
                return place("sublayer", apply_sublayer(side, n, name, x, memory))

            x = place("stream", residual(p_residual, x, sublayer, config))
        return x if config.norm_position == "post" else norm(p[f"{side}_norm"], x, config)

    memory = None
    if config.num_encoder_layers:
        x = embed(p, "encoder", p[f"{source_side}_embedding"]["table"], source, config)
        x = change(("encoder_embedding",), 0, x)
        memory = apply_stack("encoder", x, None, config.num_encoder_layers)
    x = embed(p, "decoder", p["target_embedding"]["table"], target, config)
    x = change(("decoder_embedding",), 0, x)
    x = apply_stack("decoder", x, memory, config.num_decoder_layers)
    bias = p["output_bias"] if config.output_bias else 0.0
    return x @ p[f"{output_side}_embedding"]["table"].T + bias, weights


# --- the parameter tree, by hand


def dense_shapes(inputs, outputs, bias):
    return {"kernel": (inputs, outputs)} | ({"bias": (outputs,)} if bias else {})


def norm_shapes(config):
    return {"scale": (config.d_model,)} | (
        {"bias": (config.d_model,)} if config.norm == "layer" else {}
    )


def attention_shapes(config, stack):
    d, h, bias = config.d_model, config.num_heads, config.attention_bias
    size = config.head_size or d // h
    h_kv = config.num_kv_heads or h
    shapes = {
        "query": dense_shapes(d, h * size, bias),
        "key": dense_shapes(d, h_kv * size, bias),
        "value": dense_shapes(d, h_kv * size, bias),
        "output": dense_shapes(h * size, d, bias),
    }
    if config.talking_heads:
        shapes |= {"talk_scores": (h, h), "talk_weights": (h, h)}
    if config.attention_sink == "learned":
        shapes |= {"sink": (h,)}
    if config.head_gate:
        shapes |= {"head_gate": dense_shapes(d, h, bias)}
    if config.query_key_norm == "l2":
        shapes |= {"query_key_scale": ()}
    if config.query_key_norm == "layer":
        shapes |= {"query_norm": {"scale": (size,)}, "key_norm": {"scale": (size,)}}
    table = (2 * config.shaw_distance + 1, size)
    own = {"relative_shaw": {"keys": table, "values": table}}
    if positions := only_used(own, config, stack, "layer"):
        shapes |= {"positions": positions}
    return shapes


def layer_shapes(config, side):
    d, f = config.d_model, config.d_ff
    shapes = {"self_attention": attention_shapes(config, side)}
    if side == "decoder" and config.num_encoder_layers:
        shapes["cross_attention"] = attention_shapes(config, "cross")
    shapes["feed_forward"] = {"inner": dense_shapes(d, f, True), "outer": dense_shapes(f, d, True)}
    if activation_of(config.activation)[1]:
        shapes["feed_forward"]["gate"] = dense_shapes(d, f, True)
    norms = ("norm_in", "norm_out") if config.norm_position == "both" else ("norm",)
    return shapes | {
        f"{name}_residual": {norm: norm_shapes(config) for norm in norms} for name in shapes
    }


def position_shapes(config, stack):
    shapes = {
        "learned": {"table": (config.max_length, config.d_model)},
        "relative_bias": {"table": (config.bias_buckets, config.num_heads)},
    }
    return only_used(shapes, config, stack, "stack")


def only_used(shapes, config, stack, place):
    """The shapes of the encodings that a stack has, those of added ones too, where they are any."""
    found = {
        name: shapes.get(name) if name in WRITTEN else added_shapes(name, config, place)
        for name in encodings(config, stack)
    }
    return {name: own for name, own in found.items() if own}


def added_shapes(name, config, place):
    """The parameters of an encoding that is not written here; `conftest` says which.

    `place` is "stack" for those of the hooks that act once a stack, or "layer".
    """
    raise KeyError(name)


def parameter_shapes(config):
    """Names and shapes of every parameter, as a nested dict."""

    def stacked(shapes, n):
        if isinstance(shapes, dict):
            return {name: stacked(shape, n) for name, shape in shapes.items()}
        return (n, *shapes)

    tree = {"target_embedding": {"table": (config.target_vocab_size, config.d_model)}}
    both = config.num_encoder_layers and config.num_decoder_layers
    if config.num_encoder_layers and not (both and config.tied_embeddings == "all"):
        tree["source_embedding"] = {"table": (config.source_vocab_size, config.d_model)}
    if config.tied_embeddings == "none":
        tree["output_embedding"] = {"table": (config.target_vocab_size, config.d_model)}
    if config.output_bias:
        tree["output_bias"] = (config.target_vocab_size,)
    num_layers = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    for side in (side for side in num_layers if num_layers[side]):
        layer = layer_shapes(config, side)
        if config.scan_layers:
            tree[f"{side}_layers"] = (
                layer if config.share_layers else stacked(layer, num_layers[side])
            )
        else:
            for n in range(1 if config.share_layers else num_layers[side]):
                tree[f"{side}_layers_{n}"] = layer
        if config.norm_position != "post":
            tree[f"{side}_norm"] = norm_shapes(config)
    for stack in ("encoder", "decoder", "cross") if config.num_encoder_layers else ("decoder",):
        if shapes := position_shapes(config, stack):
            tree[f"{stack}_positions"] = shapes
    return tree


def parameters(config, seed=0):
    """Random float32 parameters, none of them zero or one as they would be when training starts.

    What is drawn depends on a parameter's own name and shape only, so that two models have equal
    numbers in all that they have in common.
    """

    def draw(path, shape):
        if isinstance(shape, dict):
            return {name: draw((*path, name), shape) for name, shape in shape.items()}
        normal = np.random.default_rng([seed, *"/".join(path).encode()]).normal(size=shape)
        module, name = ("", *path)[-2:]
        if name.startswith("talk"):
            values = np.eye(config.num_heads) + 0.3 * normal
        elif name == "kernel":
            values = shape[-2] ** -0.5 * normal
        elif module == "relative_bias" or module == "relative_shaw":
            values = 0.5 * normal
        elif name == "table":
            values = shape[-1] ** -0.5 * normal
        else:
            start = {"bias": 0.0, "scale": 1.0, "query_key_scale": 3.0}
            values = start.get(name, 0.0) + 0.2 * normal
        return np.asarray(values, np.float32)

    return draw((), parameter_shapes(config))


def float64(tree):
    """The same tree in double precision."""
    if isinstance(tree, dict):
        return {name: float64(value) for name, value in tree.items()}
    return np.asarray(tree, np.float64)
