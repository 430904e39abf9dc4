"""Compares the costs of predicting all words of a sentence in one pass, or in one pass per word.

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
