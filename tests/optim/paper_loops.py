"""The optimizers of papers as loops in float64, number by number."""

import itertools

import numpy as np

BETA1, BETA2, EPSILON, MOMENTUM = 0.9, 0.98, 1e-9, 0.7
RATES = [0.1, 0.2, 0.05, 0.3, 0.1]
# Three matrices that Muon takes, two of a shape; a table and a classifier's output, which it does
# not take; and a vector.
SHAPES = {
    "layers_0/inner/kernel": (3, 5),
    "layers_0/outer/kernel": (7, 2),
    "layers_1/inner/kernel": (3, 5),
    "embedding/table": (11, 3),
    "output/kernel": (3, 2),
    "layers_0/inner/bias": (5,),
}


def draw(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def start():
    return draw(0)


def by_loop(steps, directions, decay=0.0, rates=RATES):
    """The parameters after each step along directions that a generator per parameter yields."""
    params, history = start(), []
    sources = {name: directions(name, params) for name in SHAPES}
    for gradient, rate in zip(steps, rates, strict=False):
        for name, x in params.items():
            next(sources[name])
            pull = decay * x if x.ndim > 1 else 0.0
            x -= rate * (sources[name].send(gradient[name]) + pull)
        history.append({name: x.copy() for name, x in params.items()})
    return history


def lion(name, params):
    """Chen et al. 2023, algorithm 2."""
    m = np.zeros(SHAPES[name])
    while True:
        g = yield
        yield np.sign(BETA1 * m + (1 - BETA1) * g)
        m = BETA2 * m + (1 - BETA2) * g


def adam(name, params):
    """Kingma and Ba 2015, algorithm 1."""
    m, v = np.zeros(SHAPES[name]), np.zeros(SHAPES[name])
    for t in itertools.count(1):
        g = yield
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g**2
        yield m / (1 - BETA1**t) / (np.sqrt(v / (1 - BETA2**t)) + EPSILON)


def orthogonalized(x):
    """The Newton-Schulz iteration of Jordan et al. 2024, with its three numbers."""
    if len(x) > x.shape[1]:
        return orthogonalized(x.T).T
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


MATRICES = ("layers_0/inner/kernel", "layers_0/outer/kernel", "layers_1/inner/kernel")


def muon(name, params, matrices=MATRICES):
    """Jordan et al. 2024 with the factor of Liu et al. 2025, equation 4; Adam elsewhere.

    Nesterov's momentum has the corrections of bias of Dozat 2016, "Incorporating Nesterov Momentum
    into Adam", which change its length, and the weight of the newest gradient.
    """
    if name not in matrices:
        yield from adam(name, params)
    m = np.zeros(SHAPES[name])
    for t in itertools.count(1):
        g = yield
        m = MOMENTUM * m + (1 - MOMENTUM) * g
        ahead = MOMENTUM * m / (1 - MOMENTUM ** (t + 1)) + (1 - MOMENTUM) * g / (1 - MOMENTUM**t)
        yield 0.2 * np.sqrt(max(g.shape)) * orthogonalized(ahead)


def adafactor(name, params):
    """Shazeer and Stern 2018, algorithms 4 and 5: the moments of a matrix from sums, as there."""
    r = c = v = 0.0
    for t in itertools.count(1):
        g = yield
        keep, x = 1 - t**-0.8, params[name]
        square = g**2 + 1e-30
        if g.ndim == 2:
            r = keep * r + (1 - keep) * square.sum(1)
            c = keep * c + (1 - keep) * square.sum(0)
            v = np.outer(r, c) / r.sum()
        else:
            v = keep * v + (1 - keep) * square
        u = g / np.sqrt(v)
        u = u / max(1.0, np.sqrt(np.mean(u**2)))
        yield u * max(1e-3, np.sqrt(np.mean(x**2)))


PAPERS = {"adam": adam, "adamw": adam, "lion": lion, "muon": muon, "adafactor": adafactor}
