"""The recurrent model a second time, from the papers' equations, in NumPy float64 and loops.

Independent of the package: no jax, one sentence at a time without its padding, one step and one
score after another. Parameters come as Flax's nested dict; `parameters` writes its names and shapes
out by hand.
"""

import numpy as np

from reference import dense_shapes, linear, softmax

GATES = {"lstm": 4, "lstm_peephole": 4, "gru": 3, "rnn": 1}
STATES = {"lstm": 2, "lstm_peephole": 2, "gru": 1, "rnn": 1}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


# --- cells: (parameters of each gate, inputs, state) -> state, the output first


def lstm(p, x, state):
    """Greff et al. 2017, section II; without peepholes, p_i, p_f and p_o are zero."""
    (w_z, w_i, w_f, w_o), (r_z, r_i, r_f, r_o), (b_z, b_i, b_f, b_o) = p["W"], p["R"], p["b"]
    p_i, p_f, p_o = p.get("peepholes", np.zeros((3, len(b_z))))
    y, c = state
    z = np.tanh(x @ w_z + y @ r_z + b_z)
    i = sigmoid(x @ w_i + y @ r_i + p_i * c + b_i)
    f = sigmoid(x @ w_f + y @ r_f + p_f * c + b_f)
    c = z * i + c * f
    o = sigmoid(x @ w_o + y @ r_o + p_o * c + b_o)
    return np.tanh(c) * o, c


def gru(p, x, state):
    """Cho et al. 2014, equations 5 to 8, with biases."""
    (w_r, w_z, w_h), (u_r, u_z, u_h), (b_r, b_z, b_h) = p["W"], p["R"], p["b"]
    [h] = state
    r = sigmoid(x @ w_r + h @ u_r + b_r)
    z = sigmoid(x @ w_z + h @ u_z + b_z)
    new = np.tanh(x @ w_h + (r * h) @ u_h + b_h)
    return (z * h + (1 - z) * new,)


def rnn(p, x, state):
    """Elman 1990, with tanh."""
    [w], [u], [b] = p["W"], p["R"], p["b"]
    return (np.tanh(x @ w + state[0] @ u + b),)


CELLS = {"lstm": lstm, "lstm_peephole": lstm, "gru": gru, "rnn": rnn}


def by_gate(p, name):
    """A cell's parameters, one array for each gate; a context is more inputs after the others."""
    kernel = p["input_kernel"]
    if "context_kernel" in p:
        kernel = np.concatenate([kernel, p["context_kernel"]])
    arrays = {"W": kernel, "R": p["recurrent_kernel"], "b": p["bias"]}
    gates = {key: np.split(array, GATES[name], axis=-1) for key, array in arrays.items()}
    return gates | ({"peepholes": p["peepholes"]} if "peepholes" in p else {})


def zeros(name, width):
    return (np.zeros(width),) * STATES[name]


def run(p, name, inputs, state=None):
    """The outputs of a cell over a sequence, from zeros or another state."""
    gates = by_gate(p, name)
    state = zeros(name, len(p["recurrent_kernel"])) if state is None else state
    outputs = []
    for x in inputs:
        state = CELLS[name](gates, x, state)
        outputs.append(state[0])
    return np.array(outputs)


# --- the model


def encode(p, config, source):
    """Schuster and Paliwal 1997: the outputs of both directions side by side, layer upon layer."""
    side = "target" if config.tied_embeddings == "all" else "source"
    x = p[f"{side}_embedding"]["table"][source] * np.sqrt(config.d_model)
    for n in range(config.num_encoder_layers):
        layer = p[f"encoder_layers_{n}"]
        forward = run(layer["forward"], config.cell, x)
        backward = run(layer["backward"], config.cell, x[::-1])[::-1]
        x = np.concatenate([forward, backward], axis=1)
    return x


def first_states(p, config, memory):
    """For each layer, the tanh of a projection of the two final states."""
    depth, vectors, half = config.num_decoder_layers, STATES[config.cell], config.d_model // 2
    if memory is None:
        return [zeros(config.cell, config.d_model)] * depth
    final = np.concatenate([memory[-1, :half], memory[0, half:]])
    all_vectors = np.tanh(linear(p["first_states"], final)).reshape(depth, vectors, config.d_model)
    return [tuple(layer) for layer in all_vectors]


def read(p, kind, state, memory):
    """What a state reads of the source, and the weights."""
    if kind == "additive":  # Bahdanau et al. 2015, appendix A.1.2
        v = p["score"]["kernel"][:, 0]
        scores = [v @ np.tanh(linear(p["query"], state) + linear(p["key"], h)) for h in memory]
    else:  # Luong et al. 2015, equation 8
        scores = [state @ linear(p["key"], h) for h in memory]
    weights = softmax(np.array(scores))
    return sum(w * h for w, h in zip(weights, memory, strict=True)), weights


