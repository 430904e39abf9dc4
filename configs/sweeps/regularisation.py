"""How much regularisation? Dropout by label smoothing, Table 3 (D) of Vaswani et al. 2017.

    python launch.py --config=configs/sweeps/regularisation.py --workdir=runs/regularisation
    python launch.py --config=configs/sweeps/regularisation.py:multi30k \\
        --workdir=runs/regularisation_multi30k

The training set is small, so that models can overfit.
"""

from configs.sweeps import sizes


def get_config(size: str = "grammar"):
    config = sizes.get_config(size)
    config.name = "regularisation"
    if size == "grammar":
        config.data.train_size = 2000
    return config


def sweep():
    for dropout in (0.0, 0.1, 0.3):
        for smoothing in (0.0, 0.1, 0.2):
            for seed in range(2):
                yield {
                    "model.dropout_embedding": dropout,
                    "model.dropout_residual": dropout,
                    "train.label_smoothing": smoothing,
                    "seed": seed,
                }
