"""A tiny run that describes scenes."""

import tiny_scenes

CONFIG = tiny_scenes.CONFIG.replace("scenes_vqa", "scenes_captions").replace(
    "    return", "    config.model.num_decoder_layers = 1\n    return"
)


def train_captions(folder):
    """Trains a run in `folder/run` with `folder/config.py`."""
    tiny_scenes.train_scenes(folder, CONFIG)
