"""Predicts all positions of a sentence at once, or one at a time: same losses, different cost.

python launch.py --config=configs/sweeps/next_word.py --workdir=runs/next_word_sweep
"""

from transformer.config import load_page


def get_config():
    config = load_page("next_word").get_config()
    config.name = "next_word"
    return config


def sweep():
    for each_position in (False, True):
        yield {"data.each_position": each_position}
