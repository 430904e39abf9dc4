"""A classifier of your own labelled texts: a file of rows, or a folder of texts for each label.

    python launch.py --config=configs/own_labels.py --workdir=runs/labels --config.data.path=FILE

FILE is CSV, TSV, JSON lines or Parquet, or a folder: of such files named train and test, or of a
folder for each label with a text in each file (train/pos/1.txt). docs/classification.md says which
columns are taken and what a line of the log offers to change.

By default a tenth of the texts is held out for validation and a tenth for test, 5,000 at most; to
use your own files, set `--config.data.test_source=...`, below the path. The recipe sets the size
and the length of the training by the number of texts (configs/recipes/labels.py), except for keys
that you set. Minutes on two cores.
"""

from transformer.config import default_config, load_page


def get_config():
    """Returns the experiment: a bag of embeddings with bigrams, and the recipe "size"."""
    config = default_config()
    bag = load_page("imdb").get_config("bigrams")
    config.name = "own_labels"
    config.recipe = "size"
    config.task = bag.task
    config.model, config.optimizer, config.train = bag.model, bag.optimizer, bag.train
    config.tokenizer = bag.tokenizer

    config.data.source = "files"
    config.data.train_source = "."
    config.data.train_target = ""
    config.data.validation_size = config.data.test_size = 5000
    config.data.max_tokens = bag.data.max_tokens
    config.data.batch_tokens = bag.data.batch_tokens
    config.data.batch_sentences = 64  # short texts, too, need some updates an epoch
    return config
