"""Transformers and recurrent models with equal numbers of parameters, three seeds each.

    python launch.py --config=configs/sweeps/architectures.py --workdir=runs/architectures
    python launch.py --config=configs/sweeps/architectures.py:multi30k \\
        --workdir=runs/architectures_multi30k

Recurrent models have one layer per side, with the width that gives the Transformer's number of
parameters: an LSTM with additive attention (Bahdanau et al. 2015), with and without peepholes
(Gers and Schmidhuber 2000), one with multiplicative attention (Luong et al. 2015), one without
attention (Sutskever et al. 2014), and a GRU.
"""

from transformer.config import load_page

# (cell, attention): width at each size
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
