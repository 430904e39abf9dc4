"""Compares numbers of heads with equal parameter counts (Vaswani et al. 2017, Table 3 (A)).

python launch.py --config=configs/sweeps/heads.py --workdir=runs/heads
python launch.py --config=configs/sweeps/heads.py:multi30k --workdir=runs/heads_multi30k
"""

from transformer.config import load_page


def get_config(size: str = "grammar"):
    config = load_page("sweeps.sizes").get_config(size)
    config.name = "heads"
    config.sweep.baseline = 6 if size == "multi30k" else 10  # the first trial with four heads
    return config


def sweep(size: str = "grammar"):
    for num_heads in (1, 2, 4, 8, 16):
        for seed in range(3 if size == "multi30k" else 5):
            yield {"model.num_heads": num_heads, "seed": seed}
