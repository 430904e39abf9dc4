"""Compares pre-norm, post-norm and both at two depths and two learning rates, with three seeds.

    python launch.py --config=configs/sweeps/norm.py --workdir=runs/norm
    python launch.py --config=configs/sweeps/norm.py:multi30k --workdir=runs/norm_multi30k

Vaswani et al. 2017 use post-norm. Xiong et al. 2020 find that post-norm needs a long warm-up and
small learning rates, especially in deep models.
"""

from transformer.config import load_page


def get_config(size: str = "grammar"):
    config = load_page("sweeps.sizes").get_config(size)
    config.name = "norm"
    return config


def sweep():
    for depth in (2, 4):
        for norm_position in ("post", "pre", "both"):
            for learning_rate in (3e-3, 1e-2):
                for seed in range(3):
                    yield {
                        "model.norm_position": norm_position,
                        "model.num_encoder_layers": depth,
                        "model.num_decoder_layers": depth,
                        "optimizer.learning_rate": learning_rate,
                        "seed": seed,
                    }
