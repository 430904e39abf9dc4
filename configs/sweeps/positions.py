"""Compares positional encodings with three seeds each, or five on the built-in grammar.

    python launch.py --config=configs/sweeps/positions.py --workdir=runs/positions
    python launch.py --config=configs/sweeps/positions.py:copy --workdir=runs/positions_copy
    python launch.py --config=configs/sweeps/positions.py:multi30k --workdir=runs/positions_multi30k

    python launch.py --config=configs/sweeps/positions.py:mnist --workdir=runs/positions_mnist

On `copy`, models trained on sequences of 4 to 12 letters are also tested on sequences of 24
letters; no model copies any of the longer sequences correctly (docs/results/positions.md).
"""

from transformer.config import load_page

ENCODINGS = (
    "sinusoidal",
    "split",
    "learned",
    "rotary",
    "relative_shaw",
    "alibi",
    "none",
    "relative_bias",
    "sinusoidal+rotary",
)
OF_PICTURES = (
    "learned",
    "sinusoidal",
    "rotary",
    "grid_sinusoidal",
    "grid_rotary",
    "grid_bias",
    "learned+grid_bias",
    "none",
)


def get_config(size: str = "grammar"):
    config = load_page("sweeps.sizes").get_config(size)
    config.name = "positions"
    return config


def sweep(size: str = "grammar"):
    for encoding in OF_PICTURES if size == "mnist" else ENCODINGS:
        for seed in range(5 if size == "grammar" else 3):
            yield {"model.positions": encoding, "seed": seed}
