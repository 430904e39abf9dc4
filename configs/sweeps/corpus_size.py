"""Trains translation models on subsets of your own parallel text, to compare training set sizes.

    python launch.py --config=configs/sweeps/corpus_size.py:1000,3000,10000,0 \\
        --workdir=runs/corpus_size --config.data.path=DIR \\
        --config.data.train_source=FILE --config.data.train_target=FILE

The arguments are numbers of training pairs; 0 means all pairs. Smaller subsets are contained in
larger ones, and all models have the same validation and test set. The recipe chooses a row for each
subset (configs/recipes/size.py), unless `--config.recipe=none` is set.
"""

from transformer.config import load_page

SIZES = "1000,3000,10000,0"


def get_config(sizes: str = SIZES):
    """Returns the experiment.

    Raises:
      ValueError: a size is not a number of pairs.
    """
    for size in sizes.split(","):
        if not size.isdecimal():
            raise ValueError(f"size '{size}' is no number of pairs: give some, such as {SIZES}")
    config = load_page("own_text").get_config()
    config.name = "corpus_size"
    return config


def sweep(sizes: str = SIZES):
    for size in sizes.split(","):
        for seed in range(2):
            yield {"data.train_subset": int(size), "seed": seed}
