"""Compares the softmax with attention sinks and with head gates, with two seeds each.

    python launch.py --config=configs/sweeps/sinks.py --workdir=runs/sinks
    python launch.py --config=configs/sweeps/sinks.py:multi30k --workdir=runs/sinks_multi30k

The models are those of `quickstart.py`, or of the other sweeps on Multi30k.
"""

from transformer.config import load_page

SETTINGS = (
    {"model.attention_sink": "none", "model.head_gate": False},
    {"model.attention_sink": "one", "model.head_gate": False},
    {"model.attention_sink": "learned", "model.head_gate": False},
    {"model.attention_sink": "none", "model.head_gate": True},
)


def get_config(size: str = "grammar"):
    if size == "grammar":
        config = load_page("quickstart").get_config()
    else:
        config = load_page("sweeps.sizes").get_config(size)
    config.name = "sinks"
    return config


def sweep():
    for setting in SETTINGS:
        for seed in range(2):
            yield {**setting, "seed": seed}
