"""Compares a Transformer with recurrent models of the same size, with three seeds each.

    python launch.py --config=configs/sweeps/architectures.py --workdir=runs/architectures
    python launch.py --config=configs/sweeps/architectures.py:multi30k \\
        --workdir=runs/architectures_multi30k

The recurrent models have one layer per side; their widths are chosen to match the Transformer's
parameter count. They are LSTMs with additive attention (Bahdanau et al. 2015), with and without
peepholes (Gers and Schmidhuber 2000), with multiplicative attention (Luong et al. 2015) and without
attention (Sutskever et al. 2014), and a GRU with additive attention.
"""

from transformer.config import load_page

# {(cell, attention): width for each `size` of `get_config`}
WIDTHS = {
    ("lstm", "additive"): {"grammar": 72, "copy": 72, "multi30k": 146},
    ("lstm_peephole", "additive"): {"grammar": 72, "copy": 72, "multi30k": 146},
    ("lstm", "multiplicative"): {"grammar": 82, "copy": 82, "multi30k": 164},
    ("lstm", "none"): {"grammar": 86, "copy": 86, "multi30k": 174},
    ("gru", "additive"): {"grammar": 78, "copy": 78, "multi30k": 156},
}


def get_config(size: str = "grammar"):
    config = load_page("sweeps.sizes").get_config(size)
    config.name = "architectures"
    return config


def sweep(size: str = "grammar"):
    kinds = [{"model.architecture": "transformer"}]
    for (cell, attention), widths in WIDTHS.items():
        kinds.append(
            {
                "model.architecture": "recurrent",
                "model.cell": cell,
                "model.recurrent_attention": attention,
                "model.d_model": widths[size],
                "model.num_encoder_layers": 1,
                "model.num_decoder_layers": 1,
            }
        )
    for kind in kinds:
        for seed in range(3):
            yield {**kind, "seed": seed}