def decode(p, config, target, memory):
    """The features [L, D] and the attention weights [L, M] or None, one target step at a time."""
    kind = config.recurrent_attention if memory is not None else "none"
    states = first_states(p, config, memory)
    cells = [by_gate(p[f"decoder_layers_{n}"], config.cell) for n in range(len(states))]
    embedded = p["target_embedding"]["table"][target] * np.sqrt(config.d_model)
    features, rows = [], []
    for token in embedded:
        x = token
        for n, cell in enumerate(cells):
            if n == 0 and kind == "additive":
                context, weights = read(p["attention"], kind, states[0][0], memory)
                x = np.concatenate([x, context])
            states[n] = CELLS[config.cell](cell, x, states[n])
            x = states[n][0]
        if kind == "additive":  # Bahdanau et al. 2015, appendix A.2.2: the larger of each two
            t = linear(p["attention"]["output"], np.concatenate([x, token, context]))
            x = np.array([max(t[2 * j], t[2 * j + 1]) for j in range(config.d_model)])
        elif kind == "multiplicative":  # Luong et al. 2015, equation 5
            context, weights = read(p["attention"], kind, x, memory)
            x = np.tanh(linear(p["attention"]["output"], np.concatenate([context, x])))
        features.append(x)
        rows.append(None if kind == "none" else weights)
    return np.array(features), rows


def model(p, config, source, target):
    """The logits [L, V] of one pair without padding, and the rows of its attention weights."""
    memory = encode(p, config, source) if config.num_encoder_layers else None
    features, rows = decode(p, config, target, memory)
    side = "output" if config.tied_embeddings == "none" else "target"
    return features @ p[f"{side}_embedding"]["table"].T, rows


# --- the parameter tree, by hand


def cell_shapes(name, inputs, width, context=0):
    columns = GATES[name] * width
    shapes = {"input_kernel": (inputs, columns), "recurrent_kernel": (width, columns)}
    shapes |= {"context_kernel": (context, columns)} if context else {}
    shapes |= {"peepholes": (3, width)} if name == "lstm_peephole" else {}
    return shapes | {"bias": (columns,)}


def attention_shapes(kind, d):
    if kind == "additive":
        pair = {name: dense_shapes(d, d, False) for name in ("query", "key")}
        return pair | {
            "score": dense_shapes(d, 1, False),
            "output": dense_shapes(3 * d, 2 * d, True),
        }
    return {"key": dense_shapes(d, d, False), "output": dense_shapes(2 * d, d, False)}


def parameter_shapes(config):
    """Names and shapes of every parameter, as a nested dict."""
    d, name, kind = config.d_model, config.cell, config.recurrent_attention
    tree = {"target_embedding": {"table": (config.target_vocab_size, d)}}
    if config.num_encoder_layers and config.tied_embeddings != "all":
        tree["source_embedding"] = {"table": (config.source_vocab_size, d)}
    if config.tied_embeddings == "none":
        tree["output_embedding"] = {"table": (config.target_vocab_size, d)}
    for n in range(config.num_encoder_layers):
        half = cell_shapes(name, d, d // 2)
        tree[f"encoder_layers_{n}"] = {"forward": half, "backward": half}
    reads = config.num_encoder_layers and kind != "none"
    for n in range(config.num_decoder_layers):
        context = d if reads and kind == "additive" and n == 0 else 0
        tree[f"decoder_layers_{n}"] = cell_shapes(name, d, d, context)
    if config.num_encoder_layers:
        outputs = config.num_decoder_layers * STATES[name] * d
        tree["first_states"] = dense_shapes(d, outputs, True)
    if reads:
        tree["attention"] = attention_shapes(kind, d)
    return tree


def parameters(shapes, seed=0):
    """Random float32 parameters of these shapes, none of them zero or one."""

    def draw(path, shape):
        if isinstance(shape, dict):
            return {name: draw((*path, name), inner) for name, inner in shape.items()}
        normal = np.random.default_rng([seed, *"/".join(path).encode()]).normal(size=shape)
        kernel = path[-1].endswith("kernel")
        # Tables twice as large as at the start: logits should be no small numbers.
        scale = (
            shape[0] ** -0.5 if kernel else 2 * shape[-1] ** -0.5 if path[-1] == "table" else 0.5
        )
        return np.asarray(scale * normal, np.float32)

    return draw((), shapes)
