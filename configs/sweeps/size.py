"""Compares head sizes, depths, widths and d_ff, as in Table 3 (B) and (C) of Vaswani et al. 2017.

python launch.py --config=configs/sweeps/size.py --workdir=runs/size
python launch.py --config=configs/sweeps/size.py:multi30k --workdir=runs/size_multi30k

The peak learning rate is inversely proportional to the width (Yang et al. 2022, "Tensor Programs
V"): at the best rate for the baseline's width, a model of twice the width learns less.
"""

from transformer.config import load_page


def get_config(size: str = "grammar"):
    global base, rate  # sweep() changes these values
    config = load_page("sweeps.sizes").get_config(size)
    config.name = "size"
    base, rate = config.model, config.optimizer.learning_rate
    return config


def sweep():
    layers = ("model.num_encoder_layers", "model.num_decoder_layers")
    changes = [
        {},
        {"model.head_size": base.d_model // base.num_heads // 4},
        {"model.head_size": base.d_model // base.num_heads * 2},
        dict.fromkeys(layers, base.num_encoder_layers // 2),
        dict.fromkeys(layers, base.num_encoder_layers * 2),
        {"model.d_model": base.d_model // 2, "optimizer.learning_rate": rate * 2},
        {"model.d_model": base.d_model * 2, "optimizer.learning_rate": rate / 2},
        {"model.d_ff": base.d_ff // 2},
        {"model.d_ff": base.d_ff * 2},
    ]
    for change in changes:
        for seed in range(3):
            yield {**change, "seed": seed}
