"""Compares attention with and without the factor 1/sqrt(d_k) [3.2.1] of Vaswani et al. 2017.

    python launch.py --config=configs/sweeps/scale.py --workdir=runs/scale

Models have one head of size 64, or four of size 16, and are trained with two learning rates.
"""

from transformer.config import load_page


def get_config(size: str = "grammar"):
    config = load_page("sweeps.sizes").get_config(size)
    config.name = "scale"
    return config


def sweep():
    for num_heads in (1, 4):
        for learning_rate in (3e-3, 1e-2):
            for scale_scores in (True, False):
                for seed in range(2):
                    yield {
                        "model.num_heads": num_heads,
                        "model.scale_scores": scale_scores,
                        "optimizer.learning_rate": learning_rate,
                        "seed": seed,
                    }
