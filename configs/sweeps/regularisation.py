"""Compares rates of dropout and label smoothing, as in Table 3 (D) of Vaswani et al. 2017.

On images (`:mnist`), the sweep compares where dropout is applied.

    python launch.py --config=configs/sweeps/regularisation.py --workdir=runs/regularisation
    python launch.py --config=configs/sweeps/regularisation.py:multi30k \\
        --workdir=runs/regularisation_multi30k
    python launch.py --config=configs/sweeps/regularisation.py:mnist --workdir=runs/dropout

The training set from the built-in grammar is small on purpose: models can overfit it.
"""

from transformer.config import load_page

PLACES = (
    "model.dropout_embedding",
    "model.dropout_attention",
    "model.dropout_activation",
    "model.dropout_residual",
)


def get_config(size: str = "grammar"):
    config = load_page("sweeps.sizes").get_config(size)
    config.name = "regularisation"
    if size == "grammar":
        config.data.train_size = 2000
    return config


def sweep(size: str = "grammar"):
    for setting in dropout_by_place() if size == "mnist" else dropout_by_smoothing():
        for seed in range(3):
            yield setting | {"seed": seed}


def dropout_by_smoothing():
    for dropout in (0.0, 0.1, 0.3):
        for smoothing in (0.0, 0.1, 0.2):
            yield {
                "model.dropout_embedding": dropout,
                "model.dropout_residual": dropout,
                "train.label_smoothing": smoothing,
            }


def dropout_by_place():
    yield dict.fromkeys(PLACES, 0.0)
    for places in (*((place,) for place in PLACES), PLACES):
        for rate in (0.1, 0.2, 0.4):
            yield {place: rate * (place in places) for place in PLACES}
