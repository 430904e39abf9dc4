"""The Transformer a second time, from the paper's equations, in NumPy float64 and loops.

Independent of the package: no jax, one sentence at a time, nothing batched, no mask arrays but
lists of the positions that may be read. Slow, and meant to be read beside Vaswani et al. 2017.
Parameters come as Flax's nested dict; `parameters` writes its names and shapes out by hand.
"""

import math

import numpy as np

# --- 3.2 attention


def softmax(scores):
    exponentials = np.exp(scores - np.max(scores))
    return exponentials / exponentials.sum()


def linear(p, x):
    return x @ p["kernel"] + p.get("bias", 0.0)


def multi_head_attention(p, x, memory, readable, num_heads):
    """Section 3.2.2; `readable[i]` lists the positions of memory that query i may attend to.

    Returns the output [L, D] and the weights [H, L, M].
    """
    queries, keys, values = (
        linear(p["query"], x),
        linear(p["key"], memory),
        linear(p["value"], memory),
    )
    size = x.shape[1] // num_heads
    concatenated = np.zeros_like(x)
    weights = np.zeros((num_heads, len(x), len(memory)))
    for head in range(num_heads):
        own = slice(head * size, (head + 1) * size)
        for i, positions in enumerate(readable):
            if not positions:
                continue  # nothing to read gives zeros
            scores = np.array([queries[i, own] @ keys[j, own] / math.sqrt(size) for j in positions])
            for j, weight in zip(positions, softmax(scores), strict=True):
                weights[head, i, j] = weight
                concatenated[i, own] += weight * values[j, own]
    return linear(p["output"], concatenated), weights


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


def feed_forward(p, x, activation):
    """Equation 2."""
    if activation in GATED:
        inner = GATED[activation](linear(p["inner"], x)) * linear(p["gate"], x)
    else:
        inner = ACTIVATIONS[activation](linear(p["inner"], x))
    return linear(p["outer"], inner)


# --- 3.1 residual connection and norm


def layer_norm(p, x, epsilon):
    """Ba et al. 2016, equation 4, over the width of each position."""
    rows = []
    for row in x:
        variance = np.mean((row - row.mean()) ** 2)
        rows.append((row - row.mean()) / math.sqrt(variance + epsilon) * p["scale"] + p["bias"])
    return np.array(rows).reshape(x.shape)


def residual(p, x, sublayer, config):
    if config.norm_position == "pre":
        return x + sublayer(layer_norm(p["norm"], x, config.norm_epsilon))
    return layer_norm(p["norm"], x + sublayer(x), config.norm_epsilon)


# --- 3.4 and 3.5 embeddings and positions


def sinusoid(position, dimension, d_model):
    """The two equations of section 3.5."""
    angle = position / 10000 ** ((dimension - dimension % 2) / d_model)
    return math.cos(angle) if dimension % 2 else math.sin(angle)


def positional_encoding(p, side, length, config):
    d_model = config.d_model
    if config.positions == "none":
        return np.zeros((length, d_model))
    if config.positions == "learned":
        return p[f"{side}_positions"]["table"][:length]
    order = range(d_model)
    if config.positions == "split":
        order = [*range(0, d_model, 2), *range(1, d_model, 2)]
    return np.array([[sinusoid(t, i, d_model) for i in order] for t in range(length)])


def embed(p, side, table, tokens, config):
    vectors = np.array([table[token] * math.sqrt(config.d_model) for token in tokens])
    return vectors + positional_encoding(p, side, len(tokens), config)


# --- 3.1 the stacks


