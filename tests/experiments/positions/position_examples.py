"""Encodings of a small model, and a registry with a few of them."""

import functools

from experiments.positions import values
from experiments.positions.values import encodings
from tiny_models import tiny_config
from transformer.model.positions import registry
from transformer.model.positions.registry import REGISTRY

# 7 positions, 3 heads of 10 and a width of 26, of which 13 pairs turn.
COUNT = 7
SIZES = tiny_config(d_model=26, num_heads=3, head_size=10)
WITH_PARAMETERS = {"learned", "relative_bias", "relative_shaw"}


def keep_only(monkeypatch, names):
    """Makes the registry one of these and none alone: work on others would only take time."""
    kept = {name: REGISTRY[name] for name in REGISTRY if name in (*names, "none")}
    for module in (registry, values):
        monkeypatch.setattr(module, "REGISTRY", kept)


def encoding(name, config=SIZES):
    """An encoding as it starts."""
    return next(one for one in all_of(config) if one.name == name)


@functools.cache
def all_of(config):
    return list(encodings(config, 0, None))
