"""A classifier for your own labelled texts: a file of rows, or a folder of texts for each label.

    python launch.py --config=configs/own_labels.py --workdir=runs/labels --config.data.path=FILE

FILE is a CSV, TSV, JSON lines or Parquet file; or a folder, either with such files named train and
test, or with a folder for each label that has one text per file (train/pos/1.txt).
docs/classification.md says which columns are used; the log offers other choices.

By default, a tenth of the texts (at most 5,000) each is held out for validation and for test; to
use your own files, set `--config.data.test_source=...`, below the path. The recipe sets the size
and the length of the training by the number of texts (configs/recipes/labels.py), except for keys
that you set. It takes minutes on two cores.
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
    config.data.batch_sentences = 64  # short texts also need some updates per epoch
    return config