def transformer(p, source, target, source_is_token, target_is_token, config):
    """Returns the logits [L, V] of one sentence, and the attention weights by module path."""
    tied, heads, weights = config.tied_embeddings, config.num_heads, {}
    source_side = "target" if tied == "all" else "source"
    output_side = "output" if tied == "none" else "target"

    def attend(path, x, memory, readable):
        p_attention = p
        for name in path.split("/"):
            p_attention = p_attention[name]
        out, weights[path] = multi_head_attention(p_attention, x, memory, readable, heads)
        return out

    source_tokens = [j for j in range(len(source)) if source_is_token[j]]
    x = embed(p, "encoder", p[f"{source_side}_embedding"]["table"], source, config)
    for n in range(config.num_encoder_layers):
        name = f"encoder_layers_{n}"
        layer = p[name]
        x = residual(
            layer["self_attention_residual"],
            x,
            lambda h, name=name: attend(f"{name}/self_attention", h, h, [source_tokens] * len(h)),
            config,
        )
        x = residual(
            layer["feed_forward_residual"],
            x,
            lambda h, layer=layer: feed_forward(layer["feed_forward"], h, config.activation),
            config,
        )
    memory = x
    if config.norm_position == "pre":
        memory = layer_norm(p["encoder_norm"], x, config.norm_epsilon)

    past = [[j for j in range(i + 1) if target_is_token[j]] for i in range(len(target))]
    x = embed(p, "decoder", p["target_embedding"]["table"], target, config)
    for n in range(config.num_decoder_layers):
        name = f"decoder_layers_{n}"
        layer = p[name]
        x = residual(
            layer["self_attention_residual"],
            x,
            lambda h, name=name: attend(f"{name}/self_attention", h, h, past),
            config,
        )
        x = residual(
            layer["cross_attention_residual"],
            x,
            lambda h, name=name: attend(
                f"{name}/cross_attention", h, memory, [source_tokens] * len(h)
            ),
            config,
        )
        x = residual(
            layer["feed_forward_residual"],
            x,
            lambda h, layer=layer: feed_forward(layer["feed_forward"], h, config.activation),
            config,
        )
    if config.norm_position == "pre":
        x = layer_norm(p["decoder_norm"], x, config.norm_epsilon)
    return x @ p[f"{output_side}_embedding"]["table"].T, weights


# --- the parameter tree, by hand


def parameter_shapes(config):
    """Names and shapes of every parameter, as a nested dict."""
    d, f = config.d_model, config.d_ff

    def dense(inputs, outputs, bias):
        return {"kernel": (inputs, outputs)} | ({"bias": (outputs,)} if bias else {})

    def norm():
        return {"scale": (d,), "bias": (d,)}

    def attention():
        return {
            name: dense(d, d, config.attention_bias) for name in ("query", "key", "value", "output")
        }

    def layer(*attentions):
        shapes = {name: attention() for name in attentions}
        shapes["feed_forward"] = {"inner": dense(d, f, True), "outer": dense(f, d, True)}
        if config.activation in GATED:
            shapes["feed_forward"]["gate"] = dense(d, f, True)
        return shapes | {f"{name}_residual": {"norm": norm()} for name in shapes}

    tree = {"target_embedding": {"table": (config.target_vocab_size, d)}}
    if config.tied_embeddings != "all":
        tree["source_embedding"] = {"table": (config.source_vocab_size, d)}
    if config.tied_embeddings == "none":
        tree["output_embedding"] = {"table": (config.target_vocab_size, d)}
    for n in range(config.num_encoder_layers):
        tree[f"encoder_layers_{n}"] = layer("self_attention")
    for n in range(config.num_decoder_layers):
        tree[f"decoder_layers_{n}"] = layer("self_attention", "cross_attention")
    for side in ("encoder", "decoder"):
        if config.positions == "learned":
            tree[f"{side}_positions"] = {"table": (config.max_length, d)}
        if config.norm_position == "pre":
            tree[f"{side}_norm"] = norm()
    return tree


def parameters(config, seed=0):
    """Random float32 parameters, none of them zero or one as they would be when training starts."""
    rng = np.random.default_rng(seed)

    def draw(name, shape):
        if isinstance(shape, dict):
            return {name: draw(name, shape) for name, shape in shape.items()}
        values = rng.normal(size=shape)
        scale = {"kernel": shape[0] ** -0.5, "table": shape[-1] ** -0.5, "bias": 0.2, "scale": 0.2}
        return (scale[name] * values + (name == "scale")).astype(np.float32)

    return draw("", parameter_shapes(config))


def float64(tree):
    """The same tree in double precision."""
    if isinstance(tree, dict):
        return {name: float64(value) for name, value in tree.items()}
    return np.asarray(tree, np.float64)
